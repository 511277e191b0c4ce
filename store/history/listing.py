"""Listing: what a tenant has over all shards as one list that is read some at a time.

Conversations are in the order in which they began, which never changes: a page behind a conversation always has the
same ones, except for deleted ones. Trees are in that of their last use, which every use changes: one that is used while
somebody reads on moves to the front, and isn't met again. So no tree is listed twice, and a reader who wants it begins
anew.

Each shard has a list of its own (page.lua). It is asked for its next places, never for more than one call may take, as
others wait for its server meanwhile. Listing doesn't count as use.
"""

import asyncio
from collections import deque
from collections.abc import Iterable
from typing import NamedTuple

from store import codec
from store.errors import ConversationNotFound
from store.history.history import ConversationHistoryStore
from store.history.read import mget
from store.keys import ShardKeys, conversation_id, id_of, shard_of
from store.redis import scripts

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
        digits, _, score = text.partition("=")
        return cls(int(score.removesuffix("?")), digits, not score.endswith("?"))


class _Part:
    """One shard's part of the list: the places that wait, and whether it may have more."""

    def __init__(self, shard: ShardKeys) -> None:
        self.shard = shard
        self.waiting: deque[ScoredDigits] = deque()
        self.more = True


class Merged:
    """A tenant's `conversations` or `trees`; with `after` behind that place, which need not be there any more."""

    def __init__(
        self, history: ConversationHistoryStore, of: str, tenant: str, *, ascending: bool, after: ScoredDigits | None
    ) -> None:
        self._history, self._of, self._tenant = history, of, tenant
        self._ascending = ascending
        self._parts = list(map(_Part, history.keyspace.all_shards()))
        self._last = after

    async def some(self, most: int) -> list[ScoredDigits]:
        """The next ones, at most so many; none once all were read. Raises StoreUnavailable."""
        places: list[ScoredDigits] = []
        while len(places) < most:
            lacking = [part for part in self._parts if part.more and not part.waiting]
            for at in range(0, len(lacking), SHARDS_AT_ONCE):
                some = lacking[at : at + SHARDS_AT_ONCE]
                await asyncio.gather(*(self._read(part, most - len(places)) for part in some))
            waiting = [part.waiting for part in self._parts if part.waiting]
            if not waiting:
                break
            first = min if self._ascending else max
            self._last = first(waiting, key=lambda each: (each[0].score, int(each[0].digits, 16))).popleft()
            places.append(self._last)
        return places

    async def _read(self, part: _Part, wanted: int) -> None:
        """Read on in a shard, behind the last place of all; with many shards each gives a part of the wanted places."""
        score, after, _ = self._last or ScoredDigits(0, "")
        _, places, more = await self._history.server.run(
            scripts.page,
            part.shard,
            of=self._of,
            tenant=self._tenant,
            score=str(score),
            after=after,
            ascending=int(self._ascending),
            most=min(max(2 * wanted // (len(self._parts) + 1), FEWEST_AT_ONCE), MOST_AT_ONCE),
            idle_us=self._history.caps.idle_us,
        )
        part.waiting.extend(map(ScoredDigits.of, places.decode().split()))
        part.more = bool(int(more))


class ListedConversation(NamedTuple):
    """A conversation in a list: its id, and its JSON, or None where it is unknown by now."""

    id: str
    shown: bytes | None


class Listing:
    """A list of conversations that is read from a place on, some at a time. Made by `Conversations.listing`."""

    def __init__(self, history: ConversationHistoryStore, tenant: str, *, after: str | None, ascending: bool) -> None:
        self._history = history
        self._tenant = tenant
        self._after = after
        self._ascending = ascending
        self._merged: Merged | None = None

    async def some(self, most: int) -> list[ListedConversation]:
        """The next ones, at most so many; none once all were read."""
        if self._merged is None:
            after = await self._place()
            self._merged = Merged(self._history, "conversations", self._tenant, ascending=self._ascending, after=after)
        return await self._show(await self._merged.some(most))

    async def _place(self) -> ScoredDigits | None:
        if self._after is None:
            return None
        keys = self._history.keyspace.conversation(self._tenant, self._after)
        began = await self._history.server.command("ZSCORE", keys.shard.conversations_of(self._tenant), keys.digits)
        if began is None:
            raise ConversationNotFound(self._after)
        return ScoredDigits(int(float(began)), keys.digits)

    async def _show(self, places: list[ScoredDigits]) -> list[ListedConversation]:
        keys = self._history.keyspace
        blobs: dict[str, bytes | None] = {}
        for digits in by_shard(place.digits for place in places if place.known):
            names = [keys.keys(self._tenant, each).key("response") for each in digits]
            async with self._history.server.operation() as operation:
                blobs |= zip(digits, await mget(operation, names), strict=True)
        listed: list[ListedConversation] = []
        for place in places:
            blob = blobs.get(place.digits)
            shown = None if blob is None else (await codec.unpack_response(blob))[0]
            listed.append(ListedConversation(conversation_id(place.digits), shown))
        return listed


def by_shard(digits: Iterable[str]) -> Iterable[list[str]]:
    found: dict[int, list[str]] = {}
    for each in digits:
        found.setdefault(shard_of(each), []).append(each)
    return found.values()


TURNS_AT_ONCE = 1_000
"""How many turns one script call looks at to count those of trees: a millisecond."""


class Tree(NamedTuple):
    """The summary of a tree."""

    place: ScoredDigits
    id: str
    """The id of its root, which names the tree even if that turn was deleted."""
    begun: int
    """The time when its root was made, in µs since 1970."""
    turns: int
    whole: bool
    """Whether `turns` counts all of its turns; else there are more."""
    newest: str
    """The id of its newest turn, which may be no response (keys.py)."""
    conversation: str | None
    """The id of the conversation that stands there."""
    under_way: int
    status: str
    created: int
    """The time when the newest turn was made, in µs since 1970."""
    size: int
    """The bytes of its response, as it is stored."""
    opening: dict[str, int]
    """The digits of the turns that it begins with, the root and what follows one by hand, with the bytes of their
    responses.
    """

    @property
    def used(self) -> int:
        """The last use of any of its turns, in µs since 1970."""
        return self.place.score


class TreeListing:
    """A list of trees that is read from a place on, some at a time."""

    def __init__(self, history: ConversationHistoryStore, tenant: str, *, after: ScoredDigits | None = None) -> None:
        """The trees of `tenant`, those behind `after`, which need not be there any more."""
        self._history = history
        self._tenant = tenant
        self._merged = Merged(history, "trees", tenant, ascending=False, after=after)

    async def some(self, most: int) -> list[tuple[ScoredDigits, Tree | None]]:
        """The next ones, with None where one is unknown by now; none once all were read. Raises StoreUnavailable."""
        places = await self._merged.some(most)
        found = await self._summed_up([place for place in places if place.known])
        return [(place, found.get(place.digits)) for place in places]

    async def _summed_up(self, places: list[ScoredDigits]) -> dict[str, Tree]:
        at = {place.digits: place for place in places}
        found: dict[str, Tree] = {}
        for left in by_shard(at):
            shard = self._history.keyspace.shard(left[0])
            while left:
                _, *rows = await self._history.server.run(
                    scripts.sum_up, shard, tenant=self._tenant, roots=" ".join(left), most=TURNS_AT_ONCE
                )
                found |= {root: _tree(at[root], row) for root, row in zip(left, rows, strict=False) if row}
                left = left[len(rows) :]
        return found


def _tree(place: ScoredDigits, row: bytes) -> Tree:
    """The summary by sum_up.lua of the tree at a place; it keeps the place at which it was listed."""
    _, begun, turns, whole, newest, named, under_way, status, created, size, *opening = row.decode().split(" ")
    return Tree(
        place=place,
        id=id_of(place.digits),
        begun=int(begun),
        turns=int(turns),
        whole=whole == "1",
        newest=id_of(newest),
        conversation=None if named == "-" else conversation_id(named),
        under_way=int(under_way),
        status=status,
        created=int(created),
        size=int(size),
        opening={place.digits: int(opening[0])} | ({} if opening[1] == "-" else {opening[1]: int(opening[2])}),
    )
