"""Retrieving: a turn from the archive, for a caller that didn't find it in Redis.

A deleted turn may still be in the archive for a while. So a reader asks Redis last whether a deletion is noted, or was
archived lately. A read that takes no longer than a fence never returns a turn that was deleted before it began.
"""

from collections.abc import Awaitable, Callable, Collection, Sequence
from typing import NamedTuple

from store.archive.archive import Archive
from store.backup.archiving.archiver import FENCE_SECONDS
from store.backup.archiving.keeping import Keeping, Scan
from store.backup.archiving.marks import Marks
from store.backup.archiving.merging import as_gone, as_of
from store.backup.records import Saved
from store.errors import ArchiveUnavailable, ChainTooLong
from store.history.delete import ERASED, FORGOTTEN, TREE
from store.history.elsewhere import FROM_ARCHIVE, Archived, ArchivedTrees, AwayBranches, Fate
from store.history.history import MAX_CHAIN_BYTES, MAX_DEPTH
from store.keys import SHARD_DIGITS, Keyspace, TurnKeys, checked_tenant, digits_of, id_of
from store.redis.connection import Server

ASKED_AT_ONCE = 250
"""The turns of a way for which one call asks whether they were deleted: less than a millisecond."""

AWAY_PARTS = 64
"""The most parts of a tree in which to look for branches that Redis doesn't have: some 64 MiB of content."""

WITH_RESPONSES = 4
"""How many times the bytes of messages of the longest chain a way may have, with its responses."""

_Reading = Callable[[Scan, Sequence[str]], Awaitable[Sequence[Saved]]]
"""Reads the turns of a path."""


class Way(NamedTuple):
    """The turns from a root to one that was looked for, deleted ones included, or that one alone; and what the archive
    said of it.
    """

    turns: Sequence[Saved]
    archived: Archived


class _Look(NamedTuple):
    """The result of a look at a tree: the id of the root, and the turns that were asked for, if they are there."""

    root: str
    turns: Sequence[Saved]


