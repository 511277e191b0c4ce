"""Listing: a tenant's conversations over all shards, in the order in which they began.

That order never changes, so a page that goes on behind a conversation has what it always had, but for what was
deleted. Each shard has a list of its own, read some at a time (page.lua) and merged here. To list one is no use of it.
Never read more of a shard than one call may take: others wait for its server meanwhile.
"""

import asyncio
import heapq
from collections import deque
from collections.abc import Iterable
from typing import NamedTuple

from store import codec
from store.errors import ConversationNotFound
from store.history.history import ConversationHistoryStore
from store.history.read import mget
from store.keys import ShardKeys, conversation_id, shard_of
from store.redis import scripts

MOST_AT_ONCE = 100
"""The most conversations that one script call looks at: some 0.4 ms."""

FEWEST_AT_ONCE = 8
"""The fewest: a page that needs some of every shard shouldn't ask one of them often."""

SHARDS_AT_ONCE = 16
"""How many shards are asked at the same time, of the connections that there may be."""


class Listed(NamedTuple):
    """A conversation in a list: its id, and how it is shown, or None where it is unknown by now."""

    id: str
    shown: bytes | None


class _Place(NamedTuple):
    """Where a conversation stands: the µs at which it began, its digits; and whether it was there a moment ago."""

    began: int
    digits: str
    known: bool

    @classmethod
    def of(cls, text: str) -> "_Place":
        """The place that page.lua writes so."""
        digits, _, began = text.partition("=")
        return cls(int(began.removesuffix("?")), digits, not began.endswith("?"))


class _Part:
    """What a shard has of the list."""

    def __init__(self, shard: ShardKeys) -> None:
        self.shard = shard
        self.waiting: deque[_Place] = deque()
        self.more = True
        """Whether the shard may have more than is waiting."""


class Listing:
    """A list of conversations that is read from a place on, some at a time. Made by `Conversations.listing`."""

    def __init__(self, history: ConversationHistoryStore, tenant: str, *, after: str | None, ascending: bool) -> None:
        self._history = history
        self._tenant = tenant
        self._after = after
        self._ascending = ascending
        self._parts = [_Part(shard) for shard in history.keyspace.all_shards()]
        self._last: _Place | None = None
        self._heads: list[tuple[int, int, int]] | None = None
        """Of each part that has some waiting the order of the first of these, and the part's number; a heap."""

    async def some(self, most: int) -> list[Listed]:
        """The next ones, at most so many; none once all were read."""
        if self._heads is None:
            await self._begin(most)
        assert self._heads is not None
        places: list[_Place] = []
        while self._heads and len(places) < most:
            *_, number = heapq.heappop(self._heads)
            part = self._parts[number]
            self._last = part.waiting.popleft()
            places.append(self._last)
            if not part.waiting and part.more:
                await self._read(part, most - len(places))
            self._wait(number)
        return await self._shown(places)

    async def _begin(self, most: int) -> None:
        """Find the place where it begins, and read what comes first of each shard."""
        if self._after is not None:
            keys = self._history.keyspace.conversation(self._tenant, self._after)
            async with self._history.server.operation() as operation:
                began = await operation.command("ZSCORE", keys.shard.conversations_of(self._tenant), keys.digits)
            if began is None:
                raise ConversationNotFound(self._after)
            self._last = _Place(int(float(began)), keys.digits, known=True)
        for at in range(0, len(self._parts), SHARDS_AT_ONCE):
            await asyncio.gather(*(self._read(part, most) for part in self._parts[at : at + SHARDS_AT_ONCE]))
        self._heads = []
        for number in range(len(self._parts)):
            self._wait(number)

    async def _read(self, part: _Part, wanted: int) -> None:
        """Read on in a shard, behind what was read of all of them; of many shards each has a part of what is wanted."""
        most = min(max(2 * wanted // (len(self._parts) + 1), FEWEST_AT_ONCE), MOST_AT_ONCE)
        async with self._history.server.operation() as operation:
            _, places, more = await scripts.page(
                operation,
                part.shard,
                tenant=self._tenant,
                began=str(self._last.began) if self._last else "0",
                after=self._last.digits if self._last else "",
                ascending=int(self._ascending),
                most=most,
                idle_us=self._history.caps.idle_us,
            )
        part.waiting.extend(map(_Place.of, places.decode().split()))
        part.more = bool(int(more))

    def _wait(self, number: int) -> None:
        """Put a part among those from which the next one comes, if it has any."""
        if self._heads is not None and self._parts[number].waiting:
            began, digits, _ = self._parts[number].waiting[0]
            sign = 1 if self._ascending else -1
            heapq.heappush(self._heads, (sign * began, sign * int(digits, 16), number))

    async def _shown(self, places: list[_Place]) -> list[Listed]:
        """How the conversations at these places are shown."""
        keys = self._history.keyspace
        blobs: dict[str, bytes | None] = {}
        for digits in _by_shard(place.digits for place in places if place.known):
            names = [keys.keys(self._tenant, each).key("response") for each in digits]
            async with self._history.server.operation() as operation:
                blobs |= zip(digits, await mget(operation, names), strict=True)
        listed: list[Listed] = []
        for place in places:
            blob = blobs.get(place.digits)
            shown = None if blob is None else (await codec.unpack_response(blob))[0]
            listed.append(Listed(conversation_id(place.digits), shown))
        return listed


def _by_shard(digits: Iterable[str]) -> Iterable[list[str]]:
    """The digits of each shard."""
    found: dict[int, list[str]] = {}
    for each in digits:
        found.setdefault(shard_of(each), []).append(each)
    return found.values()
