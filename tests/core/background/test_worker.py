"""The worker among others: what it takes, what it leaves for later, and what nobody else would ever end.

A worker over a real store and an engine that plays a script, without HTTP. A worker that died is a claim that nobody
works on.
"""

import asyncio
import time
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import msgspec
import pytest

from service.api.request import read_create
from service.api.response import decode_response
from service.background import attempt, control
from service.background.timing import Timing
from service.background.worker import Worker
from service.backoff import Backoff
from service.engine.port import EngineBroke, EngineOverloaded, EngineUnavailable
from service.entrance import Entry
from service.harmony.tokens import RETURN, encode
from service.process import close_service, load_settings, open_service
from service.responses.output.journal import FORMAT
from service.responses.service import Caller, Service
from store.embedded import EmbeddedServer
from store.errors import OtherLayout, StoreUnavailable
from store.jobs.jobs import Jobs
from store.jobs.model import LEVELS, JobClaim, Lease, Renewal
from store.keys import shard_of
from store.layout import LAYOUT
from store.turn import Found, Status
from tests.support.engine.scripted import Die, Stall
from tests.support.service.inside import answer, opened, scripted
from tests.support.service.making import queue_response
from tests.support.service.process import MODEL
from tests.support.waiting import until

LEASE_SECONDS = 2.0
"""The leases of jobs whose worker is to lose them."""

PATIENT: dict[str, Any] = {"store_timeout_seconds": 10.0, "lease_seconds": 30.0}
TENANT = "acme"
SECONDS = 20.0
IMPATIENT = Timing(retry_seconds=0.01, poll_seconds=0.2, give_way_seconds=0.2, engine_away=Backoff(0.02, 0.02))


@pytest.fixture
async def redis_url(tmp_path: Path) -> AsyncIterator[str]:
    """A store of the test's own."""
    with EmbeddedServer(tmp_path / "redis") as server:
        yield server.url


@asynccontextmanager
async def opened_service(url: str, engine: Any, **settings: object) -> AsyncIterator[Service]:
    """A service without HTTP."""
    service = open_service(load_settings(redis_url=url, **PATIENT).model_copy(update=settings), engine)
    await service.engine.start()
    try:
        yield service
    finally:
        await close_service(service)


@asynccontextmanager
async def working(service: Service, timing: Timing = IMPATIENT) -> AsyncIterator[Worker]:
    """A worker of the service, until the end of the block."""
    one = Worker(service, ended=lambda id: None, timing=timing)
    task = asyncio.create_task(one.work())
    try:
        yield one
    finally:
        one.stop()
        await task


async def queued(service: Service, shard: int = 0, tier: str = "default", tenant: str = TENANT, **options: str) -> str:
    """A background response in a shard; its id."""
    asked: dict[str, Any] = {"model": MODEL, "input": "hi", "background": True, "stream": True, "service_tier": tier}
    if options:
        asked |= {"stream": False, "background_options": options}
    body = msgspec.json.encode(asked)
    while shard_of((id := service.store.new_id())[5:]) != shard:
        pass
    return await queue_response(service, Caller(Entry(tenant), response_id=id), read_create(body, store=True))


async def found(service: Service, id: str, wanted: Callable[[Found], bool], tenant: str = TENANT) -> Found:
    """The response, once it is as wanted."""
    return await until(lambda: service.store.find(tenant, id), SECONDS, wanted=wanted, passing=StoreUnavailable)


async def over(service: Service, id: str, tenant: str = TENANT) -> Found:
    """The response, once it has ended and is stored."""
    return await found(service, id, lambda response: not response.under_way, tenant)


async def test_a_shard_that_is_always_busy_keeps_no_other_one_waiting(redis_url: str) -> None:
    async with opened_service(redis_url, scripted([answer("hi")]), shards=2, lease_seconds=LEASE_SECONDS) as service:
        id = await queued(service, 0)
        assert [job.lease.id for job in (await service.jobs.claim(0, 1)).jobs] == [id]  # by one who died then
        died = time.monotonic()
        async with working(service):
            while (await service.store.find(TENANT, id)).under_way:
                await queued(service, 1)
                await asyncio.sleep(0.05)
                assert time.monotonic() < died + SECONDS, "the traffic of one shard starves the other"


