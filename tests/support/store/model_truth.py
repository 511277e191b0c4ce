"""A store and its archive, of which either is put back from a copy or lost at any time, and whose processes die, find a
side away, or are late at any step, while others do whatever there is to be done.

All scripts and backends are the real ones. The model knows what was acknowledged. After a fault it looks which turns
are left in memory or in the archive, and which deletions the archive doesn't know any more. From then on:

- a turn that is left is readable, or refused with the reason; it is never unknown
- a deleted turn is never readable, unless somebody has accepted an older copy in which it isn't deleted
- a copy that lacks something is not taken before somebody accepts it
- once all is archived, all of this is true of an empty Redis
"""

import asyncio
import shutil
import tempfile
import uuid
from collections.abc import Callable, Coroutine
from contextlib import suppress
from pathlib import Path
from typing import Any, NamedTuple, TypeVar, cast
from unittest.mock import AsyncMock

from hypothesis import note
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, rule
from redis.asyncio import Redis

from store.archive.opening import open_archive
from store.backup import ownership
from store.backup.archiving.keeping import Keeping, Scan
from store.backup.archiving.store_archive import StoreArchive
from store.backup.records import Saved
from store.backup.turns import bring_in, look_up, take_out
from store.backup.upkeep.reconciling import Reconciler
from store.errors import ArchiveForeign, ArchiveUnavailable, ArchiveWentBack, NotFound, StoreFull, StoreUnavailable
from store.history.caps import Caps
from store.history.history import ConversationHistoryStore
from store.keys import digits_of
from store.redis.connection import connect
from tests.support.archive.back import gone_back, remembered
from tests.support.archive.kept import lose
from tests.support.archive.steps import CALL, tell_of_steps
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

AWAY = (ArchiveForeign, ArchiveUnavailable, StoreUnavailable)
"""How whoever asks is told that a side is away, or is not the store's."""

T = TypeVar("T")
DIES, FAILS = "dies", "fails"
STEPS = st.integers(1, 60)


class Process(NamedTuple):
    """A process that has the store and its archive."""

    store: ConversationHistoryStore
    archive: StoreArchive

    async def archive_all(self) -> None:
        """Archive all, and note what is older."""
        for _ in range(ROUNDS):
            older = await self.archive.note()
            if not (await self.archive.archive_due()).trees and not older:
                return
        raise AssertionError("it never ends")

    async def close(self, *, gently: bool = True) -> None:
        """End it, or kill it: nothing is given back then."""
        self.archive._leads &= gently
        await self.archive.close()
        await self.store.close()


