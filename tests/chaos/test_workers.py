"""What a worker does while parts of the store are slow or fail: it hears of every job, and holds every lease."""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import msgspec
import pytest

from service.api.events import OutputTextDelta
from service.background.log_sink import MAX_WAITING_EVENTS, LogSink
from service.background.timing import Timing
from service.background.worker import Worker
from service.metrics.counters import make_metrics
from service.pacing import Pacing
from service.responses.drive import machine_of
from service.responses.run import Taken
from service.responses.service import Service
from service.settings.core import DEFAULT_TENANT
from service.settings.settings import Settings, load_settings
from store.embedded import EmbeddedServer
from store.errors import StoreUnavailable
from store.history.history import ConversationHistoryStore
from store.jobs.jobs import Jobs
from store.jobs.log import Entry
from store.jobs.model import LEVELS, Claim, JobLimits, Lease, Renewal
from store.redis.connection import connect
from store.turn import Status
from tests.responses.test_spec import spec
from tests.support.chaos.inside import WatchedEngine, opened, queue
from tests.support.chaos.storm import QUICK
from tests.support.waiting import until

SECONDS = 10.0


class Troubled(Jobs):
    """Jobs whose calls pass by a test first, with the number of the shard."""

    def __init__(self, history: ConversationHistoryStore, limits: JobLimits) -> None:
        super().__init__(history, limits)
        self.claims = 0
        self.renewed: list[int] = []
        self.on_claimed: Callable[[int], Awaitable[None]] | None = None
        self.on_renew: Callable[[int], Awaitable[None]] | None = None

    async def claim(self, shard: int, most: int, level: int = LEVELS - 1) -> Claim:
        claim = await super().claim(shard, most, level)
        self.claims += 1
        if self.on_claimed is not None:
            await self.on_claimed(shard)
        return claim

    async def renew(self, leases: Sequence[Lease]) -> Renewal:
        shard = self.shard_of(leases[0])
        if self.on_renew is not None:
            await self.on_renew(shard)
        self.renewed.append(shard)
        return await super().renew(leases)


@pytest.fixture
async def service(tmp_path: Path) -> AsyncIterator[Service]:
    """A service whose store has two shards, and whose engine never comes to an end."""
    with EmbeddedServer(tmp_path / "store") as server:
        settings: Settings = load_settings(redis_url=server.url, shards=2, shutdown_seconds=5, **QUICK)
        async with opened(settings, WatchedEngine(tokens_per_second=20)) as service:
            yield msgspec.structs.replace(service, jobs=Troubled(service.store, service.jobs.limits))


@asynccontextmanager
async def at_work(service: Service, *, poll_seconds: float = 1.0) -> AsyncIterator[Worker]:
    """A worker, until the end of the block."""
    worker = Worker(service, ended=lambda id: None, timing=Timing(poll_seconds=poll_seconds))
    work = asyncio.create_task(worker.work())
    try:
        yield worker
    finally:
        worker.stop()
        await work


async def queue_in(service: Service, shard: int) -> str:
    """Queue a response that lands in a shard; its id."""
    while True:
        id = await queue(service, "Count to 1000.")
        if int(id[5:7], 16) == shard:
            return id


async def test_a_job_that_comes_while_the_queue_is_looked_at_is_not_forgotten(service: Service) -> None:
    jobs: Any = service.jobs
    late: list[str] = []

    async def come(shard: int) -> None:
        """Somebody queues a job, and it is heard of, before the answer to the claim is there."""
        jobs.on_claimed = None
        id = await queue_in(service, shard)
        await asyncio.sleep(0.2)  # the message is quicker than the answer
        late.append(id)

    async with at_work(service, poll_seconds=60.0):
        await until(lambda: _heard(service), SECONDS, "it doesn't listen")
        await until(lambda: jobs.claims, SECONDS, "it doesn't look")  # and not again, by itself
        jobs.on_claimed = come
        await queue_in(service, 0)
        await until(lambda: late, SECONDS, "it isn't looked into the queue")
        await until(lambda: _begun(service, late[0]), SECONDS, "the job is forgotten")


async def _heard(service: Service) -> bool:
    """Whether somebody hears of jobs in every shard."""
    redis = connect(service.settings.redis_url)
    try:
        channels = [service.jobs.control(shard) for shard in range(service.jobs.shards)]
        counts: Any = await redis.execute_command("PUBSUB", "SHARDNUMSUB", *channels)
        return all(counts[1::2])
    finally:
        await redis.aclose()


async def _begun(service: Service, id: str) -> bool:
    return (await service.store.find(DEFAULT_TENANT, id)).status is Status.IN_PROGRESS


async def test_a_shard_that_is_slow_costs_no_lease_in_another(service: Service) -> None:
    jobs: Any = service.jobs

    async def hang(shard: int) -> None:
        if shard == 0:
            await asyncio.sleep(SECONDS)

    async with at_work(service):
        for shard in range(2):
            id = await queue_in(service, shard)
            await until(lambda id=id: _begun(service, id), SECONDS, "nobody works")
        jobs.on_renew = hang
        jobs.renewed.clear()
        await until(lambda: 1 in jobs.renewed, SECONDS / 2, "the other shard's leases are not renewed")


async def test_a_shard_that_is_down_keeps_no_other_from_being_worked_on(service: Service) -> None:
    jobs: Any = service.jobs

    async def fail(shard: int) -> None:
        if shard == 0:
            raise StoreUnavailable("the shard is down")

    jobs.on_claimed = fail
    await queue_in(service, 1)
    for _ in range(10):  # it begins with one by chance
        async with at_work(service, poll_seconds=60.0) as working:
            await until(lambda: working.running, SECONDS, "nobody works")


class _Broken(Jobs):
    """Jobs that can't write."""

    def __init__(self) -> None:
        pass

    async def write(self, lease: Lease, entry: Entry, **more: Any) -> None:
        raise ZeroDivisionError


async def test_a_log_that_can_t_be_written_by_our_mistake_holds_nobody_up() -> None:
    stopped = asyncio.Event()
    service: Any = SimpleNamespace(
        jobs=_Broken(), metrics=make_metrics(), tenants=SimpleNamespace(pacing=Pacing()), settings=None
    )
    sink = LogSink(
        service=service,
        lease=Lease("acme", "resp_" + "0" * 48, "token"),
        machine=machine_of(spec()),
        on_tokens=lambda: pytest.fail("nothing was written"),
        patience=lambda: SECONDS,
    )
    sink.start(stopped.set)
    async with asyncio.timeout(SECONDS):
        for number in range(4 * MAX_WAITING_EVENTS):
            event = OutputTextDelta("msg_", 0, 0, "word", (), sequence_number=number)
            if not sink.put(Taken([event], [0])):
                await sink.room()
    assert stopped.is_set()
    with pytest.raises(ZeroDivisionError):
        await sink.close()