async def test_urgent_jobs_start_before_all_others_whatever_shards_they_are_in(redis_url: str) -> None:
    shards, over = 8, list[str]()
    engine = scripted(*[[answer("hi")]] * (5 * shards))
    async with opened_service(redis_url, engine, shards=shards, worker_concurrency=1) as service:
        tiers = {
            await queued(service, shard, tier): tier
            for tier in ("flex", "default", "priority")
            for shard in range(shards)
        }
        for window in ("8h", "2h"):
            tiers |= {await queued(service, shard, completion_window=window): window for shard in range(shards)}
        one = Worker(service, ended=over.append, timing=IMPATIENT)
        task = asyncio.create_task(one.work())
        await until(lambda: len(over) == len(tiers), SECONDS)
        one.stop()
        await task
    assert [tiers[id] for id in over] == [
        tier for tier in ("priority", "default", "flex", "2h", "8h") for _ in range(shards)
    ]


PLACES = 4


async def test_a_tenant_with_all_places_gives_one_back_to_another_that_waits(redis_url: str) -> None:
    """And none for more of its own; what gave way goes on once there is room."""
    shards = 4
    engine = scripted(*[[Stall()]] * PLACES, [answer("hi")])
    async with opened_service(redis_url, engine, shards=shards, worker_concurrency=PLACES) as service:
        many = [await queued(service, number % shards) for number in range(PLACES + 1)]
        async with working(service) as worker:
            await until(lambda: worker.running == PLACES, SECONDS)
            other = await queued(service, shards - 1, tenant="globex")
            await over(service, other, "globex")
            await until(lambda: under_way(service, many), SECONDS, wanted=lambda left: len(left) == PLACES - 1)
            assert service.metrics.jobs_handed_back._value.get() == 1


async def under_way(service: Service, ids: list[str]) -> list[str]:
    return [id for id in ids if (await service.store.find(TENANT, id)).under_way]


async def test_what_has_hours_gives_way_to_what_has_none_also_of_its_own_tenant(redis_url: str) -> None:
    engine = scripted([Stall()], [answer("now")], [answer("later")])
    async with opened_service(redis_url, engine, worker_concurrency=1) as service:
        later = await queued(service, completion_window="8h")
        async with working(service):
            await until(lambda: engine.running, SECONDS)
            now = await queued(service, tier="flex")
            assert (await over(service, now)).status is Status.COMPLETED
            assert (await over(service, later)).status is Status.COMPLETED
    assert [generation.priority for generation in engine.generations] == [2, 1, 2]
    assert engine.generations[2].id == f"{later}-2"
    assert service.metrics.jobs_handed_back._value.get() == 1


async def test_responses_that_belong_together_are_in_one_shard_and_go_to_one_server(redis_url: str) -> None:
    engine = scripted(*[[answer("hi")]] * 8)
    async with opened_service(redis_url, engine, shards=16) as service:
        asked = {
            "model": MODEL,
            "input": "hi",
            "background": True,
            "background_options": {"continuation_id": "nightly"},
        }
        request = read_create(msgspec.json.encode(asked), store=True)
        ids = [await queue_response(service, Caller(Entry(TENANT)), request) for _ in range(8)]
        assert len({shard_of(id[5:]) for id in ids}) == 1
        async with working(service):
            for id in ids:
                assert (await over(service, id)).status is Status.COMPLETED
    assert {generation.affinity for generation in engine.generations} == {"nightly"}


async def test_a_worker_without_room_ends_what_somebody_cancelled_who_is_gone(redis_url: str) -> None:
    async with opened_service(
        redis_url, scripted([opened("I"), Stall()]), worker_concurrency=1, lease_seconds=LEASE_SECONDS
    ) as service:
        async with working(service):
            busy = await queued(service)
            await found(service, busy, lambda response: response.status is Status.IN_PROGRESS)
            id = await queued(service)
            assert await service.jobs.cancel(TENANT, id) is not None  # by one who died then
            ended = await over(service, id)
        assert ended.status is Status.CANCELLED
        assert (await service.store.find(TENANT, busy)).under_way


async def test_a_request_that_breaks_the_engine_is_tried_no_more_than_it_may(redis_url: str) -> None:
    engine = scripted([Die(EngineBroke("the vLLM server broke off"))])
    async with opened_service(redis_url, engine, max_attempts=3) as service, working(service):
        ended = await over(service, await queued(service))
    assert ended.status is Status.FAILED
    assert len(engine.generations) == 3


@pytest.mark.parametrize("away", [EngineUnavailable("refused"), EngineOverloaded("full")], ids=["down", "full"])
async def test_an_engine_that_is_away_costs_a_response_no_try_and_no_time(
    redis_url: str, away: EngineUnavailable
) -> None:
    engine = scripted(*[[Die(away)]] * 10, [answer("hi")])
    async with opened_service(redis_url, engine, max_attempts=2, max_run_seconds=60.0) as service:
        id = await queued(service)
        (job,) = (await service.jobs.claim(0, 1)).jobs
        async with service.store.server.operation() as operation:  # it began before it may have, had it run
            await operation.command("HINCRBY", service.store.keyspace.turn(TENANT, id).key("job"), "started", -61_000)
        await service.jobs.hand_back(job.lease, failed=False)
        async with working(service):
            assert (await over(service, id)).status is Status.COMPLETED


