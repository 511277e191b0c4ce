"""Containers where the store, or the sandbox, is not as it should be: what is left, what counts, and what is said."""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from typing import Any

import msgspec
import pytest

from service.api.outcome import HostedCall, Outcome
from service.api.tools.callee import Hosted
from service.backoff import Backoff
from service.entrance import Entry
from service.errors import ApiError, InvalidRequest
from service.features.python.containers import CONTAINERS, FRESH_SECONDS, VERSION, Containers, file_id
from service.features.python.interpreter import PythonRun
from service.features.python.shapes import WantedContainer
from service.features.sandbox.port import (
    Cell,
    Full,
    NoFile,
    OpenedSession,
    SessionFile,
    SessionGone,
    SessionLimits,
    Unusable,
)
from service.process import Settings
from service.responses.attachments import AttachedFile, Attachments
from store.errors import ArchiveUnavailable, NewerFormat, StoreError, StoreUnavailable
from store.history.history import ConversationHistoryStore
from store.history.records import TenantRecords
from store.redis.connection import connect
from tests.support.sandbox.sandboxes import bare
from tests.support.waiting import until

TENANT = "ada"


class Away(TenantRecords):
    """Records of a store that goes away."""

    away = False

    def _ask(self) -> None:
        if self.away:
            raise StoreUnavailable("it is away")

    async def get(self, tenant: str, id: str) -> bytes | None:
        self._ask()
        return await super().get(tenant, id)

    async def keep(self, tenant: str, id: str, record: bytes, before: bytes = b"", *, under_way: bool = False) -> bool:
        self._ask()
        return await super().keep(tenant, id, record, before, under_way=under_way)


class Clock:
    """A clock that is set."""

    now = 1_000.0

    def __call__(self) -> float:
        return self.now


class Sandbox:
    """Sessions that print their code; while one runs, time goes on and its store may go away."""

    def __init__(self, records: Away, clock: Clock) -> None:
        self.records, self.clock = records, clock
        self.status: Any = "ok"
        self.seconds, self.runs = 0.0, 0
        self.sessions: list[str] = []
        self.room = 2
        self.starts, self.first_good_start = 0, 1
        self.opening = asyncio.Event()
        self.opening.set()
        self.waiting = False
        self.written = set[tuple[str, str]]()

    async def start(self) -> None:
        self.starts += 1
        if self.starts < self.first_good_start:
            raise Unusable("it is not there yet")

    async def open(self, session: str, tenant: str, limits: SessionLimits, *, lasting: bool = False) -> OpenedSession:
        self.waiting = True
        await self.opening.wait()
        if len(self.sessions) == self.room:
            raise Full("there is no room")
        if session not in self.sessions:
            self.sessions.append(session)
        return OpenedSession("/mnt/data")

    async def run(self, session: str, call: str, code: str) -> Cell:
        if session not in self.sessions:
            raise SessionGone("there is none")
        self.runs += 1
        self.clock.now += self.seconds
        self.records.away = code == "away"
        return Cell(self.status, code)

    async def stop(self, session: str, call: str) -> None: ...

    async def close(self, session: str) -> None:
        self.sessions.remove(session)

    async def files(self, session: str) -> list[SessionFile]:
        return []

    async def read(self, session: str, path: str) -> AsyncIterator[bytes]:
        yield b""

    async def write(self, session: str, path: str, content: AsyncIterator[bytes]) -> SessionFile:
        async for _ in content:
            pass
        self.written.add((session, path))
        return SessionFile(path, 0, 0)

    async def remove(self, session: str, path: str) -> None: ...

    async def aclose(self) -> None: ...


@pytest.fixture
async def records(settings: Settings) -> AsyncIterator[Away]:
    store = ConversationHistoryStore(connect(settings.redis_url), prefix=settings.redis_prefix)
    yield Away(store, CONTAINERS)
    await store.close()


@pytest.fixture
def sandbox(records: Away) -> Sandbox:
    return Sandbox(records, Clock())


@pytest.fixture
def containers(records: Away, sandbox: Sandbox) -> Containers:
    return Containers(records, sandbox, "here", sandbox.clock)


async def called(containers: Containers, code: str, id: str) -> Outcome:
    return await PythonRun(containers, TENANT).call(call_of(id, code))


