"""A store with an archive, as hypothesis tries it: whatever comes between whatever, turns are never lost, and what was
deleted never comes back.

Archivers, readers, who brings turns back, who imports them and some who delete stop before each step in the archive and
in the server, and go on in any order: some die there, some find the archive away before or after it did what it was
asked, and some are very late. What users do otherwise happens in between. All scripts are the real ones, on a real
server.
"""

import asyncio
import uuid
from collections.abc import AsyncIterator, Awaitable, Callable, Coroutine
from contextlib import asynccontextmanager, suppress
from functools import partial
from typing import Any, cast

from hypothesis import note
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, rule
from redis.asyncio import Redis

from store.archive.archive import Archive, ArchiveListener
from store.archive.memory import ArchiveMemory
from store.archive.port import Stored
from store.backup.archiving.archiver import Archiver
from store.backup.archiving.keeping import Keeping
from store.backup.archiving.shards import begin_archive, note_older
from store.backup.archiving.store_archive import ArchivedTurns
from store.backup.records import Saved
from store.backup.turns import bring_in, look_up, take_out
from store.errors import ArchiveUnavailable, ChainTooLong, NotFound, ParentNotFound, StoreFull, StoreUnavailable
from store.history.caps import Caps
from store.history.elsewhere import Archived
from store.history.history import ConversationHistoryStore
from store.keys import digits_of, id_of
from store.redis.connection import Operation, Server, connect
from store.turn import digest_of
from tests.support.archive.kept import archive_one
from tests.support.store.audit import complaints
from tests.support.store.sample import TENANT, turn, with_pictures
from tests.support.store.servers import sweep

FEW = Caps(responses=4, touch_seconds=0)
IDLE = Caps(responses=4, idle_seconds=0.000_001, idle_grace_seconds=0, touch_seconds=0)
"""All that is not being used is idle."""

GOES_ON, FAILS, LOSES = "goes on", "fails", "loses"
"""What becomes of a step: it is made, the archive is away before it, or away before it could reply."""

ANY = st.integers(0, 999)
"""Which of those that there are: how many depends on what came before whom, which a server decides."""

NEWEST = 6
DRAINS = 500
"""More rounds than it takes until all is archived."""


SHARED = b"seen in every turn" * 9
"""A picture that all turns show."""


def own_picture(id: str) -> bytes:
    """A picture that one turn alone shows."""
    return id.encode() * 9


class Gate:
    """Where tasks that were begun under it wait until they may make their next step."""

    def __init__(self) -> None:
        self.waiting: dict[asyncio.Task[None], asyncio.Future[str]] = {}
        self._tasks = set[asyncio.Task[None]]()
        self._arrived = asyncio.Event()

    async def begin(self, work: Coroutine[Any, Any, None]) -> None:
        """Begin some work, up to its first step."""
        task = asyncio.get_running_loop().create_task(work)
        self._tasks.add(task)
        await self._settled(task)

    async def step(self, task: asyncio.Task[None], how: str) -> None:
        """Have a task make its next step."""
        self.waiting.pop(task).set_result(how)
        await self._settled(task)

    async def kill(self, task: asyncio.Task[None]) -> None:
        """End a task where it stands."""
        self.waiting.pop(task)
        task.cancel()
        await self._settled(task)

    async def __call__(self) -> str:
        """Wait for the next step, which what was not begun under the gate makes at once."""
        task = cast("asyncio.Task[None]", asyncio.current_task())
        if task not in self._tasks:
            return GOES_ON
        self.waiting[task] = asyncio.get_running_loop().create_future()
        self._arrived.set()
        return await self.waiting[task]

    async def _settled(self, task: asyncio.Task[None]) -> None:
        while task not in self.waiting and not task.done():
            arrived = asyncio.ensure_future(self._arrived.wait())
            await asyncio.wait({task, arrived}, return_when=asyncio.FIRST_COMPLETED)
            arrived.cancel()
            self._arrived.clear()
        if task.done():
            self._tasks.discard(task)
            with suppress(asyncio.CancelledError):
                task.result()