async def test_a_worker_takes_no_job_while_its_engine_is_down_not_even_the_one_it_gives_back(redis_url: str) -> None:
    pauses: list[float] = []

    class Watched(Jobs):
        async def hand_back(self, lease: Lease, *, failed: bool, gives_way: bool = False) -> None:
            pauses.append(service.metrics.engine_pauses._value.get())
            await super().hand_back(lease, failed=failed, gives_way=gives_way)

    engine = scripted(*[[Die(EngineUnavailable("down"))]] * 9)
    engine.unready = EngineUnavailable("down")
    async with opened_service(redis_url, engine) as opened:
        service = msgspec.structs.replace(opened, jobs=Watched(opened.store, opened.jobs.limits))
        async with working(service):
            await queued(service)
            await until(lambda: service.metrics.engine_pauses._value.get() > 3, SECONDS)
    assert (len(engine.generations), len(pauses)) == (1, 1)
    assert pauses[0] >= 1  # it paused before it gave the job back


async def test_of_jobs_that_may_have_killed_their_workers_one_is_tried_at_a_time(redis_url: str) -> None:
    async with opened_service(redis_url, scripted([Stall()], [Stall()]), max_attempts=2) as service:
        for _ in range(2):
            job = service.store.keyspace.turn(TENANT, await queued(service)).key("job")
            async with service.store.server.operation() as operation:
                await operation.command("HSET", job, "tries", 1)
        async with working(service):
            await until(
                lambda: service.jobs.queue(0),
                SECONDS,
                wanted=lambda queue: (sum(queue.waiting), queue.running) == (1, 1),
            )


async def test_what_was_lost_right_behind_its_claim_is_not_begun(redis_url: str) -> None:
    asked = asyncio.Event()

    class Lost(Jobs):
        async def renew(self, leases: Sequence[Lease]) -> Renewal:
            asked.set()
            return Renewal(list(leases), [])

    async with opened_service(redis_url, scripted([Stall()])) as opened:
        service = msgspec.structs.replace(opened, jobs=Lost(opened.store, opened.jobs.limits))
        await queued(service)
        async with working(service):
            await until(asked.is_set, SECONDS)
    assert service.metrics.jobs_claimed._value.get() == 0


async def test_a_lease_that_somebody_else_took_over_is_counted_as_lost(redis_url: str) -> None:
    """One that says nothing more learns it by its next renewal."""
    async with opened_service(redis_url, scripted([opened("I"), Stall()]), lease_seconds=LEASE_SECONDS) as service:
        id, counted = await queued(service), service.metrics.registry.get_sample_value
        async with working(service, Timing(poll_seconds=600.0)) as worker:
            await until(lambda: counted("harmonium_event_log_writes_total"), SECONDS)

            async def taken_over() -> object:
                async with service.store.server.operation() as operation:
                    leases = service.store.keyspace.turn(TENANT, id).key("leases")
                    await operation.command("ZADD", leases, 0, f"{TENANT}/{id[5:]}")
                return (await service.jobs.claim(0, 1)).jobs

            await until(taken_over, SECONDS)
            await until(lambda: not worker.running, SECONDS)
            assert counted("harmonium_leases_lost_total") == 1


async def test_a_job_of_a_later_release_is_left_to_who_can_read_it(redis_url: str) -> None:
    async with opened_service(
        redis_url, scripted([answer("hi")]), max_attempts=2, lease_seconds=LEASE_SECONDS
    ) as service:
        id = await queued(service)
        spec = await changed_spec(service, id, lambda blob: b"\xff" + blob[1:])
        async with working(service):
            for _ in range(3):  # as many workers as there are tries, and more
                await found(service, id, lambda response: response.status is Status.IN_PROGRESS)
                await asyncio.sleep(LEASE_SECONDS)
            await changed_spec(service, id, lambda _: spec)
            assert (await over(service, id)).status is Status.COMPLETED


