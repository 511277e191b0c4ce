"""Containers where the store, or the sandbox, is not as it should be: what is left, and what is said."""

import asyncio
from collections.abc import AsyncIterator

import pytest

from service.api.containers import Wanted
from service.api.outcome import HostedCall, Outcome
from service.api.tools.callee import Hosted
from service.backoff import Backoff
from service.sandbox.port import Cell, File, Full, Gone, Image, Limits, Opened, Unusable
from service.settings.settings import Settings
from service.tools.containers import Containers
from service.tools.python import OUTPUTS, PythonRun
from store.errors import StoreUnavailable
from store.history.containers import Containers as Records
from store.history.history import ConversationHistoryStore
from store.redis.connection import connect
from tests.support.waiting import until

TENANT = "ada"


class Away(Records):
    """Records of a store that goes away."""

    away = False

    async def keep(self, tenant: str, id: str, record: bytes, before: bytes = b"") -> bool:
        if self.away:
            raise StoreUnavailable("it is away")
        return await super().keep(tenant, id, record, before)


class Sandbox:
    """Sessions that print their code; while one runs, its store may go away."""

    def __init__(self, records: Away) -> None:
        self.records = records
        self.sessions: list[str] = []
        self.room = 2
        self.starts, self.first_good_start = 0, 1
        self.images: tuple[Image, ...] = ()
        self.opening = asyncio.Event()
        self.opening.set()
        self.waiting = False

    async def start(self) -> None:
        self.starts += 1
        if self.starts < self.first_good_start:
            raise Unusable("it is not there yet")

    async def open(self, session: str, tenant: str, limits: Limits, *, lasting: bool = False) -> Opened:
        self.waiting = True
        await self.opening.wait()
        if len(self.sessions) == self.room:
            raise Full("there is no room")
        self.sessions.append(session)
        return Opened("/mnt/data")

    async def run(self, session: str, call: str, code: str) -> Cell:
        if session not in self.sessions:
            raise Gone("there is none")
        self.records.away = code == "away"
        return Cell("ok", code, self.images)

    async def stop(self, session: str, call: str) -> None: ...

    async def close(self, session: str) -> None:
        self.sessions.remove(session)

    async def files(self, session: str) -> list[File]:
        return []

    async def read(self, session: str, path: str) -> AsyncIterator[bytes]:
        yield b""

    async def write(self, session: str, path: str, content: AsyncIterator[bytes]) -> File:
        return File(path, 0, 0)

    async def remove(self, session: str, path: str) -> None: ...

    async def aclose(self) -> None: ...


@pytest.fixture
async def records(settings: Settings) -> AsyncIterator[Away]:
    store = ConversationHistoryStore(connect(settings.redis_url), prefix=settings.key_prefix)
    yield Away(store)
    await store.close()


@pytest.fixture
def sandbox(records: Away) -> Sandbox:
    return Sandbox(records)


@pytest.fixture
def containers(records: Away, sandbox: Sandbox) -> Containers:
    return Containers(records, sandbox, "here", lambda: 1_000.0)


async def called(containers: Containers, code: str, id: str) -> Outcome:
    tool = Hosted(id, "python", True, "python", Wanted().encode())
    return await PythonRun(containers, TENANT).call(HostedCall("ci_1", tool, code))


async def test_code_that_ran_counts_though_nobody_can_note_it(containers: Containers, records: Away) -> None:
    id = containers.new_id(TENANT)
    outcome = await called(containers, "away", id)

    assert (outcome.status, outcome.told) == ("completed", "away")


async def test_no_session_is_left_that_nobody_knows_of(containers: Containers, records: Away, sandbox: Sandbox) -> None:
    records.away = True
    with pytest.raises(StoreUnavailable):
        await containers.open(TENANT, containers.new_id(TENANT))

    assert sandbox.sessions == []


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


async def test_no_container_is_on_record_that_has_no_session(containers: Containers, sandbox: Sandbox) -> None:
    sandbox.room = 0
    outcome = await called(containers, "1", containers.new_id(TENANT))

    assert (outcome.status, outcome.told) == ("failed", "Error: The code was not run: there is no room.")
    assert await containers.all(TENANT) == []


async def test_a_sandbox_that_comes_after_the_service_is_used_from_then_on(records: Away, sandbox: Sandbox) -> None:
    sandbox.first_good_start = 4
    containers = Containers(records, sandbox, "there", lambda: 1_000.0, Backoff(0.001, 0.01))
    await containers.start()
    assert not containers.usable

    await until(lambda: containers.usable)
    assert sandbox.starts == 4
    await containers.aclose()


async def test_a_service_that_ends_waits_no_more_for_its_sandbox(records: Away, sandbox: Sandbox) -> None:
    sandbox.first_good_start = 2
    containers = Containers(records, sandbox, "there", lambda: 1_000.0, Backoff(3_600.0, 3_600.0))
    await containers.start()
    await containers.aclose()

    assert sandbox.starts == 1


async def test_the_images_of_a_response_are_shown_up_to_a_bound(containers: Containers, sandbox: Sandbox) -> None:
    sandbox.images = (Image(b"a" * (2 << 20)), Image(b"b" * (2 << 20)), Image(b"c"))
    run, id = PythonRun(containers, TENANT), containers.new_id(TENANT)
    tool = Hosted(id, "python", True, "python", Wanted().encode())
    shown: list[list[str]] = []
    for number in range(9):
        call = HostedCall(f"ci_{number}", tool, "1", include=frozenset((OUTPUTS,)))
        outputs = (await run.call(call)).shown["outputs"]
        shown.append([each["type"] for each in outputs])
        assert "too large to be shown" in outputs[0]["logs"]

    assert shown == [["logs", "image", "image"]] * 7 + [["logs", "image"]] * 2
