"""Refilling: trees of an archive go into memory, those that were used last first. The archive is the store's own, or
the file of a backup, into a store without one.

Nothing is evicted for it, and nothing that is there is replaced: a shard that has no room for a tree gets no more. A
turn goes behind the one that it continues. Done again, it brings the rest. Where the store has an archive it is never
needed, as reads bring turns back one by one: it brings them back earlier.

A conversation's last use decides when it is evicted, and when it expires. These have the order that they had, and none
is idle for longer than half of its limit. Else the first sweep could delete them.
"""

import heapq
from collections import Counter
from collections.abc import AsyncGenerator, Mapping, Sequence
from time import monotonic

import msgspec

from store.archive.archive import Archive
from store.backup.archiving.archiver import FENCE_MS
from store.backup.archiving.keeping import Keeping, Scan
from store.backup.archiving.marks import Marks
from store.backup.archiving.parts import TurnEntry
from store.backup.archiving.shards import begin_archive
from store.backup.reading import PAYLOAD_BYTES, ShardReader, pause, portions
from store.backup.records import Saved
from store.backup.turns import THERE, rows, store_row
from store.backup.upkeep.walking import trees_of
from store.errors import ArchiveDamaged, NewerFormat
from store.history.caps import room
from store.history.elsewhere import FROM_ARCHIVE, NOT_ARCHIVED, Archived
from store.history.history import ConversationHistoryStore
from store.keys import ShardKeys, digits_of, id_of, shard_of
from store.redis.connection import Operation

MOST_TREES = 100_000
"""How many trees are brought back at most, which is how many names are held to find the newest."""

MAX_REPORTED = 1_000
"""How many conflicts are named; all are counted."""

Newest = tuple[float, str, str]
"""A tree: when it was used or written last, its tenant, and digits that lead to it."""


class RefusedTurn(msgspec.Struct, frozen=True):
    """A turn that is not stored, as the store has another one with its id, or it continues such a one."""

    tenant: str
    id: str


class Refilled(msgspec.Struct):
    """The outcome. Of `wanted` trees, something of `trees` is in memory now, `no_room` had no room, and `unreadable`
    could not be read.

    Of the turns: `restored`; `kept`, as the store had them; `deleted`, as they were deleted since and stay so;
    `conflicts` with another turn of the same id, or below such a turn, some of which are `refused` by name; `lost`, as
    their parent was deleted meanwhile.
    """

    wanted: int = 0
    trees: int = 0
    no_room: int = 0
    unreadable: int = 0
    restored: int = 0
    kept: int = 0
    deleted: int = 0
    conflicts: int = 0
    lost: int = 0
    refused: list[RefusedTurn] = []

    def count(self, tenant: str, words: Mapping[str, bytes]) -> None:
        """Count what became of the turns of a tree, by their ids."""
        counts = Counter(words.values())
        self.restored += counts[b"ok"]
        self.kept += counts[b"kept"]
        self.deleted += counts[b"deleted"]
        self.conflicts += counts[b"conflict"]
        self.lost += counts[b"missing"] + counts[b"forgotten"] + counts[b"outdated"]
        refused = [RefusedTurn(tenant, id) for id, word in words.items() if word == b"conflict"]
        self.refused += refused[: MAX_REPORTED - len(self.refused)]

    @property
    def looked(self) -> int:
        """How many trees it has come to."""
        return self.trees + self.no_room + self.unreadable

    @property
    def whole(self) -> bool:
        """Whether all that was asked for is in the store now."""
        return not (self.no_room or self.unreadable or self.conflicts or self.lost)


async def newest(archive: Archive, tenant: str | None, since: float = 0.0, most: int = MOST_TREES) -> list[Newest]:
    """Up to `most` trees of a tenant, or of all, that were written after `since`, in seconds since 1970, the newest
    first. Raises ArchiveUnavailable, and ValueError for a malformed tenant.
    """
    found: list[Newest] = []
    async for tree in trees_of(archive, tenant):
        if tree.changed >= since:
            heapq.heappush(found, (tree.changed, tree.tenant, tree.digits))
        if len(found) > most:
            heapq.heappop(found)
    return sorted(found, reverse=True)