async def test_a_job_whose_log_is_of_a_later_release_is_left_to_who_can_read_it_too(redis_url: str) -> None:
    engine = scripted([opened("I"), Stall()], [[*encode(" am"), RETURN]])
    async with opened_service(redis_url, engine, max_attempts=2, lease_seconds=LEASE_SECONDS) as service:
        id = await queued(service)
        async with working(service):
            await until(lambda: service.metrics.registry.get_sample_value("harmonium_event_log_writes_total"), SECONDS)
        await changed_log(service, id, FORMAT + 1)
        async with working(service) as worker:
            for _ in range(5):  # as many claims as would end it, and more
                await until(lambda: worker.running, SECONDS)
                await until(lambda: not worker.running, SECONDS)
        assert (await service.store.find(TENANT, id)).under_way
        (job,) = (await service.jobs.claim(0, 1)).jobs
        assert job.tries <= 2, "a try that says nothing was counted"
        await service.jobs.hand_back(job.lease, failed=False)
        await changed_log(service, id, FORMAT)
        async with working(service):
            ended = await over(service, id)
    assert (ended.status, len(engine.generations)) == (Status.COMPLETED, 2)
    assert "I am" in str(ended.response)


async def changed_log(service: Service, id: str, version: int) -> None:
    """Give all entries of a log another version, behind the store's back."""
    key = service.store.keyspace.turn(TENANT, id).key("log")
    async with service.store.server.operation() as operation:
        entries = await operation.command("XRANGE", key, "-", "+")
        await operation.command("DEL", key)
        for at, (name, blob) in entries:
            await operation.command("XADD", key, at, name, bytes([version]) + blob[1:])


async def test_a_worker_takes_no_job_of_a_store_that_has_got_another_layout(
    redis_url: str, caplog: pytest.LogCaptureFixture
) -> None:
    engine = scripted([answer("hi")])
    async with opened_service(redis_url, engine) as service:
        await service.layout.agree()
        id, record = await queued(service), service.store.keyspace.all_shards()[0].store
        await service.store.server.command("HSET", record, "layout", LAYOUT + 1)
        for _ in range(3):  # as a sweep or a probe does
            with pytest.raises(OtherLayout):
                await service.layout.check()
        async with working(service) as worker:
            await asyncio.sleep(5 * IMPATIENT.poll_seconds)
            assert (worker.running, engine.generations) == (0, [])
            assert [each.levelname for each in caplog.records] == ["ERROR"]
            assert "doesn't accept these settings" in caplog.text
            async with service.store.server.operation(anyway=True) as operation:
                await operation.command("HSET", record, "layout", LAYOUT)
            await service.layout.check()
            assert (await over(service, id)).status is Status.COMPLETED


async def test_a_job_that_nobody_can_read_fails_and_says_so(redis_url: str) -> None:
    async with opened_service(
        redis_url, scripted([answer("hi")]), max_attempts=2, lease_seconds=LEASE_SECONDS
    ) as service:
        id = await queued(service)
        await changed_spec(service, id, lambda blob: blob[:1] + b"\x00nonsense")
        async with working(service):
            ended = await over(service, id)
    assert ended.status is Status.FAILED
    response = decode_response(ended.response)
    assert response.error is not None
    assert response.error.message.startswith("No worker could read")


async def changed_spec(service: Service, id: str, change: Callable[[bytes], bytes]) -> bytes:
    """Change what a worker needs for a response, behind the store's back; what it was before."""
    key = service.store.keyspace.turn(TENANT, id).key("spec")
    async with service.store.server.operation() as operation:
        before: bytes = await operation.command("GET", key)
        await operation.command("SET", key, change(before))
    return before


