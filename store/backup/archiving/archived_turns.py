"""The turns of a store that have left it for an archive: found there, brought back to be continued, and deleted.

A deleted turn may still be in the archive for a while. So a reader asks Redis last whether a deletion is noted, or was
archived lately. A read that takes no longer than a fence never returns a turn that was deleted before it began.

A turn that came back is still in the archive, so it may leave again at once, and needs no archiving. The turns of a way
are stored one after the other, and each only if nobody has deleted it since the archive was asked.

Many may ask for the same turn at once, and anybody for one that never was. So one read answers all who ask meanwhile,
and a turn that wasn't found is remembered for a while. A process asks for no more at once than it was told, of which
one tenant has half.
"""

import asyncio
from collections import Counter
from collections.abc import AsyncGenerator, Awaitable, Callable, Collection, Sequence
from contextlib import asynccontextmanager, suppress
from functools import partial
from time import monotonic
from typing import Any, NamedTuple, TypeVar

from store.archive.archive import Archive
from store.backup.archiving.archiver import AFTER_SECONDS, FENCE_MS
from store.backup.archiving.keeping import Keeping, Scan
from store.backup.archiving.marks import Marks
from store.backup.archiving.merging import as_gone, as_of
from store.backup.archiving.shards import begin_archive_in, waiting
from store.backup.records import Saved
from store.backup.turns import THERE, bring_back, rows, store_row
from store.errors import ArchiveBusy, ArchiveContended, ArchiveUnavailable, ChainTooLong, ParentNotFound
from store.history.delete import ERASED, FORGOTTEN, TREE
from store.history.elsewhere import (
    FROM_ARCHIVE,
    Archived,
    ArchivedTurn,
    ArchiveReader,
    AwayBranches,
    Fate,
    KeptQuery,
    KeptTree,
    Outdated,
)
from store.history.history import ConversationHistoryStore
from store.keys import (
    ShardKeys,
    TurnKeys,
    digits_of,
    id_of,
)
from store.redis.connection import Operation

ASKED_AT_ONCE = 250
"""The turns of a way for which one call asks whether they were deleted: less than a millisecond."""

AWAY_PARTS = 64
"""The most parts of a tree in which to look for branches that Redis doesn't have: some 64 MiB of content."""

WITH_RESPONSES = 4
"""How many times the bytes of messages of the longest chain of a way are held at once, with responses and pictures."""

BEHIND_SECONDS = 60.0
"""By how much less the archive is taken to have than it has: it is asked a moment later, and clocks differ."""

TRIES = 3
"""How often the archive is asked anew because turns of a way were deleted or evicted meanwhile."""

CONCURRENCY = 32
"""How many turns a process looks for at once."""

UNKNOWN_SECONDS = 10.0
MOST_UNKNOWN = 100_000
"""How long, and for how many turns, a miss is remembered: some 20 MB. With more all are forgotten."""

HIT, MISS, FAILED, REFUSED = "hit", "miss", "failed", "refused"
"""The outcomes of a question."""

_Reading = Callable[[Scan, Sequence[str]], Awaitable[Sequence[Saved]]]
"""Reads the turns of a path."""

T = TypeVar("T")

Find = Callable[[str, KeptQuery], Awaitable[Sequence[KeptTree]]]
"""Finds the trees of a tenant in a list of all that is kept."""


class ArchivedWay(NamedTuple):
    """The turns from a root to one that was looked for, deleted ones included, or some of them; what the archive said
    of it; and the ids of all of them.
    """

    turns: Sequence[Saved]
    archived: Archived
    ids: Sequence[str]


class _Question(NamedTuple):
    """A tenant, and the digits of a turn; whether its remains will do, if it was deleted."""

    tenant: str
    digits: str
    remains: bool = False


async def _is_ready() -> None:
    """Return at once: the archive may be asked."""


async def _archives_nothing(shard: ShardKeys) -> bool:
    """False: nothing is archived."""
    return False