class TruthMachine(RuleBasedStateMachine):
    """What users, operators and faults do, in any order."""

    url: str
    part_bytes = 0
    """Of trees in parts so small, of which no more is held than one and the ends; 0: as they are."""

    @initialize(before=st.lists(ANY, max_size=4))
    def begin(self, before: list[int]) -> None:
        """Some turns are older than the archive."""
        self.loop = asyncio.new_event_loop()
        self.prefix = f"test-{uuid.uuid4().hex}"
        self.folder = Path(tempfile.mkdtemp(prefix="harmonium-truth-", dir=SHM))
        self.turns: list[str] = []
        self.parents: dict[str, str | None] = {}
        self.exported: dict[str, Saved] = {}
        self.gone = set[str]()
        self.doomed = set[str]()
        """Turns that somebody began to delete, or the roots of trees: they may be there or not."""
        self.undone = set[str]()
        """Deleted turns that may be readable again, as somebody has accepted that."""
        self.lost = set[str]()
        """Turns of which nothing was left after a fault."""
        self.lacking, self.undoing = set[str](), set[str]()
        """Those that an older copy of the archive would lose, or bring back, once it is accepted."""
        self.archive_copy: Path | None = None
        self.redis_copy: dict[bytes, bytes] | None = None
        self.both = set[str]()
        """The sides that were put back since a process was there: with both nobody can know."""
        self.is_whole = True
        """Whether neither side was ever put back."""
        self.process: Process | None = None
        self.run(self._begin(before))

    async def _begin(self, before: list[int]) -> None:
        self.redis = cast(Redis, connect(self.url))
        process = self._open()
        for which in before:
            await self._create(process, which)
        await process.close()
        await self._start()

    def run(self, work: Coroutine[Any, Any, T]) -> T:
        return self.loop.run_until_complete(work)

    # --- users -------------------------------------------------------------------------------------------------------

    @rule(which=ANY, more=st.integers(1, 5), archived=st.booleans())
    def create(self, which: int, more: int, archived: bool) -> None:
        """Continue turns, and begin trees, which makes others leave memory."""
        for at in range(more):
            self.do(self._create, which + at)
        if archived:
            self.do(self._archive)

    @rule(which=ANY, archived=st.booleans(), deed=st.sampled_from(["_delete", "_erase", "_delete_a_tree"]))
    def delete(self, which: int, archived: bool, deed: str) -> None:
        """Delete a turn, or one time in six a tree."""
        if deed != "_delete_a_tree" or which % 2:
            self.do(getattr(self, deed), which)
        if archived:
            self.do(self._archive)

    @rule(which=ANY, deed=st.sampled_from(["_read", "_bring_in", "_archive"]))
    def use(self, which: int, deed: str) -> None:
        """Read a turn, and judge what is said of it; or import one, or archive all that waits."""
        self.do(getattr(self, deed), which)

    @rule(
        which=ANY,
        deed=st.sampled_from(["_archive"] * 3 + ["_create", "_delete", "_delete_a_tree", "_read", "_bring_in"]),
        amid=st.dictionaries(
            STEPS,
            st.sampled_from([DIES, FAILS, "_archive", "_create", "_create", "_erase", "_delete_for_good", "_bring_in"]),
            min_size=1,
            max_size=4,
        ),
    )
    def be_late(self, which: int, deed: str, amid: dict[int, str]) -> None:
        """Do something, while others do whole things between two steps of it; or it finds a side away there, or dies
        with its process.
        """
        if self.process is not None:
            self.run(self._be_late(self.process, which, deed, dict(amid)))

    async def _be_late(self, others: Process, which: int, deed: str, amid: dict[int, str]) -> None:
        late, steps, dead = self._open(), 0, False

        async def at(step: str) -> None:
            nonlocal steps, dead
            steps += 1
            what = amid.pop(steps, None)
            dead = dead or what == DIES
            if dead or what == FAILS:
                note(f"{deed} {'dies' if dead else 'fails'} before step {steps}")
                raise (ArchiveUnavailable if step.startswith(CALL) else StoreUnavailable)("it is away")
            if what is not None:
                note(f"before step {steps} of {deed}:")
                await getattr(self, what)(others, which + steps % 2)  # mostly with the same turn

        with suppress(*AWAY):
            late.archive.archive.probe = AsyncMock(return_value=())  # which another process has had
            await late.archive.open()
            tell_of_steps(late.archive, at)
            await getattr(self, deed)(late, which)
        await late.close(gently=not dead)

    def do(self, deed: Callable[[Process, int], Coroutine[Any, Any, None]], which: int = 0) -> None:
        """Have the process do something, if there is one."""
        if self.process is not None:
            self.run(deed(self.process, which))

    async def _create(self, process: Process, which: int) -> None:
        parent = self._turn(which) if which % 2 else None
        id = process.store.new_id(parent)
        with suppress(StoreFull, NotFound, *AWAY):
            await process.store.append(TENANT, turn(id, parent, text=f"turn {len(self.turns)}"))
            self.turns.append(id)
            self.parents[id] = parent
            note(f"{self._name(id)} is stored below {self._name(parent)}")
            self.exported[id] = await take_out(TENANT, await look_up(process.store, TENANT, id))

    async def _delete(self, process: Process, which: int, *, erase: bool = False) -> None:
        if id := self._turn(which):
            self.doomed.add(id)
            with suppress(NotFound, *AWAY):
                await process.store.forget(TENANT, id, erase=erase)
                self._are_gone(id)

    async def _delete_for_good(self, process: Process, which: int) -> None:
        await self._delete(process, which)
        await self._archive(process, which)

    async def _erase(self, process: Process, which: int) -> None:
        await self._delete(process, which, erase=True)

    async def _delete_a_tree(self, process: Process, which: int) -> None:
        if id := self._turn(which):
            root = self._root(id)
            self.doomed.add(root)
            with suppress(NotFound, *AWAY):
                await process.store.forget_tree(TENANT, id)
                self._are_gone(*(each for each in self.turns if self._root(each) == root))

    def _are_gone(self, *ids: str) -> None:
        self.gone.update(ids)
        self.undone.difference_update(ids)
        note(f"{', '.join(map(self._name, ids))} deleted")

    async def _bring_in(self, process: Process, which: int) -> None:
        """Import a turn that was exported before all that happened to it, unless nobody may know of it any more."""
        id = self._turn(which)
        if id in self.exported and self.is_whole:
            with suppress(StoreFull, NotFound, *AWAY):
                note(f"{self._name(id)} is imported: {await bring_in(process.store, TENANT, self.exported[id])}")

    async def _read(self, process: Process, which: int) -> None:
        if id := self._turn(which):
            await self._judge(process, id)

    async def _judge(self, process: Process, id: str) -> None:
        was_gone = id in self.gone - self.undone
        try:
            await process.store.get(TENANT, id)
        except NotFound:
            known = self.gone | self.lost | self.undone | self.doomed
            assert id in known or self._root(id) in self.doomed, f"{self._name(id)} is unknown"
        except AWAY:
            return
        else:
            assert not was_gone, f"{self._name(id)} is deleted, and readable"

    async def _archive(self, process: Process, which: int) -> None:
        with suppress(*AWAY):
            await process.archive_all()

    # --- operators and faults ----------------------------------------------------------------------------------------

    @rule(gently=st.booleans(), which=ANY)
    def stop(self, gently: bool, which: int) -> None:
        """End the process, or kill it, one time in three."""
        if which % 3 == 0:
            self.run(self._stop(gently))

    async def _stop(self, gently: bool) -> None:
        process, self.process = self.process, None
        if process is not None:
            await process.close(gently=gently)
            note(f"the process is {'stopped' if gently else 'killed'}")

    @rule()
    def start(self) -> None:
        """Start a process, which is refused where the archive is an older copy."""
        if self.process is None:
            self.run(self._start())

    async def _start(self) -> None:
        process = self._open()
        try:
            await process.archive.archive_due()
        except ArchiveWentBack:
            note("an older copy is refused")
            await process.close()
            return
        note("a process starts")
        self.process = process
        if self.both == {"archive", "redis"}:
            self._believe()
        self.both.clear()

    def _open(self) -> Process:
        store = ConversationHistoryStore(connect(self.url), prefix=self.prefix, caps=FEW, timeout_seconds=15)
        archive = open_archive("sqlite", self.folder)
        seconds = {"after_seconds": 0.0, "beat_seconds": 0.0, "lease_seconds": 0.001, "watched_seconds": 0.0}
        made = StoreArchive(store, archive, reconcile=Reconciler(store, archive).shard, **seconds)
        if self.part_bytes:
            for each in (made._archiver, made.turns):
                each._keeping = Keeping(archive, self.part_bytes, ahead=1, window=0)
        return Process(store, made)

    @rule(which=ANY)
    def accept(self, which: int) -> None:
        """Accept the archive as it is, one time in two."""
        if which % 2:
            self.run(self._accept())

    async def _accept(self) -> None:
        await self._stop(gently=True)
        process = self._open()
        try:
            older = await ownership.accept(process.store.server, process.store.keyspace, process.archive.archive)
        except ArchiveForeign:  # a Redis that lost all that it knew
            return
        finally:
            await process.close()
        if older:
            note("an older copy is accepted")
            self._believe()
            self.both.clear()

    def _believe(self) -> None:
        """An older copy is taken for what was."""
        self.lost |= self.lacking
        self.undone |= self.undoing
        self.lacking, self.undoing = set(), set()

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
            self.redis_copy = self.run(remembered(self.redis, self.prefix))
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
        self.is_whole = False
        lost, undone = set[str](), set[str]()
        archive = open_archive("sqlite", self.folder)
        for id in self.turns:
            in_memory = bool(await self.redis.exists(f"{self.prefix}:{{00}}:t:{TENANT}:node:{digits_of(id)}"))

            async def path(scan: Scan, id: str = id) -> list[str] | None:
                return await scan.path(id)

            archived = await Keeping(archive).look(TENANT, digits_of(id), path) is not None
            if not archived and not in_memory and id not in self.gone:
                lost.add(id)
            if id in self.gone and archived:
                undone.add(id)
            if side == "redis" and in_memory and id in self.gone and not await self._knows_deletion(archive, id):
                self.undone.add(id)  # it was never archived: a minute's deletions are lost with Redis
        await archive.close()
        if side == "archive":
            self.lacking, self.undoing = lost, undone
        else:
            self.lost |= lost - self.lacking
            self.undone |= undone - self.undoing

    async def _knows_deletion(self, archive: Any, id: str) -> bool:
        async def known(scan: Scan) -> bool:
            await scan.all()
            return scan.index.is_gone(id) or (id not in scan.index.entries and bool(scan.index.gone_trees))

        return await Keeping(archive).look(TENANT, digits_of(id), known)

    # --- the end -----------------------------------------------------------------------------------------------------

    def _turn(self, which: int) -> str | None:
        """One of the newest, so that much is done with the same ones."""
        return self.turns[-1 - which % min(len(self.turns), NEWEST)] if self.turns else None

    def _root(self, id: str) -> str:
        while (parent := self.parents[id]) is not None:
            id = parent
        return id

    def _name(self, id: str | None) -> str:
        return f"turn {self.turns.index(id)}" if id in self.turns else "none"

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
                await self._judge(self.process, id)
            await self._check()
            await self._stop(gently=True)
            await lose(self.redis, self.prefix)
            await self._start()
            assert self.process is not None, "an empty Redis is refused"
            for id in self.turns:
                await self._judge(self.process, id)
        finally:
            await self._stop(gently=True)
            await sweep(self.redis, self.prefix)
            await self.redis.aclose()

    async def _check(self) -> None:
        """What is in Redis adds up, once what nothing needs is gone. What came back deleted, for a turn that found no
        room below it, waits for that no longer.
        """
        place = f"{self.prefix}:{{00}}:tombstones"
        for member in await self.redis.zrange(place, 0, -1):
            await self.redis.zadd(place, {member: 1})
        assert self.process is not None
        await self.process.store.sweep()
        assert await complaints(self.redis, self.prefix) == []
