"""The work of one process at once: of several tenants none can take all of it, few large bodies are prepared, and who
waits is served in turn.
"""

import asyncio
import socket as sockets
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from openai import InternalServerError, OpenAI
from pydantic import SecretStr

from service.errors import ApiError
from service.metrics.counters import make_metrics
from service.process import Settings
from service.settings.core import ApiKey
from service.shares import RESERVED, Room, Share, aside
from service.web.admission import slots
from service.web.admission.slots import PREPARED_BYTES, SMALL_BODY_BYTES, Admission
from tests.support.service.inside import answer, scripted, serving
from tests.support.service.process import ACME_KEY, GLOBEX_KEY, MODEL, CoreProcess, ServiceProcess, raw_request
from tests.support.service.scraped import scraped
from tests.support.waiting import until, wait_until

LARGE = PREPARED_BYTES // 2


def admission(several: bool = True, bodies: int = 800) -> Admission:
    return Admission(make_metrics(), requests=80, followers=80, bodies=bodies, several=lambda: several)


def filled(share: Share, tenant: str, amount: int = 1) -> int:
    """How much a tenant gets that takes whatever fits."""
    taken = 0
    while share.fits(tenant, amount):
        share.take(tenant, amount)
        taken += amount
    return taken


@pytest.mark.parametrize("limit", [2, 8, 80])
def test_who_comes_finds_room_however_few_there_are(limit: int) -> None:
    share = Share(limit, several=lambda: True)
    kept = -(-limit // RESERVED)
    assert filled(share, "first") == limit - kept
    assert filled(share, "second") == kept
    assert not share.fits("third", 1)
    share.give_back("first", 1)
    assert filled(share, "third") == 1


@given(st.lists(st.tuples(st.sampled_from("abcd"), st.integers(1, 30), st.booleans()), max_size=200))
def test_it_never_comes_to_more_than_the_limit_and_never_forgets(steps: list[tuple[str, int, bool]]) -> None:
    share, held = Share(100, several=lambda: True), list[tuple[str, int]]()
    for tenant, amount, takes in steps:
        if takes and share.fits(tenant, amount):
            share.take(tenant, amount)
            held.append((tenant, amount))
        elif not takes and held:
            share.give_back(*held.pop(amount % len(held)))
        assert sum(amount for _, amount in held) <= 100
    for each in held:
        share.give_back(*each)
    assert filled(share, "a") == 87


async def test_two_tenants_leave_room_for_a_third_where_each_has_a_part() -> None:
    room, done = Room(80, several=lambda: True, parts=4), asyncio.Event()
    came = list[str]()

    async def stay(tenant: str, amount: int) -> None:
        async with room.space(tenant, amount):
            came.append(tenant)
            await done.wait()

    async with asyncio.TaskGroup() as group:
        for tenant in "ab" * 9:
            group.create_task(stay(tenant, 5))
        group.create_task(stay("c", 100))
        await until(lambda: "c" in came)
        assert sorted(came) == [*"aaaabbbbc"]
        done.set()
    assert len(came) == 19


def test_bodies_have_room_together_until_their_requests_end() -> None:
    gate = admission(several=False)
    with gate.slot("a") as first, gate.slot("a") as second:
        first.take_body(500)
        second.take_body(300)
        with pytest.raises(ApiError, match="HARMONIUM_MAX_BODY_BYTES") as refusal:
            second.take_body(1)
        assert refusal.value.status == 503
        second.take_body(0)
        first.leave()
        second.take_body(1)
        second.follow()
        with gate.slot("a") as third:
            third.take_body(800)


async def test_few_large_bodies_are_prepared_at_once_and_small_ones_never_wait(monkeypatch: pytest.MonkeyPatch) -> None:
    gate, at_work = admission(several=False), list[str]()
    ends = {name: asyncio.Event() for name in "abc"}

    async def prepare(name: str) -> None:
        async with gate.preparing("a", LARGE):
            at_work.append(name)
            await ends[name].wait()

    tasks = [asyncio.create_task(prepare(name)) for name in "abc"]
    await until(lambda: at_work == ["a", "b"])
    async with asyncio.timeout(10), gate.preparing("a", SMALL_BODY_BYTES):
        assert at_work == ["a", "b"]
    with monkeypatch.context() as patch:
        patch.setattr(slots, "PREPARE_SECONDS", 0.01)
        with pytest.raises(ApiError, match="reads too many large requests"):
            await asyncio.wait_for(gate.preparing("a", LARGE).__aenter__(), 10)
    ends["b"].set()
    await until(lambda: at_work == ["a", "b", "c"])
    for end in ends.values():
        end.set()
    await asyncio.gather(*tasks)


async def test_a_large_body_of_another_tenant_is_not_passed_by_many_smaller_ones() -> None:
    gate, going = admission(), True

    async def flood() -> None:
        while going:
            async with gate.preparing("a", PREPARED_BYTES // 16):
                await asyncio.sleep(0)

    tasks = [asyncio.create_task(flood()) for _ in range(20)]
    async with asyncio.timeout(30), gate.preparing("b", PREPARED_BYTES):
        going = False
    await asyncio.gather(*tasks)


async def test_slots_that_one_key_holds_leave_room_for_another(settings: Settings) -> None:
    keys = [ApiKey("acme", SecretStr(ACME_KEY)), ApiKey("globex", SecretStr(GLOBEX_KEY))]
    settings = settings.model_copy(update={"api_keys": keys, "max_concurrent_requests": 8, "admission_wait_seconds": 0})
    async with serving(settings, scripted([answer("Fine.")])) as inside, inside.http() as http:

        async def begun(port: int) -> asyncio.StreamWriter:
            _, writer = await asyncio.open_connection("127.0.0.1", port)
            writer.write(
                b"POST /v1/responses HTTP/1.1\r\nHost: localhost\r\nAuthorization: Bearer %s\r\n"
                b"Content-Type: application/json\r\nContent-Length: 100\r\n\r\n" % ACME_KEY.encode()
            )
            return writer

        writers = [await begun(inside.port) for _ in range(20)]

        async def refused() -> bool:
            answer = await http.post("/v1/responses", json=HI, headers={"authorization": f"Bearer {ACME_KEY}"})
            return answer.status_code == 503

        await until(refused)
        theirs = await http.post("/v1/responses", json=HI, headers={"authorization": f"Bearer {GLOBEX_KEY}"})
        assert theirs.status_code == 200
        for writer in writers:
            writer.close()


async def test_who_waits_for_something_else_leaves_its_room_to_others() -> None:
    gate = admission(several=False)
    async with asyncio.timeout(10), gate.preparing("a", LARGE), gate.preparing("a", LARGE), aside.get()():
        await gate.preparing("a", LARGE).__aenter__()


async def test_who_is_gone_while_it_waits_takes_nothing_along() -> None:
    gate = admission(several=False)
    async with gate.preparing("a", LARGE), gate.preparing("a", LARGE):
        waiting = asyncio.create_task(gate.preparing("a", LARGE).__aenter__())
        await asyncio.sleep(0)
        waiting.cancel()
        await asyncio.wait([waiting])
    async with asyncio.timeout(10), gate.preparing("a", LARGE), gate.preparing("a", LARGE):
        pass


HI: dict[str, Any] = {"model": MODEL, "input": "hi"}
LONG = "Count to 5000."
WAITING = "harmonium_requests_waiting"


def held(service: ServiceProcess, **body: object) -> sockets.socket:
    """A connection with a request that takes the one slot, and has begun to be answered."""
    connection = sockets.create_connection(("127.0.0.1", service.port), timeout=30)
    connection.sendall(raw_request(stream=True, **body))
    assert connection.recv(1)
    return connection


def waiting(service: ServiceProcess, how_many: int) -> None:
    http = service.http()
    wait_until(lambda: scraped(http).value(WAITING), 20, wanted=lambda found: found == how_many)


def asked(service: ServiceProcess) -> OpenAI:
    """A client with connections of its own, so that it may wait beside others."""
    return OpenAI(base_url=f"{service.url}/v1", api_key="none", max_retries=0, timeout=60)


@pytest.fixture(scope="module")
def service(tmp_path_factory: pytest.TempPathFactory) -> Any:
    process = CoreProcess(
        tmp_path_factory.mktemp("full"), max_concurrent_requests=1, admission_wait_seconds=60, demo_tokens_per_second=50
    )
    yield process
    process.stop()


def test_a_request_waits_for_a_slot_while_others_look_and_cancel(service: ServiceProcess) -> None:
    client = service.client()
    made = client.responses.create(model=MODEL, input=LONG, background=True)
    with ThreadPoolExecutor(1) as aside, asked(service) as patient, held(service, input=LONG) as connection:
        last = aside.submit(lambda: patient.responses.create(**HI))
        waiting(service, 1)
        assert client.responses.retrieve(made.id).id == made.id
        assert client.responses.cancel(made.id).status == "cancelled"
        assert client.models.list().data
        assert client.responses.input_tokens.count(**HI).input_tokens
        assert not last.done()
        connection.close()
        assert last.result(30).status == "completed"


def test_a_client_that_leaves_while_it_waits_is_seen_at_once(service: ServiceProcess) -> None:
    with held(service, input=LONG):
        with sockets.create_connection(("127.0.0.1", service.port), timeout=30) as impatient:
            impatient.sendall(raw_request())
            waiting(service, 1)
        waiting(service, 0)
        wait_until(lambda: "status=499" in service.log)
    assert service.client().responses.create(**HI).status == "completed"
    assert "Traceback" not in service.log


def test_a_service_that_stops_refuses_those_that_wait_and_ends_the_rest(start: Callable[..., ServiceProcess]) -> None:
    service = start(max_concurrent_requests=1, admission_wait_seconds=600, demo_tokens_per_second=20)
    with ThreadPoolExecutor(1) as aside, asked(service) as patient, held(service, input="Count to 60.") as connection:
        last = aside.submit(lambda: patient.responses.create(**HI))
        waiting(service, 1)
        service.ask_to_stop()
        with pytest.raises(InternalServerError, match="is stopping") as refused:
            last.result(20)
        assert refused.value.status_code == 503
        assert refused.value.response.headers["retry-after"] == "1"
        assert b"response.completed" in connection.makefile("rb").read()
    assert service.wait() == 0
    assert "Traceback" not in service.log
