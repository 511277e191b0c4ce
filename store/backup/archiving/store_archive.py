"""The archive of a store: its proof, its archiver, and the reads of turns that have left memory.

One archive has the turns of one store, which has no other (store/backup/ownership.py): a process that names another
archive is refused. All processes that share a store share its archive. One of them at a time archives a shard: a lease
says which, to spare the others work. Two that archive at once do no harm.

A history reads through to the archive (archived_turns.py).
"""

import asyncio
from collections.abc import AsyncGenerator, Awaitable, Callable, Sequence
from contextlib import asynccontextmanager, suppress
from time import monotonic
from typing import NamedTuple

from store.archive.archive import Archive
from store.backup import ownership
from store.backup.archiving.archived_turns import CONCURRENCY, ArchivedTurns, Find
from store.backup.archiving.archiver import AFTER_SECONDS, LATER_SECONDS, Archiver, DueTree, WrittenTree
from store.backup.archiving.shards import (
    SCANNED,
    begin_archive,
    begin_archive_in,
    note_older,
    tell_away,
    tell_full,
    waiting_in,
)
from store.backup.heads import Heads, Standing
from store.backup.ownership import BEAT_SECONDS, WATCHED_SECONDS, Joined
from store.errors import (
    ArchiveContended,
    ArchiveDamaged,
    ArchiveForeign,
    ArchiveUnavailable,
    ArchiveWentBack,
    NewerFormat,
    StoreUnavailable,
)
from store.history.history import ConversationHistoryStore
from store.keys import ShardKeys, id_of
from store.layout import shared_secret
from store.redis import scripts

TREES = 64
"""How many trees that are due are looked for at once."""

AT_ONCE = 16
"""How many trees of a shard are archived side by side."""

BATCHES = 50
"""After how many such looks another shard has its turn."""

NEARLY_FULL = 0.9
"""From which part of a cap on there is little room."""

MOST_LACKED = 0.25
"""The share of such a shard's trees that the archive may lack: with more, all are archived before they are due. A
full shard is nothing special, as memory is there to be used; a shard that can evict little refuses turns soon.
"""

LEASE_SECONDS = 5.0
"""For how long one process archives a shard after it has said so."""

REASON = 200
"""How many characters of the reason for that are kept."""

AWAY_SECONDS = 30.0
"""How long the shards know that the archive was away, where that lets them evict trees that it lacks."""


Reconcile = Callable[[int], Awaitable[bool]]


class Backlog(NamedTuple):
    """The backlog of a shard: how many trees the archive lacks, and for how many seconds the first one has been due."""

    trees: int = 0
    seconds: float = 0.0