async def test_a_canceller_holds_the_job_for_as_long_as_it_takes_to_end_it(
    redis_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    slow = asyncio.Event()

    class SlowAttempt(attempt.Attempt):
        async def make(self) -> attempt.AttemptOutcome:
            await slow.wait()
            return await super().make()

    monkeypatch.setattr(control, "Attempt", SlowAttempt)
    async with (
        opened_service(redis_url, scripted([opened("I"), Stall()]), lease_seconds=LEASE_SECONDS) as service,
        working(service),
    ):
        id = await queued(service)
        await found(service, id, lambda response: response.status is Status.IN_PROGRESS)
        ending = asyncio.create_task(control.cancel(service, TENANT, id))
        await found(service, id, lambda response: response.status is Status.CANCELLED)
        await asyncio.sleep(2 * LEASE_SECONDS)
        assert (await service.store.find(TENANT, id)).under_way, "a worker ended it, whose lease it wasn't"
        slow.set()
        await ending
        assert not (await service.store.find(TENANT, id)).under_way


async def test_a_shard_that_is_slow_costs_no_lease_in_another(redis_url: str) -> None:
    class Hanging(Jobs):
        hangs = False
        renewed = list[int]()

        async def renew(self, leases: Sequence[Lease]) -> Renewal:
            shard = self.shard_of(leases[0])
            if self.hangs and shard == 0:
                await asyncio.sleep(SECONDS)
            self.renewed.append(shard)
            return await super().renew(leases)

    async with opened_service(redis_url, scripted([Stall()]), shards=2, lease_seconds=LEASE_SECONDS) as opened:
        jobs = Hanging(opened.store, opened.jobs.limits)
        service = msgspec.structs.replace(opened, jobs=jobs)
        async with working(service):
            for shard in range(2):
                id = await queued(service, shard)
                await found(service, id, lambda response: response.status is Status.IN_PROGRESS)
            jobs.hangs = True
            jobs.renewed.clear()
            await until(lambda: 1 in jobs.renewed, SECONDS / 2, "the other shard's leases are not renewed")


async def test_a_shard_that_is_down_keeps_no_other_from_being_worked_on(redis_url: str) -> None:
    class Down(Jobs):
        async def claim(self, shard: int, most: int, level: int = LEVELS - 1) -> JobClaim:
            if shard == 0:
                raise StoreUnavailable("the shard is down")
            return await super().claim(shard, most, level)

    async with opened_service(redis_url, scripted([Stall()]), shards=2, shutdown_seconds=1) as opened:
        service = msgspec.structs.replace(opened, jobs=Down(opened.store, opened.jobs.limits))
        await queued(service, 1)
        for _ in range(10):  # it begins with one by chance
            async with working(service, Timing(poll_seconds=60.0)) as worker:
                await until(lambda worker=worker: worker.running, SECONDS, "nobody works")


async def test_a_worker_that_stops_hands_its_jobs_back_also_when_the_store_is_away_at_first(
    redis_url: str,
) -> None:
    class Away(Jobs):
        away = True

        async def hand_back(self, lease: Lease, *, failed: bool, gives_way: bool = False) -> None:
            if self.away:
                self.away = False
                raise StoreUnavailable("the server is away")
            await super().hand_back(lease, failed=failed, gives_way=gives_way)

    async with opened_service(redis_url, scripted([Stall()]), lease_seconds=10 * SECONDS) as opened:
        service = msgspec.structs.replace(opened, jobs=Away(opened.store, opened.jobs.limits))
        id = await queued(service)
        async with working(service):
            await found(service, id, lambda response: response.status is Status.IN_PROGRESS)
        assert [job.lease.id for job in (await service.jobs.claim(0, 1)).jobs] == [id]


async def test_nothing_gives_way_to_what_is_less_urgent(redis_url: str) -> None:
    engine = scripted(*[[Stall()]] * PLACES, [answer("hi")])
    async with opened_service(redis_url, engine, worker_concurrency=PLACES) as service:
        for _ in range(PLACES):
            await queued(service)
        async with working(service) as worker:
            await until(lambda: worker.running == PLACES, SECONDS)
            ids = [await queued(service, tier=tier, tenant="globex") for tier in ("flex", "default")]
            for id in ids:
                await over(service, id, "globex")
            assert service.metrics.jobs_handed_back._value.get() == 1


async def test_all_that_have_hours_are_alike_whose_turn_it_is(redis_url: str) -> None:
    engine = scripted(*[[Stall()]] * PLACES, [answer("hi")])
    async with opened_service(redis_url, engine, worker_concurrency=PLACES) as service:
        for _ in range(PLACES):
            await queued(service, completion_window="2h")
        async with working(service) as worker:
            await until(lambda: worker.running == PLACES, SECONDS)
            await over(service, await queued(service, tenant="globex", completion_window="8h"), "globex")
            assert service.metrics.jobs_handed_back._value.get() == 1


async def test_what_goes_before_others_gives_no_way_to_what_had_begun(redis_url: str) -> None:
    seen: list[float] = []

    class Watched(Jobs):
        async def claim(self, shard: int, most: int, level: int = LEVELS - 1) -> JobClaim:
            found = await super().claim(shard, most, level)
            seen.extend(each.seconds for each in found.waiting if each.tenant == "globex" and not most)
            return found

    async with opened_service(redis_url, scripted([Stall()]), worker_concurrency=PLACES) as opened:
        service = msgspec.structs.replace(opened, jobs=Watched(opened.store, opened.jobs.limits))
        await queued(service, tenant="globex")
        (job,) = (await service.jobs.claim(0, 1)).jobs
        await service.jobs.hand_back(job.lease, failed=False)
        for _ in range(PLACES):
            await queued(service, tier="priority")
        async with working(service):
            await until(lambda: sum(each > IMPATIENT.give_way_seconds for each in seen) > 1, SECONDS)
            assert service.metrics.jobs_handed_back._value.get() == 0
