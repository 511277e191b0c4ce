"""A store and its archive on a machine on which either is put back from a copy, or lost, at any time.

All scripts and backends are the real ones. The model knows what was acknowledged. After a fault it looks which turns
are left in memory or in the archive, and which deletions the archive doesn't know any more. From then on:

- a turn that is left is readable, or refused with the reason; it is never unknown
- a deleted turn is never readable, unless somebody has accepted an older copy in which it isn't deleted
- a copy that lacks something is not taken before somebody accepts it
"""

import asyncio
import shutil
import tempfile
import uuid
from collections.abc import Coroutine
from contextlib import suppress
from pathlib import Path
from typing import Any, NamedTuple, cast

import pytest
from hypothesis import note
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, rule
from redis.asyncio import Redis

from store.archive.opening import open_archive
from store.backup import ownership
from store.backup.archiving.keeping import Keeping, Scan
from store.backup.archiving.store_archive import StoreArchive
from store.backup.heads import ArchiveHead
from store.backup.upkeep.reconciling import Reconciler
from store.errors import ArchiveForeign, ArchiveShared, ArchiveWentBack, ChainTooLong, NotFound, StoreFull
from store.history.caps import Caps
from store.history.history import ConversationHistoryStore
from store.keys import digits_of
from store.redis.connection import connect
from tests.support.archive.back import gone_back, remembered
from tests.support.store.audit import complaints
from tests.support.store.sample import TENANT, turn
from tests.support.store.servers import sweep

FEW = Caps(responses=5, touch_seconds=0)
ANY = st.integers(0, 999)
NEWEST = 6
SHM = "/dev/shm"
"""Where the archive's folder is, as no disk has to be waited for there."""
ROUNDS = 50
"""More than it takes to archive all of it."""


class Process(NamedTuple):
    """A process that has the store and its archive."""

    store: ConversationHistoryStore
    archive: StoreArchive

    async def archive_all(self) -> None:
        """Archive all, and note what is older."""
        for _ in range(ROUNDS):
            if not (await self.archive.archive_due()).trees and not await self.archive.note():
                return
        raise AssertionError("it never ends")

    async def close(self) -> None:
        await self.archive.close()
        await self.store.close()


