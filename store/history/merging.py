"""Merging: the ordered lists of all shards as one list that is read some at a time.

Each shard is asked for its next ones, never for more than one call may take, as others wait for its server meanwhile.
"""

import asyncio
import heapq
from collections import deque
from collections.abc import Awaitable, Callable, Sequence
from typing import NamedTuple

from store.keys import ShardKeys

MOST_AT_ONCE = 100
"""The most places that one call looks at: some 0.4 ms."""

FEWEST_AT_ONCE = 8
"""The fewest: a page that needs some of every shard shouldn't ask one of them often."""

SHARDS_AT_ONCE = 16
"""How many shards are asked at the same time, to leave connections for others."""


class ScoredDigits(NamedTuple):
    """A place in an order: a score in µs, the digits, and whether these were known a moment ago."""

    score: int
    digits: str
    known: bool = True

    @classmethod
    def of(cls, text: str) -> "ScoredDigits":
        """The place in the text of page.lua."""
        digits, _, score = text.partition("=")
        return cls(int(score.removesuffix("?")), digits, not score.endswith("?"))


class _Part:
    """One shard's part of the list."""

    def __init__(self, shard: ShardKeys) -> None:
        self.shard = shard
        self.waiting: deque[ScoredDigits] = deque()
        self.more = True
        """Whether the shard may have more than is waiting."""


Read = Callable[[ShardKeys, ScoredDigits | None, int], Awaitable[tuple[list[ScoredDigits], bool]]]
"""The next places of a shard behind one, at most so many, and whether it has more."""


class Merged:
    """The list. `read` asks a shard; with `after` it begins behind that place, which need not be there any more."""

    def __init__(self, shards: Sequence[ShardKeys], read: Read, *, ascending: bool, after: ScoredDigits | None) -> None:
        self._read_shard = read
        self._sign = 1 if ascending else -1
        self._parts = [_Part(shard) for shard in shards]
        self._last = after
        self._heads: list[tuple[int, int, int]] | None = None
        """A heap: for each part with waiting places the order of the first of these, and the part's number."""

    async def some(self, most: int) -> list[ScoredDigits]:
        """The next ones, at most so many; none once all were read. Raises the errors of `read`."""
        if self._heads is None:
            await self._begin(most)
        assert self._heads is not None
        places: list[ScoredDigits] = []
        while self._heads and len(places) < most:
            *_, number = heapq.heappop(self._heads)
            part = self._parts[number]
            self._last = part.waiting.popleft()
            places.append(self._last)
            if not part.waiting and part.more:
                await self._read(part, most - len(places))
            self._wait(number)
        return places

    async def _begin(self, most: int) -> None:
        """Read the first places of each shard."""
        for at in range(0, len(self._parts), SHARDS_AT_ONCE):
            await asyncio.gather(*(self._read(part, most) for part in self._parts[at : at + SHARDS_AT_ONCE]))
        self._heads = []
        for number in range(len(self._parts)):
            self._wait(number)

    async def _read(self, part: _Part, wanted: int) -> None:
        """Read on in a shard, behind the last place of all; with many shards each gives a part of the wanted places."""
        most = min(max(2 * wanted // (len(self._parts) + 1), FEWEST_AT_ONCE), MOST_AT_ONCE)
        places, part.more = await self._read_shard(part.shard, self._last, most)
        part.waiting.extend(places)

    def _wait(self, number: int) -> None:
        """Put a part into the heap, if it has waiting places."""
        if self._heads is not None and self._parts[number].waiting:
            score, digits, _ = self._parts[number].waiting[0]
            heapq.heappush(self._heads, (self._sign * score, self._sign * int(digits, 16), number))