def call_of(id: str, code: str, *files: str, begun: bool = False) -> HostedCall:
    tool = Hosted(id, "python", True, "python", WantedContainer(None, None, files).encode())
    return HostedCall("ci_1", tool, code, begun=begun)


class Uploads(Attachments):
    """A file, which can be read unless `away` says otherwise."""

    def __init__(self, away: Callable[[], Awaitable[object]] | None = None) -> None:
        self.away = away

    async def find(self, entry: Entry, id: str) -> AttachedFile:
        return AttachedFile("a.csv", 1, self._content())

    async def _content(self) -> AsyncIterator[bytes]:
        if self.away is not None:
            await self.away()
        yield b"1"


async def test_a_call_runs_once_and_other_code_that_was_sampled_again_in_its_place_runs_too(records: Away) -> None:
    with bare() as sandbox:
        containers = Containers(records, sandbox, "here", Clock())
        await containers.start()
        counting, id = "x = globals().get('x', 0) + 1; x", containers.new_id(TENANT)
        told = [(await called(containers, code, id)).told for code in (counting, counting, "x * 10")]
        await sandbox.aclose()
    assert told == ["1\n", "1\n", "10\n"]


@pytest.mark.parametrize(("status", "ended"), [("ok", "completed"), ("lost", "failed")])
async def test_code_that_ran_counts_though_nobody_can_note_it(
    containers: Containers, sandbox: Sandbox, caplog: pytest.LogCaptureFixture, status: str, ended: str
) -> None:
    sandbox.status, sandbox.seconds = status, 2 * FRESH_SECONDS
    outcome = await called(containers, "away", containers.new_id(TENANT))

    assert (outcome.status, outcome.told.startswith("away")) == (ended, True)
    assert "was not noted" in caplog.text


async def test_where_the_store_is_away_before_no_code_runs(
    containers: Containers, sandbox: Sandbox, records: Away
) -> None:
    records.away = True
    outcome = await called(containers, "1", containers.new_id(TENANT))

    assert (outcome.status, sandbox.runs) == ("failed", 0)
    assert "was not run" in outcome.told


async def test_no_session_is_left_that_nobody_knows_of(containers: Containers, records: Away, sandbox: Sandbox) -> None:
    records.away = True
    with pytest.raises(StoreUnavailable):
        await containers.open(TENANT, containers.new_id(TENANT))

    assert sandbox.sessions == []


async def test_of_a_deleted_container_no_word_is_left_in_the_store(containers: Containers, records: Away) -> None:
    id = containers.new_id(TENANT)
    await containers.open(TENANT, id, name="ada's taxes")
    assert b"taxes" in (await records.get(TENANT, id) or b"")
    await containers.delete(TENANT, id)
    assert b"taxes" not in (await records.get(TENANT, id) or b"")
    assert [each.deleted for _, each in await containers.all(TENANT, deleted=True)] == [True]


async def test_who_goes_while_a_session_is_opened_leaves_it_behind(containers: Containers, sandbox: Sandbox) -> None:
    sandbox.opening.clear()
    id = containers.new_id(TENANT)
    response = asyncio.create_task(called(containers, "1", id))
    await until(lambda: sandbox.waiting)
    response.cancel()
    await asyncio.wait([response])
    sandbox.opening.set()

    await until(lambda: containers.all(TENANT), wanted=lambda found: [each for each, _ in found] == [id])
    assert sandbox.sessions == [id]


@pytest.mark.parametrize("kind", [StoreUnavailable, ArchiveUnavailable])
async def test_a_container_without_all_of_its_files_runs_no_code(
    containers: Containers, sandbox: Sandbox, kind: type[StoreError]
) -> None:
    async def fail() -> None:
        raise kind("it is away")

    uploads = Uploads(fail)
    run, asked = PythonRun(containers, TENANT, uploads), call_of(containers.new_id(TENANT), "1", "file-a")
    assert ((await run.call(asked)).status, sandbox.runs, sandbox.sessions) == ("failed", 0, [])

    uploads.away = None
    assert (await run.call(asked)).status == "completed"
    assert sandbox.written == {(sandbox.sessions[0], "/mnt/data/a.csv")}