class Retriever:
    """Finds turns in an archive. All raise StoreUnavailable, ArchiveUnavailable, ArchiveDamaged and NewerFormat, and
    ValueError for a malformed tenant.
    """

    def __init__(
        self,
        server: Server,
        keyspace: Keyspace,
        archive: Archive,
        *,
        fence_seconds: float = FENCE_SECONDS,
        max_depth: int = MAX_DEPTH,
        max_chain_bytes: int = MAX_CHAIN_BYTES,
    ) -> None:
        """`fence_seconds` is what the archivers have; `max_depth` and `max_chain_bytes` are the store's."""
        self._server, self._keyspace = server, keyspace
        self._archive, self._keeping, self._marks = archive, Keeping(archive), Marks(archive)
        self.fence_ms = round(fence_seconds * 1000)
        self._max_depth, self._max_chain_bytes = max_depth, max_chain_bytes

    async def way(self, tenant: str, digits: str) -> Way | None:
        """The way to the turn with these digits; None where it isn't there, was deleted, or is in no tree that is
        whole. Raises also ChainTooLong for one that is longer than any that the store continues.
        """
        return await self._asked(tenant, digits, self._way)

    async def found(self, tenant: str, digits: str, *, remains: bool = False) -> Way | None:
        """The turn with these digits alone; None as from `way`, but that with `remains` a deleted one will do that
        others continue. Memory holds only the ids of those above it.
        """
        return await self._asked(tenant, digits, self._alone, remains)

    async def away(self, tenant: str, root: str, here: Collection[str], most: int) -> AwayBranches:
        """The ends of those branches of a tree that are not in Redis, which has the turns with the digits `here`; of a
        tree with more than AWAY_PARTS parts, those of the first ones.
        """
        ids = {id_of(each) for each in here}
        asked_ms = await self._now(self._keyspace.keys(tenant, root))

        async def look(scan: Scan) -> AwayBranches:
            whole = await scan.some(AWAY_PARTS)
            return AwayBranches(scan.index.ends(id_of(root), ids)[: most + 1], whole)

        found = await self._keeping.look(tenant, root, look)
        ends = [digits_of(end) for end in found.ends[:most]]
        gone = [await self._is_gone(self._keyspace.keys(tenant, end), root, asked_ms, remains=False) for end in ends]
        left = [end for end, is_gone in zip(ends, gone, strict=True) if not is_gone]
        return AwayBranches(left, found.whole and len(found.ends) <= most)

    async def fate(self, tenant: str, digits: str) -> Fate:
        """The fate of a turn that Redis lacks. All turns of a deleted tree were deleted with it."""
        keys, id = self._keyspace.keys(tenant, digits), id_of(digits)
        asked_ms = await self._now(keys)

        async def look(scan: Scan) -> tuple[str, bool]:
            path = await scan.path(id)
            return (path[0], False) if path else ("", scan.index.is_gone(id) or bool(scan.index.gone_trees))

        root, gone = await self._keeping.look(tenant, digits, look)
        gone = gone or bool(root and await self._is_gone(keys, digits_of(root), asked_ms, remains=False))
        erased = await self._marks.erased(tenant, anew=True)
        return Fate(asked_ms, self.fence_ms, there=bool(root) and not gone, gone=gone, erased=erased)

    async def trees(self, tenant: str, after: str, most: int) -> ArchivedTrees:
        """The trees of a tenant behind one, given by its shard and its digits; about `most`. Of a tree with more than
        AWAY_PARTS parts, the first ones are looked through.
        """
        found: list[tuple[str, str]] = []
        for number in range(int(after[:SHARD_DIGITS] or "0", 16), self._keyspace.shards):
            folder = f"v1/{number:02x}/t.{checked_tenant(tenant)}/"
            at = f"{folder}{after[SHARD_DIGITS:]}0" if after else ""  # 0 follows the slash: behind all of its parts
            while page := await self._archive.list(folder, after=at, limit=1):
                if len(found) >= most:
                    return ArchivedTrees(found, after)
                after = f"{number:02x}{page[0].key.removeprefix(folder).partition('/')[0]}"
                at = f"{folder}{after[SHARD_DIGITS:]}0"
                found += await self._keeping.look(tenant, after, self._ends)
            after = ""
        return ArchivedTrees(found)

    async def _ends(self, scan: Scan) -> list[tuple[str, str]]:
        await scan.some(AWAY_PARTS)
        roots = [id for id, entry in scan.index.entries.items() if entry.parent is None]
        ends = {root: scan.index.ends(root, ()) for root in roots}
        return [(digits_of(root), digits_of(some[0])) for root, some in ends.items() if some]

    async def _asked(self, tenant: str, digits: str, turns: _Reading, remains: bool = False) -> Way | None:
        keys = self._keyspace.keys(tenant, digits)
        asked_ms = await self._now(keys)
        look = await self._looked_up(tenant, digits, turns, remains)
        erased = await self._marks.erased(tenant) if look.turns else 0
        if not look.turns or look.turns[-1].created <= erased:
            return None
        if await self._is_gone(keys, digits_of(look.root), asked_ms, remains):
            return None
        told = [as_of(turn, erased) for turn in look.turns]
        root, doubted = digits_of(look.root), len(told) - (0 if remains else 1)
        noted = await self._as_noted(keys, root, told, doubted)
        return Way(noted, Archived(asked_ms, self.fence_ms, root, noted[-1].deleted, FROM_ARCHIVE))

    async def _as_noted(self, keys: TurnKeys, root: str, turns: Sequence[Saved], doubted: int) -> Sequence[Saved]:
        """The turns of a way, the first so many without deletions that the archive doesn't have yet."""
        noted, told = keys.shard.changes_of(keys.tenant, root), list(turns)
        for at in range(0, doubted, ASKED_AT_ONCE):
            places = range(at, min(at + ASKED_AT_ONCE, doubted))
            members = [word + digits_of(turns[place].id) for place in places for word in (FORGOTTEN, ERASED)]
            async with self._server.operation() as operation:
                if not await operation.command("EXISTS", noted):
                    break
                scores = await operation.row(*(("ZSCORE", noted, member) for member in members), at=noted)
            for place, forgotten, erased in zip(places, scores[::2], scores[1::2], strict=True):
                if forgotten is not None or erased is not None:
                    told[place] = as_gone(turns[place], erased is not None)
        return told

    async def _looked_up(self, tenant: str, digits: str, turns: _Reading, remains: bool) -> _Look:
        async def look(scan: Scan) -> _Look:
            path = await scan.path(id_of(digits), remains=remains)
            if path is None:
                return _Look("", ())
            return _Look(path[0], await turns(scan, path))

        return await self._keeping.look(tenant, digits, look)

    async def _way(self, scan: Scan, path: Sequence[str]) -> Sequence[Saved]:
        entries = [scan.index.entries[id] for id in path]
        content = sum(entry.payload for entry in entries)
        if (
            len(path) > self._max_depth
            or sum(entry.messages for entry in entries[:-1]) >= self._max_chain_bytes
            or content > WITH_RESPONSES * self._max_chain_bytes
        ):
            raise ChainTooLong(path[-1])
        scan.keep(content)
        wanted, turns = set(path), dict[str, Saved]()
        for number in scan.index.numbers(path):
            for turn in (await scan.part(number)).turns:
                if turn.id in wanted:
                    turns.setdefault(turn.id, turn)
        return [_as_known(scan, turns[id]) for id in path]

    async def _alone(self, scan: Scan, path: Sequence[str]) -> Sequence[Saved]:
        part = await scan.part(scan.index.entries[path[-1]].number)
        return [_as_known(scan, next(turn for turn in part.turns if turn.id == path[-1]))]

    async def _now(self, keys: TurnKeys) -> int:
        async with self._server.operation() as operation:
            return await operation.now_us(keys.shard.clock) // 1000

    async def _is_gone(self, keys: TurnKeys, root: str, asked_ms: int, remains: bool) -> bool:
        """Whether a turn, or its tree, was deleted, and the archive may not have known it when it was asked; where its
        `remains` will do, whether its tree was.
        """
        shard, tenant = keys.shard, keys.tenant
        noted = shard.changes_of(tenant, root)
        members = [TREE + root, *([] if remains else [FORGOTTEN + keys.digits, ERASED + keys.digits])]
        fences = [shard.fence_of(tenant, member) for member in members]
        async with self._server.operation() as operation:
            now, fenced, *scores = await operation.row(
                ("TIME",), ("EXISTS", *fences), *(("ZSCORE", noted, member) for member in members), at=noted
            )
        if _ms(now) > asked_ms + self.fence_ms:
            raise ArchiveUnavailable(
                f"it took longer than {self.fence_ms / 1000:g} s, within which deletions are known"
            )
        return bool(fenced) or any(score is not None for score in scores)


def _as_known(scan: Scan, turn: Saved) -> Saved:
    """A turn of a part, deleted where the first part says so."""
    gone = scan.index.gone
    return as_gone(turn, gone[turn.id]) if turn.id in gone else turn


def _ms(time: Sequence[bytes]) -> int:
    """The time of a reply to TIME, in ms."""
    return int(time[0]) * 1000 + int(time[1]) // 1000