class TruthMachine(RuleBasedStateMachine):
    """What users, operators and faults do, in any order."""

    url: str

    @initialize()
    def begin(self) -> None:
        self.loop = asyncio.new_event_loop()
        self.prefix = f"test-{uuid.uuid4().hex}"
        self.folder = Path(tempfile.mkdtemp(prefix="harmonium-truth-", dir=SHM))
        self.turns: list[str] = []
        self.gone = set[str]()
        self.undone = set[str]()
        """Deleted turns that may be readable again, as somebody has accepted that."""
        self.lost = set[str]()
        """Turns of which nothing was left after a fault."""
        self.lacking, self.undoing = set[str](), set[str]()
        """Those that an older copy of the archive would lose, or bring back, once it is accepted."""
        self.archive_copy: Path | None = None
        self.redis_copy: dict[bytes, bytes] | None = None
        self.unheard = set[str]()
        """Turns that another Redis has deleted since this one was there: the archive alone knows that."""
        self.both = set[str]()
        """The sides that were put back since a process was there: with both nobody can know."""
        self.process: Process | None = None
        self.run(self._redis_open())
        self.run(self._start())

    async def _redis_open(self) -> None:
        self.redis = cast(Redis, connect(self.url))

    def run(self, work: Coroutine[Any, Any, object]) -> None:
        self.loop.run_until_complete(work)

    # --- users -------------------------------------------------------------------------------------------------------

    @rule(which=ANY, more=st.integers(1, 5), archived=st.booleans())
    def create(self, which: int, more: int, archived: bool) -> None:
        """Continue turns, and begin trees, which makes others leave memory."""
        for at in range(more if self.process is not None else 0):
            self.run(self._create(self._turn(which + at) if (which + at) % 2 else None))
        if archived:
            self.archive()

    async def _create(self, parent: str | None) -> None:
        store = self._store
        id = store.new_id(parent)
        with suppress(StoreFull, NotFound, ArchiveForeign, ChainTooLong):
            await store.append(TENANT, turn(id, parent, text=f"turn {len(self.turns)}"))
            self.turns.append(id)
            note(f"turn {len(self.turns) - 1} is stored")

    @rule(which=ANY, erase=st.booleans(), archived=st.booleans())
    def delete(self, which: int, erase: bool, archived: bool) -> None:
        """Delete a turn."""
        if self.process is not None and (id := self._turn(which)):
            self.run(self._delete(self._store, id, erase))
        if archived:
            self.archive()

    async def _delete(self, store: ConversationHistoryStore, id: str, erase: bool = False) -> None:
        with suppress(NotFound, ArchiveForeign):
            await store.forget(TENANT, id, erase=erase)
            self.gone.add(id)
            self.undone.discard(id)
            note(f"turn {self.turns.index(id)} is deleted")

    @rule(which=ANY)
    def read(self, which: int) -> None:
        """Read a turn, and judge what is said of it."""
        if self.process is not None and (id := self._turn(which)):
            self.run(self._judge(self._store, id))

    async def _judge(self, store: ConversationHistoryStore, id: str) -> None:
        name = f"turn {self.turns.index(id)}"
        try:
            await store.get(TENANT, id)
        except NotFound:
            assert id in self.gone | self.lost | self.undone, f"{name} is unknown"
        except ArchiveForeign:
            return
        else:
            assert id not in self.gone or id in self.undone, f"{name} is deleted, and readable"

    @rule()
    def archive(self) -> None:
        """Archive all that waits."""
        if self.process is not None:
            self.run(self._archive(self.process))

    async def _archive(self, process: Process) -> None:
        with suppress(ArchiveForeign):
            await process.archive_all()

    # --- operators and faults ----------------------------------------------------------------------------------------

    @rule(gently=st.booleans(), which=ANY)
    def stop(self, gently: bool, which: int) -> None:
        """End the process, or kill it, one time in three."""
        if which % 3 == 0:
            self.run(self._stop(gently))

    async def _stop(self, gently: bool) -> None:
        process, self.process = self.process, None
        if process is None:
            return
        if not gently:
            process.archive._leads = False  # so nothing is given back
        await process.close()
        note(f"the process is {'stopped' if gently else 'killed'}")

    @rule()
    def start(self) -> None:
        """Start a process, which is refused where the archive is an older copy."""
        if self.process is None:
            self.run(self._start())

    async def _start(self) -> None:
        process = await self._open(self.prefix)
        try:
            await process.archive.archive_due()
        except ArchiveWentBack:
            note("an older copy is refused")
            await process.close()
            return
        note("a process starts")
        self.process = process
        self.unheard.clear()
        if self.both == {"archive", "redis"}:
            self.lost |= self.lacking
            self.undone |= self.undoing
            self.lacking, self.undoing = set(), set()
        self.both.clear()

    async def _open(self, prefix: str, watched_seconds: float = 0.0) -> Process:
        store = ConversationHistoryStore(connect(self.url), prefix=prefix, caps=FEW, timeout_seconds=15)
        archive = open_archive("sqlite", self.folder)
        reconcile = Reconciler(store, archive).shard
        seconds: dict[str, Any] = {"after_seconds": 0.0, "beat_seconds": 0.0, "lease_seconds": 0.001}
        return Process(
            store, StoreArchive(store, archive, reconcile=reconcile, watched_seconds=watched_seconds, **seconds)
        )

    @rule(which=ANY)
    def accept(self, which: int) -> None:
        """Accept the archive as it is, one time in two."""
        if which % 2:
            self.run(self._accept())

    async def _accept(self) -> None:
        await self._stop(gently=True)
        process = await self._open(self.prefix)
        try:
            older = await ownership.accept(process.store.server, process.store.keyspace, process.archive.archive)
        except ArchiveForeign:  # a Redis that lost all that it knew
            return
        finally:
            await process.close()
        if older:
            note("an older copy is accepted")
            self.lost |= self.lacking
            self.undone |= self.undoing
            self.lacking, self.undoing = set(), set()
            self.both.clear()

    @rule(which=ANY)
    def copy_archive(self, which: int) -> None:
        """Copy the folder of the archive, one time in three."""
        if which % 3:
            return
        if self.archive_copy is not None:
            shutil.rmtree(self.archive_copy)
        self.archive_copy = Path(tempfile.mkdtemp(prefix="harmonium-truth-", dir=SHM))
        shutil.copytree(self.folder, self.archive_copy / "copy")
        note("the archive is copied")

    @rule(which=ANY)
    def copy_redis(self, which: int) -> None:
        """Copy what Redis has, one time in two."""
        if which % 2 == 0:
            self.run(self._copy_redis())

    async def _copy_redis(self) -> None:
        self.redis_copy = await remembered(self.redis, self.prefix)
        note("Redis is copied")

    @rule(which=ANY)
    def put_archive_back(self, which: int) -> None:
        """Put an older copy of the archive in its place, one time in three."""
        if which % 3 or self.archive_copy is None:
            return
        self.run(self._stop(gently=False))
        shutil.rmtree(self.folder)
        shutil.copytree(self.archive_copy / "copy", self.folder)
        note("the archive is put back")
        self.run(self._fault("archive"))

    @rule(which=ANY)
    def lose_the_file_of_the_shard(self, which: int) -> None:
        """Lose a file of the archive, one time in five."""
        if which % 5:
            return
        self.run(self._stop(gently=False))
        for file in (self.folder / "archive").glob("00.db*"):
            file.unlink()
        note("the file of the shard is lost")
        self.run(self._fault("archive"))

    @rule(which=ANY)
    def put_redis_back(self, which: int) -> None:
        """Put an older copy of Redis in its place, one time in two."""
        if which % 2 == 0 and self.redis_copy is not None:
            self.run(self._put_redis_back(self.redis_copy))

    @rule(which=ANY)
    def wipe_redis(self, which: int) -> None:
        """Put an empty Redis in its place, one time in five: deletions that it had not archived are undone."""
        if which % 5 == 0:
            self.run(self._put_redis_back({}))

    async def _put_redis_back(self, copy: dict[bytes, bytes]) -> None:
        await self._stop(gently=False)
        await gone_back(self.redis, self.prefix, copy)
        note("Redis is put back")
        await self._fault("redis")

    async def _fault(self, side: str) -> None:
        """Look what is left of each turn, and of each deletion."""
        self.both.add(side)
        lost, undone = set[str](), set[str]()
        archive = open_archive("sqlite", self.folder)
        for id in self.turns:
            in_memory = bool(await self.redis.exists(f"{self.prefix}:{{00}}:t:{TENANT}:node:{digits_of(id)}"))

            async def path(scan: Scan, id: str = id) -> list[str] | None:
                return await scan.path(id)

            archived = await Keeping(archive).look(TENANT, digits_of(id), path) is not None
            if not archived and not in_memory and id not in self.gone:
                lost.add(id)
            if id in self.gone and (archived or (in_memory and id in self.unheard)):
                undone.add(id)
            if side == "redis" and in_memory and id in self.gone and not await self._knows_deletion(archive, id):
                self.undone.add(id)  # it was never archived: a minute's deletions are lost with Redis
        await archive.close()
        if side == "archive":
            self.lacking, self.undoing = lost, undone
            self.undone |= undone & self.unheard
        else:
            self.lost |= lost - self.lacking
            self.undone |= undone - self.undoing

    async def _knows_deletion(self, archive: Any, id: str) -> bool:
        async def known(scan: Scan) -> bool:
            await scan.all()
            return scan.index.is_gone(id) or (id not in scan.index.entries and bool(scan.index.gone_trees))

        return await Keeping(archive).look(TENANT, digits_of(id), known)

    @rule(which=ANY)
    def another_redis_takes_the_archive(self, which: int) -> None:
        """Start a process with an empty Redis, one time in three: refused while the first one is there, else it reads
        all and deletes.
        """
        if which % 3 == 0:
            self.run(self._another())

    async def _another(self) -> None:
        prefix = f"test-{uuid.uuid4().hex}"
        other = await self._open(prefix, watched_seconds=60.0 if self.process else 0.01)
        try:
            await self._use(other)
        finally:
            await other.close()
            await gone_back(self.redis, prefix, {})

    async def _use(self, other: Process) -> None:
        if self.process is not None:
            await self._refused(other, self.process)
            return
        if self.lacking or self.undoing or self.both:
            return  # an empty Redis knows nothing: what an older copy lacks, it can't miss
        await other.archive.archive_due()
        if self.turns:
            self.unheard.add(self.turns[-1])
            await self._delete(other.store, self.turns[-1])
        await other.archive_all()
        note("another Redis has used the archive")

    async def _refused(self, other: Process, first: Process) -> None:
        """Whenever the other one has read the head, the first one raises it."""
        heads = other.archive._heads
        read = heads.read

        async def read_and_wait(number: int) -> ArchiveHead:
            head = await read(number)
            with suppress(ArchiveWentBack):
                await first.archive.archive_due()
            return head

        heads.read = read_and_wait  # type: ignore[method-assign]
        with pytest.raises((ArchiveShared, ArchiveWentBack)):
            await other.archive.open()

    # --- the end -----------------------------------------------------------------------------------------------------

    @property
    def _store(self) -> ConversationHistoryStore:
        assert self.process is not None
        return self.process.store

    def _turn(self, which: int) -> str | None:
        return self.turns[-1 - which % min(len(self.turns), NEWEST)] if self.turns else None

    def teardown(self) -> None:
        if hasattr(self, "redis"):
            self.run(self._end())
            self.loop.close()
            shutil.rmtree(self.folder)
            if self.archive_copy is not None:
                shutil.rmtree(self.archive_copy)

    async def _end(self) -> None:
        try:
            if self.process is None:
                await self._start()
            if self.process is None:
                await self._accept()
                await self._start()
            assert self.process is not None, "what was accepted is refused"
            await self.process.archive_all()
            for id in self.turns:
                await self._judge(self.process.store, id)
            assert await complaints(self.redis, self.prefix) == []
        finally:
            if self.process is not None:
                await self.process.close()
            await sweep(self.redis, self.prefix)
            await self.redis.aclose()