class ArchivedTurns(ArchiveReader):
    """The turns of a store that have left it. It is the `elsewhere` of a history, whose errors it raises; besides
    ArchiveBusy, and ValueError for a malformed tenant.
    """

    def __init__(
        self,
        history: ConversationHistoryStore,
        archive: Archive,
        *,
        ready: Callable[[], Awaitable[None]] = _is_ready,
        make_room: Callable[[ShardKeys], Awaitable[bool]] = _archives_nothing,
        after_seconds: float = AFTER_SECONDS,
        concurrency: int = CONCURRENCY,
        unknown_seconds: float = UNKNOWN_SECONDS,
        find: Find | None = None,
    ) -> None:
        """`ready()` returns once the archive may be asked. `make_room(shard)` archives what is due there, or will be,
        and returns whether that was anything. `after_seconds` is what the archivers have. A turn
        that wasn't found is not looked for again for `unknown_seconds`, but for one that this store has made: a
        response may be asked for before it has ended, and be archived and evicted at once.
        """
        self._history, self._server, self._keyspace = history, history.server, history.keyspace
        self.archive, self._keeping, self._marks = archive, Keeping(archive), Marks(archive)
        self._ready, self._make_room = ready, make_room
        self._after_seconds = after_seconds
        self._find, self.lists = find, find is not None
        self._concurrency, self._share = concurrency, max(1, concurrency // 2)
        self._unknown_seconds = unknown_seconds
        self._making_room: dict[ShardKeys, asyncio.Task[bool]] = {}
        self._asked: Counter[str] = Counter()
        self._under_way: dict[tuple[str, _Question], asyncio.Task[Any]] = {}
        self._unknown: dict[_Question, float] = {}

    # --- the port ----------------------------------------------------------------------------------------------------

    async def find(self, tenant: str, digits: str) -> ArchivedTurn | None:
        way = await self._once("find", _Question(tenant, digits), self.found)
        if way is None or (turn := way.turns[0]).response is None:
            return None
        return ArchivedTurn(
            turn.status, turn.response, turn.items or b"[]", turn.messages, turn.background, turn.pictures
        )

    async def lineage(self, tenant: str, digits: str) -> Sequence[str] | None:
        way = await self._once("find", _Question(tenant, digits), self.found)
        return None if way is None else way.ids

    async def away(self, tenant: str, root: str, here: Collection[str], most: int) -> AwayBranches:
        ask = partial(self._away, here=here, most=most)
        return await self._ask_counted(_Question(tenant, root), ask) or AwayBranches()

    async def fate(self, tenant: str, digits: str) -> Fate | None:
        return await self._ask_counted(_Question(tenant, digits), self._fate)

    async def find_kept(self, tenant: str, query: KeptQuery) -> Sequence[KeptTree]:
        find = self._find
        if find is None:
            return ()

        async def ask(tenant: str, _: str) -> Sequence[KeptTree]:
            found = await find(tenant, query)
            return await asyncio.gather(*(self._kept_as_noted(tenant, tree) for tree in found))

        return await self._ask_counted(_Question(tenant, ""), ask) or ()

    async def unread_shards(self) -> Sequence[str]:
        return await self.archive.listener.unread()

    async def archived_until(self) -> float:
        shards = await waiting(self._server, self._keyspace)
        older = [await self._server.command("EXISTS", shard.older) for shard in self._keyspace.all_shards()]
        if any(older) or any(each.failed or not each.noted for each in shards):  # nobody knows since when these wait
            return 0.0
        return await self._history.now() - max(each.oldest_seconds for each in shards) - BEHIND_SECONDS

    async def bring_back(self, tenant: str, digits: str) -> bool:
        """The least used turns make room. Raises also StoreFull, Conflict, ChainTooLong."""
        return bool(await self._once("bring back", _Question(tenant, digits), self._bring_back))

    async def make_room(self, shard: ShardKeys) -> bool:
        if shard not in self._making_room:
            self._making_room[shard] = task = asyncio.create_task(self._room_made(shard))
            task.add_done_callback(lambda done: self._making_room.pop(shard) and (done.cancelled() or done.exception()))
        return await asyncio.shield(self._making_room[shard])

    async def delete(
        self, tenant: str, digits: str, delete: Callable[[Archived], Awaitable[None]], *, remains: bool = False
    ) -> bool:
        question = _Question(tenant, digits, remains)
        look = partial(self._once, "find", question, partial(self.found, remains=remains))
        return await self._in_time(digits, look, lambda way: delete(way.archived))

    # --- bounds of what is asked at once -----------------------------------------------------------------------------

    async def _room_made(self, shard: ShardKeys) -> bool:
        await self._ready()
        return await self._make_room(shard)

    async def _once(self, what: str, question: _Question, ask: Callable[[str, str], Awaitable[T | None]]) -> T | None:
        """The result of `ask`, shared by all who ask the same meanwhile; None also where it was None a moment ago."""
        if self._is_unknown(question):
            return None
        key = (what, question)
        task = self._under_way.get(key)
        if task is None:
            task = asyncio.create_task(self._ask_counted(question, ask))
            self._under_way[key] = task
            task.add_done_callback(lambda done: self._end(key, done))
        return await asyncio.shield(task)

    def _end(self, key: tuple[str, _Question], task: asyncio.Task[Any]) -> None:
        del self._under_way[key]
        if not task.cancelled():
            task.exception()  # nobody may be left who waits for it

    async def _ask_counted(self, question: _Question, ask: Callable[[str, str], Awaitable[T | None]]) -> T | None:
        """Ask, where there is a place for that. Raises ArchiveBusy."""
        outcome = FAILED
        try:
            async with self._place(question.tenant):
                await self._ready()
                found = await ask(question.tenant, question.digits)
            outcome = MISS if found is None else HIT
        except ArchiveBusy:
            outcome = REFUSED
            raise
        finally:
            self._server.watcher.archive_asked(outcome)
        if found is None and not self._history.ids.made(question.digits):
            self._note_unknown(question)
        return found

    @asynccontextmanager
    async def _place(self, tenant: str) -> AsyncGenerator[None]:
        if self._asked.total() >= self._concurrency or self._asked[tenant] >= self._share:
            raise ArchiveBusy
        self._asked[tenant] += 1
        try:
            yield
        finally:
            self._asked[tenant] -= 1
            if not self._asked[tenant]:
                del self._asked[tenant]

    def _is_unknown(self, question: _Question) -> bool:
        until = self._unknown.get(question)
        if until is None or until > monotonic():
            return until is not None
        del self._unknown[question]
        return False

    def _note_unknown(self, question: _Question) -> None:
        if len(self._unknown) >= MOST_UNKNOWN:
            self._unknown.clear()
        self._unknown[question] = monotonic() + self._unknown_seconds

    # --- what the archive says ---------------------------------------------------------------------------------------

    async def way(self, tenant: str, digits: str) -> ArchivedWay | None:
        """The way to the turn with these digits; None where it isn't there, was deleted, or is in no tree that is
        whole. Raises also ChainTooLong for one that is longer than any that the store continues.
        """
        return await self._looked_for(tenant, digits, self._way)

    async def found(self, tenant: str, digits: str, *, remains: bool = False) -> ArchivedWay | None:
        """The turn with these digits alone; None as from `way`, but that with `remains` a deleted one will do that
        others continue. Memory holds only the ids of those above it.
        """
        return await self._looked_for(tenant, digits, self._alone, remains)

    async def _away(self, tenant: str, root: str, here: Collection[str], most: int) -> AwayBranches:
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

    async def _fate(self, tenant: str, digits: str) -> Fate:
        """The fate of a turn that Redis lacks. All turns of a deleted tree were deleted with it."""
        keys, id = self._keyspace.keys(tenant, digits), id_of(digits)
        asked_ms = await self._now(keys)

        async def look(scan: Scan) -> tuple[str, bool]:
            path = await scan.path(id)
            return (path[0], False) if path else ("", scan.index.is_gone(id) or bool(scan.index.gone_trees))

        root, gone = await self._keeping.look(tenant, digits, look)
        gone = gone or bool(root and await self._is_gone(keys, digits_of(root), asked_ms, remains=False))
        erased = await self._marks.erased_until(tenant, anew=True)
        return Fate(asked_ms, FENCE_MS, there=bool(root) and not gone, gone=gone, erased=erased)

    async def _looked_for(self, tenant: str, digits: str, turns: _Reading, remains: bool = False) -> ArchivedWay | None:
        keys = self._keyspace.keys(tenant, digits)
        asked_ms = await self._now(keys)

        async def look(scan: Scan) -> tuple[Sequence[str], int, Sequence[Saved], bool]:
            path = await scan.path(id_of(digits), remains=remains)
            if not path:
                return (), 0, (), False
            found = await turns(scan, path)
            return path, scan.index.entries[path[-1]].created, found, scan.index.is_continued(found[-1].id)

        path, created, found, continued = await self._keeping.look(tenant, digits, look)
        root = digits_of(path[0]) if path else ""
        erased = await self._marks.erased_until(tenant) if found else 0
        if not found or created <= erased or await self._is_gone(keys, root, asked_ms, remains):
            return None
        told = [as_of(turn, erased) for turn in found]
        doubted = len(told) - (0 if remains or found[-1].id != path[-1] else 1)
        noted = await self._as_noted(keys, root, told, doubted)
        archived = Archived(asked_ms, FENCE_MS, root, noted[-1].deleted, FROM_ARCHIVE, continued)
        return ArchivedWay(noted, archived, path)

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

    async def _way(self, scan: Scan, path: Sequence[str]) -> Sequence[Saved]:
        found = await self._portion(scan, path)
        if len(found) < len(path):
            raise ChainTooLong(path[-1])
        return found

    async def _portion(self, scan: Scan, path: Sequence[str], after: str = "") -> Sequence[Saved]:
        """The turns of a path behind one, or from its root on: as many as memory holds at once, and one at least."""
        entries = [scan.index.entries[id] for id in path]
        if (
            len(path) > self._history.max_depth
            or sum(entry.messages for entry in entries[:-1]) >= self._history.max_chain_bytes
        ):
            raise ChainTooLong(path[-1])
        begin = end = path.index(after) + 1 if after else 0
        content, most = 0, WITH_RESPONSES * self._history.max_chain_bytes
        while end < len(path) and (end == begin or content + entries[end].payload <= most):
            content += entries[end].payload
            end += 1
        scan.keep(content)
        return await scan.turns(path[begin:end])

    async def _alone(self, scan: Scan, path: Sequence[str]) -> Sequence[Saved]:
        return await scan.turns(path[-1:])

    async def _kept_as_noted(self, tenant: str, tree: KeptTree) -> KeptTree:
        """A tree as Redis knows it, too."""
        shard = self._keyspace.keys(tenant, tree.root).shard
        noted, whole = shard.changes_of(tenant, tree.root), TREE + tree.root
        async with self._server.operation() as operation:
            here, gone, fenced, changing = await operation.row(
                ("ZSCORE", shard.trees, f"{tenant}/{tree.root}"),
                ("ZSCORE", noted, whole),
                ("EXISTS", shard.fence_of(tenant, whole)),
                ("EXISTS", noted),
                at=noted,
            )
        is_gone = gone is not None or bool(fenced)
        return tree._replace(here=round(float(here or 0)), changing=bool(changing), gone=is_gone)

    async def _now(self, keys: TurnKeys) -> int:
        return await self._server.run(Operation.now_us, keys.shard.clock) // 1000

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
        if _ms(now) > asked_ms + FENCE_MS:
            raise ArchiveUnavailable(f"it took longer than {FENCE_MS / 1000:g} s, within which deletions are known")
        return bool(fenced) or any(score is not None for score in scores)

    # --- the way back ------------------------------------------------------------------------------------------------

    async def _bring_back(self, tenant: str, digits: str) -> bool | None:
        """Bring a turn back with all above it, in portions; None where the archive has no such turn."""
        last = ""

        async def store(way: ArchivedWay) -> None:
            nonlocal last
            await self._store(tenant, way)
            last = way.turns[-1].id

        while last != id_of(digits):
            look = partial(self._looked_for, tenant, digits, partial(self._portion, after=last))
            if not await self._in_time(digits, look, store):
                return None
        return True

    async def _in_time(
        self,
        digits: str,
        look: Callable[[], Awaitable[ArchivedWay | None]],
        act: Callable[[ArchivedWay], Awaitable[None]],
    ) -> bool:
        """Have `act` work with what `look` finds in the archive of the turn with these digits, again where that is
        outdated by then; False where it finds nothing. Raises the errors of both, ArchiveContended.
        """
        for _ in range(TRIES):
            way = await look()
            if way is None:
                return False
            with suppress(ParentNotFound):
                try:
                    await act(way)
                    return True
                except Outdated:  # a server that lost all that it knew would not note what is deleted next
                    shard = self._history.keyspace.shard(digits)
                    await begin_archive_in(self._history.server, shard, self._after_seconds)
        raise ArchiveContended(f"what the archive said was outdated {TRIES} times")

    async def _store(self, tenant: str, way: ArchivedWay) -> None:
        """Raises Outdated, ParentNotFound where a turn went again before the next one came, and as `bring_back`."""
        for row in rows(way.turns):
            words = await store_row(self._history, tenant, row, way.archived)
            stored = next((at for at, word in enumerate(words) if word not in THERE), len(words))
            for turn in row[stored:]:  # for the first of these there was no room
                await bring_back(self._history, tenant, turn, way.archived)


def _ms(time: Sequence[bytes]) -> int:
    """The time of a reply to TIME, in ms."""
    return int(time[0]) * 1000 + int(time[1]) // 1000
