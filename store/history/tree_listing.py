"""Listing: a tenant's trees over all shards, the one used last first.

Every use changes the order. A tree that is used while somebody reads on moves to the front, and isn't met again:
no tree is listed twice, and a reader who wants it begins anew.
"""

from typing import NamedTuple

from store.history.history import ConversationHistoryStore
from store.history.listing import by_shard, page
from store.history.merging import Merged, ScoredDigits
from store.keys import ShardKeys, conversation_id, id_of
from store.redis import scripts

TURNS_AT_ONCE = 1_000
"""How many turns one script call looks at to count those of trees: a millisecond."""


class Tree(NamedTuple):
    """The summary of a tree."""

    place: ScoredDigits
    id: str
    """The id of its root, which names the tree even if that turn was deleted."""
    turns: int
    whole: bool
    """Whether `turns` counts all of its turns; else there are more."""
    newest: str
    """The id of its newest turn, which may be no response (keys.py)."""
    conversation: str | None
    """The id of the conversation that stands there."""
    under_way: int
    status: str
    """The status of the newest turn."""
    created: int
    """The time when the newest turn was made, in µs since 1970."""
    size: int
    """The bytes of its response, as it is stored."""

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
        self._merged = Merged(history.keyspace.all_shards(), self._read, ascending=False, after=after)

    async def some(self, most: int) -> list[tuple[ScoredDigits, Tree | None]]:
        """The next ones, at most so many, each with None where it is unknown by now; none once all were read. Raises
        StoreUnavailable.
        """
        places = await self._merged.some(most)
        found = await self._summed_up([place for place in places if place.known])
        return [(place, found.get(place.digits)) for place in places]

    async def _read(self, shard: ShardKeys, behind: ScoredDigits | None, most: int) -> tuple[list[ScoredDigits], bool]:
        return await page(self._history, shard, "trees", self._tenant, behind, ascending=False, most=most)

    async def _summed_up(self, places: list[ScoredDigits]) -> dict[str, Tree]:
        """The summaries of the trees at these places, by their digits; without those that are gone."""
        at = {place.digits: place for place in places}
        found: dict[str, Tree] = {}
        for left in by_shard(at):
            shard = self._history.keyspace.shard(left[0])
            while left:
                async with self._history.server.operation() as operation:
                    _, *rows = await scripts.sum_up(
                        operation, shard, tenant=self._tenant, roots=" ".join(left), most=TURNS_AT_ONCE
                    )
                found |= {root: _tree(at[root], row) for root, row in zip(left, rows, strict=False) if row}
                left = left[len(rows) :]
        return found


def _tree(place: ScoredDigits, row: bytes) -> Tree:
    """The summary by sum_up.lua of the tree at a place; it keeps the place at which it was listed."""
    _, turns, whole, newest, named, under_way, status, created, size = row.decode().split(" ")
    return Tree(
        place=place,
        id=id_of(place.digits),
        turns=int(turns),
        whole=whole == "1",
        newest=id_of(newest),
        conversation=None if named == "-" else conversation_id(named),
        under_way=int(under_way),
        status=status,
        created=int(created),
        size=int(size),
    )