class StoreArchive:
    """An archive for a store. All raise StoreUnavailable and ArchiveUnavailable."""

    def __init__(
        self,
        history: ConversationHistoryStore,
        archive: Archive,
        *,
        reconcile: Reconcile,
        after_seconds: float = AFTER_SECONDS,
        evicts: bool = False,
        concurrency: int = CONCURRENCY,
        lease_seconds: float = LEASE_SECONDS,
        later_seconds: float = LATER_SECONDS,
        beat_seconds: float = BEAT_SECONDS,
        watched_seconds: float = WATCHED_SECONDS,
        find: Find | None = None,
    ) -> None:
        """In a shard of Redis that went back in time, `reconcile` deletes again all that was deleted since, and returns
        whether none is left. Trees are archived `after_seconds`. With `evicts` the store may evict trees that the
        archive lacks while the archive is away. `concurrency` is how many turns are looked for at once. The history
        asks it from now on.
        """
        self.archive = archive
        self.history, self._server, self._keyspace = history, history.server, history.keyspace
        self._after_seconds, self._evicts = after_seconds, evicts
        self._lease_ms, self._later_seconds = round(lease_seconds * 1000), later_seconds
        self._reconcile, self._heads = reconcile, Heads(self._server, self._keyspace, archive)
        self._beat_seconds, self._watched_seconds = beat_seconds, watched_seconds
        self._next_beat: dict[int, float] = {}
        self._looked_at: dict[int, bytes] = {}
        """How far the keys of each shard's server were looked at."""
        self._has_written = False
        self._archiver = Archiver(self._server, self._keyspace, archive, heads=self._heads)
        self.turns = history.elsewhere = ArchivedTurns(
            history,
            archive,
            ready=self._usable,
            make_room=self._archive_some,
            after_seconds=after_seconds,
            concurrency=concurrency,
            find=find,
        )
        self._owner = history.token()
        self._leads = False
        self._opening: asyncio.Task[None] | None = None
        self._joined: Joined | None = None
        self._is_open = False
        self.foreign: ArchiveForeign | None = None
        """The reason why the archive, which was the store's, is it no more, or is an older copy."""
        self.warnings: Sequence[str] = ()
        """Warnings for the operator about the archive, once it is open."""

    async def open(self) -> None:
        """Prove that the archive keeps its promises, is the store's and no older copy of that, and repeat the deletions
        in shards of Redis that went back in time. A later call costs nothing; a call meanwhile waits for the same
        proof, and fails with it.

        Raises ArchiveUnfit, ArchiveForeign.
        """
        if self._is_open:
            return
        if self._opening is None:
            self._opening = asyncio.create_task(self._open())
            self._opening.add_done_callback(self._end_opening)
        await asyncio.shield(self._opening)

    async def _usable(self) -> None:
        """Return once turns can be asked for. Raises at once where the archive was none of the store's: `archive_due`
        looks again, and it may take long to know whose it is.
        """
        if self.foreign is not None:
            raise self.foreign.with_traceback(None)
        await self.open()

    async def _open(self) -> None:
        self.warnings = await self.archive.probe()
        joined = await ownership.join(self.history, self.archive)
        async with self._doubting():
            await ownership.watch(self._server, self._keyspace, self._heads, self._watched_seconds)
            for number in range(self._keyspace.shards):
                await self._heads.read(number)
                await self._catch_up(number)
            await ownership.believe(self._server, self._keyspace)
            # the first shard's head last: until then another process watches, too
            for number in reversed(range(self._keyspace.shards if self._heads.silent else 1)):
                if await self._catch_up(number):
                    await self._heads.raise_(number)
        self._joined, self._is_open, self.foreign = joined, True, None

    @asynccontextmanager
    async def _doubting(self) -> AsyncGenerator[None]:
        """In the block, an archive that isn't the store's is closed; all processes doubt an older copy, and know of a
        disk that is full.
        """
        try:
            yield
        except ArchiveUnavailable as error:
            if error.disk_full:
                await tell_full(self._server, self._keyspace, full=True)
            raise
        except ArchiveForeign as error:
            self._is_open, self.foreign = False, error
            if isinstance(error, ArchiveWentBack):
                await ownership.doubt(self._server, self._keyspace, error)
            raise

    def _end_opening(self, task: asyncio.Task[None]) -> None:
        self._opening = None
        if not task.cancelled():
            task.exception()  # nobody may be left who waits for it

    async def secret(self) -> bytes:
        """The store's secret. A store that has one doesn't wait for the archive. Without one this raises as `open`, and
        ArchiveUnavailable where the archive is away, as the secret may be there.
        """
        if self._joined is None:
            there = await self._server.command("GET", self._keyspace.all_shards()[0].secret)
            if there is not None:
                return await shared_secret(self.history)
            await self.open()
        assert self._joined is not None
        return self._joined.secret

    async def note(self) -> bool:
        """Have the shards note their changes, and the next of their older trees. Returns whether more of these are
        left.
        """
        await begin_archive(self._server, self._keyspace, self._after_seconds)
        return await note_older(self._server, self._keyspace)

    async def archive_due(self) -> Backlog:
        """Archive the due trees of the shards that nobody else archives. Returns the backlog of these shards.

        Raises ArchiveUnfit, ArchiveForeign. Where the archive is away, the shards hear of it if they may evict then.
        """
        try:
            await self.open()
            assert self._joined is not None
            async with self._doubting():
                before = self._heads.redis
                await ownership.keep(self._server, self._keyspace, self._joined.id, self._heads)
                if self._heads.redis != before:  # others watch the head
                    self._next_beat.clear()
                self._has_written = False
                left = [await self._archive_shard(number) for number in range(self._keyspace.shards)]
                if self._has_written:
                    await tell_full(self._server, self._keyspace, full=False)
        except ArchiveUnavailable:
            if self._evicts:
                await tell_away(self._server, self._keyspace, AWAY_SECONDS)
            raise
        return Backlog(sum(each.trees for each in left), max(each.seconds for each in left))

    async def _archive_shard(self, number: int) -> Backlog:
        shard = self._keyspace.all_shards()[number]
        for _ in range(BATCHES):
            if not await self._holds(number):
                await self._standing(number)  # who archives may have another copy, and this process reads of its own
                return Backlog()
            await self._beat(number)
            await self._queue_again(number)
            if not await self._archive_some(shard, early=await self._is_crowded(shard)):
                break
        return await self._backlog(number)

    async def _archive_some(self, shard: ShardKeys, early: bool = True) -> bool:
        """Archive the next trees that are due, or with `early` will be, whoever else does; whether there were any."""
        async with self._doubting():
            return await self._archive_next(shard, early)

    async def _archive_next(self, shard: ShardKeys, early: bool) -> bool:
        if not await self._catch_up(self._keyspace.all_shards().index(shard)):
            return False
        due = await self._archiver.due(shard, TREES)
        if not due and early:
            due = await self._archiver.due(shard, TREES, early=True)
        places, trees, left = asyncio.Semaphore(AT_ONCE), due, dict[DueTree, int]()
        while trees:
            found = await asyncio.gather(*(self._write(tree, places) for tree in trees), return_exceptions=True)
            written = [each for each in found if isinstance(each, WrittenTree)]
            struck = {each.tree: more for each, more in zip(written, await self._archiver.strike(written), strict=True)}
            self._server.watcher.archived(len(struck.keys() - left.keys()))
            for each in found:
                if isinstance(each, BaseException):
                    raise each
            trees = [tree for tree, more in struck.items() if 0 < more < left.get(tree, more + 1)]
            left |= struck
        return bool(due)

    async def _write(self, tree: DueTree, places: asyncio.Semaphore) -> WrittenTree | None:
        """Write the changes of a tree; None where that can't be done."""
        async with places:
            try:
                return await self._archiver.write(tree)
            except (ArchiveContended, ArchiveDamaged, NewerFormat, ValueError) as error:  # ValueError: it is too large
                self._server.watcher.not_archived(id_of(tree.root), str(error))
                await self._put_off(tree, str(error))
                return None

    async def _put_off(self, tree: DueTree, reason: str) -> None:
        shard = self._keyspace.keys(tree.tenant, tree.root).shard
        async with self._server.operation() as operation:
            at = await operation.now_us(shard.clock) // 1000 + round(self._later_seconds * 1000)
            await operation.command("ZADD", shard.unarchived, "XX", at, f"{tree.tenant}/{tree.root}")
            await operation.command("HSET", shard.archive_failed, f"{tree.tenant}/{tree.root}", reason[:REASON])

    async def _catch_up(self, number: int) -> bool:
        """Whether a shard of Redis has none of the deleted turns, as far as the archive was told of them. Raises
        ArchiveWentBack.
        """
        if await self._standing(number) is Standing.REDIS_IS_OLDER:
            if not await self._reconcile(number):
                return False
            await self._heads.catch_up(number)
        return True

    async def _standing(self, number: int) -> Standing:
        """The comparison of a shard's heads. Raises ArchiveWentBack where the archive is older."""
        standing = await self._heads.standing(number)
        if standing is Standing.ARCHIVE_IS_OLDER:
            raise ArchiveWentBack(number, (await self._heads.read(number)).at)
        return standing

    async def _beat(self, number: int) -> None:
        """Now and then, compare a shard that this process archives with the archive as it is; of the first one also say
        that this Redis uses the archive.
        """
        if monotonic() < self._next_beat.get(number, 0.0):
            return
        self._next_beat[number] = monotonic() + self._beat_seconds
        await self._heads.read(number)
        if await self._catch_up(number) and number == 0:
            await self._heads.raise_(number)
            self._has_written = True

    async def _queue_again(self, number: int) -> None:
        """Look at some keys of a shard's server, further ones each time: a tree whose changes are noted, and that lost
        its place in the order of what waits, gets one again.
        """
        shard = self._keyspace.all_shards()[number]
        match = ("MATCH", f"{shard.all_changes}*", "COUNT", SCANNED)
        self._looked_at[number], found = await self._server.command(
            "SCAN", self._looked_at.get(number, b"0"), *match, at=shard.clock
        )
        if found:
            trees = " ".join(key.decode().removeprefix(shard.all_changes) for key in found)
            await self._server.run(scripts.queue_again, shard, members=trees)

    async def _holds(self, number: int) -> bool:
        """Whether this process archives a shard, for a while from now."""
        shard = self._keyspace.all_shards()[number]
        async with self._server.operation() as operation:
            new = await operation.command("SET", shard.archiver, self._owner, "NX", "PX", self._lease_ms)
            if not new and await operation.command("GET", shard.archiver) != self._owner.encode():
                return False
            await operation.command("PEXPIRE", shard.archiver, self._lease_ms)
        self._leads = True
        if new:  # the server may have lost what it knew
            await begin_archive_in(self._server, shard, self._after_seconds)
            self._next_beat.pop(number, None)  # the archiver before has raised the head, too
        return True

    async def _is_crowded(self, shard: ShardKeys) -> bool:
        """Whether a shard is nearly full, and too little of it may leave memory."""
        caps = self.history.caps
        async with self._server.operation() as operation:
            stored = await operation.command("HMGET", shard.usage, "responses", "trees", "bytes")
            lacked = await operation.command("ZCARD", shard.unarchived)
        responses, trees, size = (int(each or 0) for each in stored)
        limits = ((responses, caps.responses), (trees, caps.trees), (size, caps.bytes))
        nearly_full = any(most and number >= NEARLY_FULL * most for number, most in limits)
        return nearly_full and lacked > MOST_LACKED * trees

    async def _backlog(self, number: int) -> Backlog:
        found = await waiting_in(self._server, self._keyspace, number)
        return Backlog(found.trees, max(0.0, found.oldest_seconds - self._after_seconds))

    async def close(self) -> None:
        """Let others archive, and give back all that is held, once nobody asks any more."""
        if self._opening is not None:
            self._opening.cancel()
        # they may in LEASE_SECONDS; the next Redis watches then
        with suppress(StoreUnavailable, ArchiveUnavailable, NewerFormat):
            for number, shard in enumerate(self._keyspace.all_shards() if self._leads else ()):
                async with self._server.operation() as operation:
                    if await operation.command("GET", shard.archiver) != self._owner.encode():
                        continue
                if number == 0 and self._is_open:
                    await self._heads.release()
                await self._server.command("DEL", shard.archiver)
        await self.archive.close()