async def test_files_of_one_name_are_all_in_a_container(containers: Containers, sandbox: Sandbox) -> None:
    id = containers.new_id(TENANT)
    outcome = await PythonRun(containers, TENANT, Uploads()).call(call_of(id, "1", "file-a", "file-b", "file-c"))
    assert outcome.status == "completed"
    assert sandbox.written == {(id, f"/mnt/data/{name}") for name in ("a.csv", "2-a.csv", "3-a.csv")}


async def test_a_file_that_went_since_it_was_listed_is_not_found(
    containers: Containers, sandbox: Sandbox, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def listed(session: str) -> list[SessionFile]:
        return [SessionFile("/mnt/data/a.csv", 1, 0)]

    async def gone(session: str, path: str) -> None:
        raise NoFile("there is no file")

    id = containers.new_id(TENANT)
    await called(containers, "1", id)
    monkeypatch.setattr(sandbox, "files", listed)
    monkeypatch.setattr(sandbox, "remove", gone)
    with pytest.raises(ApiError, match="not found") as refused:
        await containers.remove(TENANT, id, file_id(id, "/mnt/data/a.csv"))
    assert refused.value.status == 404


async def test_who_goes_on_for_a_process_that_died_amid_the_files_of_a_container_begins_with_them(
    containers: Containers, sandbox: Sandbox
) -> None:
    died, id = asyncio.Event(), containers.new_id(TENANT)

    async def die() -> None:
        died.set()
        await asyncio.Event().wait()

    first = asyncio.create_task(PythonRun(containers, TENANT, Uploads(die)).call(call_of(id, "1", "file-a")))
    await died.wait()
    second = PythonRun(containers, TENANT, Uploads())
    assert (await second.call(call_of(id, "1", "file-a", begun=True))).status == "completed"
    assert sandbox.written == {(id, "/mnt/data/a.csv")}
    first.cancel()


async def test_no_container_is_on_record_that_has_no_session(containers: Containers, sandbox: Sandbox) -> None:
    sandbox.room = 0
    outcome = await called(containers, "1", containers.new_id(TENANT))

    assert (outcome.status, outcome.told) == ("failed", "Error: The code was not run: there is no room.")
    assert await containers.all(TENANT) == []


async def test_a_container_expires_once_it_was_idle_for_its_minutes(containers: Containers, sandbox: Sandbox) -> None:
    id = containers.new_id(TENANT)
    await containers.open(TENANT, id, minutes=5)
    sandbox.clock.now += 299
    assert await containers.found(TENANT, id)
    sandbox.clock.now += 1
    with pytest.raises(InvalidRequest, match="expired"):
        await containers.found(TENANT, id)


async def test_a_container_lives_on_whose_code_ran_for_longer_than_it_may_be_idle(
    containers: Containers, sandbox: Sandbox
) -> None:
    id, sandbox.seconds = containers.new_id(TENANT), 65
    await containers.open(TENANT, id, name="sums", minutes=1)
    assert [(await called(containers, "1", id)).told for _ in range(2)] == ["1", "1"]


async def test_a_sandbox_that_comes_after_the_service_is_used_from_then_on(records: Away, sandbox: Sandbox) -> None:
    sandbox.first_good_start = 4
    containers = Containers(records, sandbox, "there", lambda: 1_000.0, Backoff(0.001, 0.01))
    await containers.start()
    assert not containers.usable

    await containers.start_later()
    assert (containers.usable, sandbox.starts) == (True, 4)


async def test_a_container_of_a_later_release_is_left_alone(containers: Containers, records: Away) -> None:
    later, own = containers.new_id(TENANT), containers.new_id(TENANT)
    await containers.open(TENANT, own)
    stored = await records.get(TENANT, own)
    assert stored is not None
    newer = msgspec.msgpack.encode(msgspec.msgpack.decode(stored) | {"version": VERSION + 1, "lives_on": True})
    await records.keep(TENANT, later, newer)

    assert [id for id, _ in await containers.all(TENANT)] == [own]
    for work in (containers.found, containers.touch, containers.use, containers.delete):
        with pytest.raises(NewerFormat):
            await work(TENANT, later)
    await containers.lose(TENANT, later)
    for _ in range(CONTAINERS.most - 2):
        await records.keep(TENANT, containers.new_id(TENANT), stored)
    with pytest.raises(Full, match=f"may have {CONTAINERS.most} containers"):
        await containers.open(TENANT, containers.new_id(TENANT))
    assert await records.get(TENANT, later) == newer