class GatedArchive:
    """An archive in memory."""

    def __init__(self, gate: Gate) -> None:
        self._gate = gate
        self._values: dict[str, Stored] = {}
        self._puts = 0
        self.memory = ArchiveMemory(1 << 40, small_bytes=1)
        self.listener = ArchiveListener()

    async def get(self, key: str) -> Stored | None:
        if await self._gate() != GOES_ON:
            raise ArchiveUnavailable("it is away")
        return self._values.get(key)

    async def put(self, key: str, value: bytes, *, only_if: str | None) -> str | None:
        how = await self._gate()
        if how == FAILS:
            raise ArchiveUnavailable("it is away")
        there = self._values.get(key)
        if (None if there is None else there.etag) != only_if:
            return None
        self._puts += 1
        self._values[key] = Stored(value, str(self._puts))
        if how == LOSES:
            raise ArchiveUnavailable("it is away now")
        return str(self._puts)


class GatedServer:
    """A server each of whose operations is a step."""

    run, command, row = Server.run, Server.command, Server.row

    def __init__(self, server: Server, gate: Gate) -> None:
        self._server, self._gate = server, gate

    def __getattr__(self, name: str) -> Any:
        return getattr(self._server, name)

    @asynccontextmanager
    async def operation(self, *, longer: float = 0.0) -> AsyncIterator[Operation]:
        await self._gate()
        async with self._server.operation(longer=longer) as operation:
            yield operation


class Deleting(ArchivedTurns):
    """The caller that asks for a deletion makes it in its own task, as the gate steps tasks."""

    async def delete(
        self, tenant: str, digits: str, delete: Callable[[Archived], Awaitable[None]], *, remains: bool = False
    ) -> bool:
        look = partial(self.found, tenant, digits, remains=remains)
        return await self._in_time(digits, look, lambda way: delete(way.archived))