class Refill:
    """Brings trees of an archive into memory."""

    def __init__(
        self,
        history: ConversationHistoryStore,
        archive: Archive,
        *,
        after_seconds: float | None = None,
        turns_per_second: float = 0.0,
    ) -> None:
        """`after_seconds` is the archiver's; None where the archive is not the store's own. `turns_per_second` is the
        pace; 0 is as fast as the server answers.
        """
        self._history, self._server, self._archive = history, history.server, archive
        self._after_seconds, self._turns_per_second = after_seconds, turns_per_second
        self._keeping, self._marks = Keeping(archive), Marks(archive)
        self._now, self._full = 0, set[int]()
        self._done = Refilled()

    async def run(self, trees: Sequence[Newest]) -> AsyncGenerator[Refilled]:
        """Bring back these trees; how far it is. Raises ArchiveUnavailable, StoreUnavailable."""
        done, keyspace = self._done, self._history.keyspace
        done.wanted = len(trees)
        if self._after_seconds is not None:  # a server that lost all would not note what is deleted next
            await begin_archive(self._server, keyspace, self._after_seconds)
        self._now = round(await self._history.now() * 1e6)
        yield done
        for _, tenant, digits in trees:
            began, words = monotonic(), dict[str, bytes]()
            if shard_of(digits) >= keyspace.shards or shard_of(digits) in self._full:
                done.no_room += 1
            else:
                try:
                    await self._tree(tenant, digits, words)
                except (ArchiveDamaged, NewerFormat):
                    done.unreadable += 1
                there = words.values()
                done.trees += b"ok" in there or b"kept" in there
                done.no_room += b"full" in there
                done.count(tenant, words)
            yield done
            await pause(self._turns_per_second, len(words), began)

    async def _tree(self, tenant: str, digits: str, words: dict[str, bytes]) -> None:
        """Bring back a tree, where there is room for what of it isn't there. `words` gets what became of its turns."""
        shard, archived = self._history.keyspace.shard(digits), NOT_ARCHIVED
        if self._after_seconds is not None:
            asked_us = await self._server.run(Operation.now_us, shard.clock)
            archived = Archived(asked_us // 1000, FENCE_MS, source=FROM_ARCHIVE)

        async def bring(scan: Scan) -> None:
            await scan.all()
            entries = scan.index.entries
            ids, reader = _downwards(entries), ShardReader(self._server, shard)
            told = archived._replace(continued=bool(scan.index.gone))  # by one that was deleted
            nodes = await reader.nodes(tenant, map(digits_of, ids))
            there = {id_of(digits): node.digest for digits, node in nodes.items()}
            if await self._fits(shard, [entries[id] for id in ids if id not in there]):
                for some in portions(ids, lambda id: entries[id].payload, PAYLOAD_BYTES):
                    for row in rows(await scan.turns(some)):
                        await self._store(tenant, row, there, words, told)
            else:
                words[ids[0]] = b"full"
            if b"full" in words.values():
                self._full.add(shard_of(digits))

        await self._keeping.look(tenant, digits, bring)

    async def _store(
        self, tenant: str, turns: Sequence[Saved], there: dict[str, str], words: dict[str, bytes], archived: Archived
    ) -> None:
        """Store turns, but for those that are refused, and those that continue one that is."""
        erased, left = await self._marks.erased_until(tenant), list[Saved]()
        for turn in turns:
            above = words.get(turn.parent or "", b"ok")
            if there.get(turn.id, turn.digest) != turn.digest:
                words[turn.id] = b"conflict"
            elif turn.created <= erased:
                words[turn.id] = b"deleted"
            elif above not in THERE:
                words[turn.id] = above
            else:
                left.append(turn)
        if left:
            told = await store_row(self._history, tenant, left, archived, self._last_use)
            words.update({turn.id: word for turn, word in zip(left, told or [b"full"] * len(left), strict=True)})

    def _last_use(self, turn: Saved) -> int:
        return capped_use(turn.used, self._now, self._history.caps.idle_us)

    async def _fits(self, shard: ShardKeys, new: Sequence[TurnEntry]) -> bool:
        """Whether a shard takes so many more turns without an eviction."""
        found = await self._server.command("HMGET", shard.usage, "responses", "trees", "bytes")
        responses, trees = sum(not each.deleted for each in new), sum(each.parent is None for each in new)
        more, caps = (responses, trees, sum(room(each.payload) for each in new)), self._history.caps
        wanted = zip((caps.responses, caps.trees, caps.bytes), more, found, strict=True)
        return all(not added or not most or int(there or 0) + added <= most for most, added, there in wanted)


def capped_use(used: int, now: int, idle_us: int) -> int:
    """The last use that a turn gets, in µs: its own, as long as that was no longer ago than a quarter of `idle_us`.
    Older ones come closer together the older they are, so that none is older than half of it. 0 is no limit.
    """
    age, most = now - used, idle_us // 2
    return used if not most or age <= most // 2 else now - most + most * most // (4 * age)


def _downwards(entries: Mapping[str, TurnEntry]) -> list[str]:
    """The ids of turns, each behind the one that it continues."""
    order: dict[str, None] = {}
    for id in entries:
        way, at = list[str](), id
        while at in entries and at not in order and len(way) <= len(entries):
            way.append(at)
            at = entries[at].parent or ""
        order.update(dict.fromkeys(reversed(way)))
    return list(order)