class ArchiveMachine(RuleBasedStateMachine):
    """What users, archivers and crashes do, in any order."""

    url: str
    part_bytes = 0
    """Of trees in parts so small, of which no more is held than one and the ends; 0: as they are."""

    @initialize(before=st.lists(ANY, max_size=4))
    def begin(self, before: list[int]) -> None:
        """Some turns are older than the archive."""
        self.loop = asyncio.new_event_loop()
        self.run(self._begin(before))

    async def _begin(self, before: list[int]) -> None:
        self.prefix = f"test-{uuid.uuid4().hex}"
        self.gate = Gate()
        archive = cast(Archive, GatedArchive(self.gate))
        self.store = ConversationHistoryStore(connect(self.url), prefix=self.prefix, caps=FEW, timeout_seconds=15)
        late = ConversationHistoryStore(connect(self.url), prefix=self.prefix, caps=FEW, timeout_seconds=15)
        self.late = late
        late.server = cast(Server, GatedServer(late.server, self.gate))
        self.archiver = Archiver(late.server, late.keyspace, archive)
        self.away = late.elsewhere = Deleting(late, archive, after_seconds=0, unknown_seconds=0)
        if self.part_bytes:
            for each in (self.archiver, self.away):
                each._keeping = Keeping(archive, self.part_bytes, ahead=1, window=0)
        self.idle = ConversationHistoryStore(
            connect(self.url), prefix=self.prefix, caps=IDLE, pin_seconds=IDLE.idle_seconds / 2, timeout_seconds=15
        )
        self.turns: list[str] = []
        self.exported: dict[str, Saved] = {}
        self.parents: dict[str, str | None] = {}
        self.gone = set[str]()
        self.forgotten = set[str]()
        """Turns of which somebody was told that he has deleted them."""
        self.doomed = set[str]()
        """Turns that somebody began to delete, or the roots of trees: they may be there or not."""
        for which in before:
            await self._append(self._turn(which) if which % 4 else None)
        await begin_archive(self.late.server, self.late.keyspace, 0)

    def run(self, work: Coroutine[Any, Any, object]) -> None:
        self.loop.run_until_complete(work)

    @rule(which=ANY, more=st.integers(1, 4), archived=st.booleans())
    def append(self, which: int, more: int, archived: bool) -> None:
        """Continue turns, or begin trees. Once they are `archived`, as all else is then, they may leave the store."""
        for at in range(which, which + more):
            self.run(self._append(self._turn(at) if at % 4 else None))
        if archived:
            self.run(self._archive_all())

    async def _append(self, parent: str | None) -> None:
        id = self.store.new_id(parent)
        with suppress(StoreFull, ParentNotFound, ChainTooLong):
            said = turn(id, parent, text=f"turn {len(self.turns)}")
            await self.store.append(TENANT, with_pictures(said, SHARED, own_picture(id)))
            self.exported[id] = await take_out(TENANT, await look_up(self.store, TENANT, id))
            self.turns.append(id)
            self.parents[id] = parent
            self._tell(f"{self._name(id)} is stored below {self._name(parent)}")

    @rule(which=ANY, erase=st.booleans())
    def delete(self, which: int, erase: bool) -> None:
        """Delete any turn, one time in two, be it in the store or not; half of the time step by step."""
        if which % 2 == 0 and self.turns:
            self.run(self._maybe_late(which // 2, self._delete(self.turns[which // 4 % len(self.turns)], erase)))

    async def _maybe_late(self, which: int, work: Coroutine[Any, Any, None]) -> None:
        await (self.gate.begin(work) if which % 2 else work)

    async def _delete(self, id: str, erase: bool) -> None:
        self.doomed.add(id)
        told = set(self.gone)
        with suppress(NotFound, ArchiveUnavailable):
            await self.late.forget(TENANT, id, erase=erase)
            assert id not in told | self.forgotten, "what was deleted is deleted again"
            self.forgotten.add(id)
            self.gone.add(id)
            self._tell(f"{self._name(id)} is {'erased' if erase else 'deleted'}")

    @rule(which=ANY)
    def delete_a_tree(self, which: int) -> None:
        """Delete the tree of any turn, one time in eight, as a turn."""
        if which % 8 == 0 and self.turns:
            self.run(self._maybe_late(which // 8, self._delete_tree(self.turns[which // 16 % len(self.turns)])))

    async def _delete_tree(self, id: str) -> None:
        root = self._root(id)
        self.doomed.add(root)
        with suppress(NotFound, ArchiveUnavailable):
            await self.late.forget_tree(TENANT, id)
            self.gone.update(each for each in self.turns if self._root(each) == root)
            self._tell(f"the tree of {self._name(id)} is deleted")

    def _root(self, id: str) -> str:
        while (parent := self.parents[id]) is not None:
            id = parent
        return id

    def _name(self, id: str | None) -> str:
        return f"turn {self.turns.index(id)}" if id in self.turns else "none"

    def _tell(self, what: str) -> None:
        """Say what happens, for the report of what fails."""
        note(what)

    def _turn(self, which: int) -> str | None:
        """One of the newest, so that much is done with the same ones."""
        return self.turns[-1 - which % min(len(self.turns), NEWEST)] if self.turns else None

    @rule(which=ANY)
    def archive(self, which: int) -> None:
        """Begin to archive one of the trees that are due."""
        self.run(self.gate.begin(self._archive(which)))

    async def _archive(self, which: int) -> None:
        (shard,) = self.store.keyspace.all_shards()
        if due := await self.archiver.due(shard, 10):
            tree = due[which % len(due)]
            self._tell(f"the tree of {self._name(id_of(tree.root))} is to be archived")
            with suppress(ArchiveUnavailable):
                self._tell(f"that of {self._name(id_of(tree.root))} lacks {await archive_one(self.archiver, tree)}")

    async def _archive_all(self) -> None:
        (shard,) = self.store.keyspace.all_shards()
        for _ in range(DRAINS):
            if not (due := await self.archiver.due(shard, 10)):
                break
            await archive_one(self.archiver, due[0])

    @rule()
    def note_older(self) -> None:
        """Begin to note the next tree from before the archive."""
        self.run(self.gate.begin(self._note_older()))

    async def _note_older(self) -> None:
        left = await note_older(self.late.server, self.late.keyspace, trees=1)
        self._tell(f"trees from before the archive are {'noted as far as the next' if left else 'all noted'}")

    @rule(which=ANY)
    def leave_unused(self, which: int) -> None:
        """Have a sweep take what is idle, one time in three."""
        if which % 3 == 0:
            self._tell("a sweep takes what is idle")
            self.run(self.idle.sweep())

    @rule(which=ANY)
    def bring_back(self, which: int) -> None:
        """Begin to bring a turn back."""
        if id := self._turn(which):
            self.run(self.gate.begin(self._bring_back(id)))

    async def _bring_back(self, id: str) -> None:
        with suppress(ArchiveUnavailable, StoreFull):
            there = await self.away._bring_back(TENANT, digits_of(id))
            self._tell(f"{self._name(id)} {'is back' if there else 'is not there'}")

    @rule(which=ANY)
    def bring_in(self, which: int) -> None:
        """Begin to import a turn that was exported before all that happened to it."""
        if id := self._turn(which):
            self.run(self.gate.begin(self._bring_in(id)))

    async def _bring_in(self, id: str) -> None:
        # StoreUnavailable: others have evicted it again, three times
        with suppress(ArchiveUnavailable, StoreFull, StoreUnavailable, ParentNotFound):
            self._tell(f"{self._name(id)} is imported: {await bring_in(self.late, TENANT, self.exported[id])}")

    @rule(which=ANY)
    def read(self, which: int) -> None:
        """Begin to read a turn."""
        if id := self._turn(which):
            self.run(self.gate.begin(self._read(id)))

    async def _read(self, id: str) -> None:
        was_gone = id in self.gone
        with suppress(ArchiveUnavailable):
            assert not (was_gone and await self._is_there(id)), "what was deleted is told of"

    async def _is_there(self, id: str) -> bool:
        try:
            await self.store.get(TENANT, id)
        except NotFound:
            return await self.away.way(TENANT, digits_of(id)) is not None
        return True

    @rule(which=ANY, how=st.sampled_from([GOES_ON] * 8 + [FAILS, LOSES]), steps=st.integers(1, 8))
    def go_on(self, which: int, how: str, steps: int) -> None:
        """Have some work make steps."""
        task = self._some(which)
        for _ in range(steps):
            if task in self.gate.waiting:
                self.run(self.gate.step(task, how))

    @rule(which=ANY)
    def die(self, which: int) -> None:
        """End some work where it stands, one time in three."""
        if which % 3 == 0 and (task := self._some(which)):
            self.run(self.gate.kill(task))

    def _some(self, which: int) -> asyncio.Task[None] | None:
        waiting = list(self.gate.waiting)
        return waiting[which % len(waiting)] if waiting else None

    def teardown(self) -> None:
        if hasattr(self, "store"):
            self.run(self._end())
            self.loop.close()

    async def _end(self) -> None:
        try:
            while self.gate.waiting:  # those who are very late
                await self.gate.step(next(iter(self.gate.waiting)), GOES_ON)
            while await note_older(self.store.server, self.store.keyspace):
                pass
            await self._archive_all()
            await self._judge()
            await self._sweep()
            await self._lose_all()
            await self._judge()
        finally:
            await self.store.close()
            await self.late.close()
            await self.idle.close()

    async def _judge(self) -> None:
        there = {id for id in self.turns if await self._is_there(id)}
        back = [self._name(id) for id in self.turns if id in there & self.gone]
        assert back == [], "what was deleted is back"
        left = self.gone | there | self.doomed
        lost = [self._name(id) for id in self.turns if id not in left and self._root(id) not in self.doomed]
        assert lost == [], "turns are lost"
        for id in there - self.doomed:
            wanted = {digest_of(data): data for data in (SHARED, own_picture(id))}
            assert await self.late.pictures(TENANT, id, wanted) == wanted, "a turn has lost its pictures"

    async def _sweep(self) -> None:
        """What is in Redis adds up, once what nothing needs is gone. What came back deleted, for a turn that found
        no room below it, waits for that no longer.
        """
        redis = connect(self.url)
        place = f"{self.prefix}:{{00}}:tombstones"
        for member in await redis.zrange(place, 0, -1):
            await redis.zadd(place, {member: 1})
        await self.store.sweep()
        found = await complaints(cast(Redis, redis), self.prefix)
        await sweep(cast(Redis, redis), self.prefix)
        await redis.aclose()
        assert found == [], f"what is stored does not add up: {found}"

    async def _lose_all(self) -> None:
        """The server loses all: what is archived is all that there is, deleted or not."""
        redis = connect(self.url)
        await sweep(cast(Redis, redis), self.prefix)
        await redis.aclose()
