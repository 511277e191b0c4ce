"""What is counted of background responses that are cancelled or lost: how long they ran, and which leases were lost."""

import asyncio
import contextlib
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager

import pytest
from prometheus_client.exposition import generate_latest

from service.background.control import cancel
from service.background.timing import Timing
from service.background.worker import Worker
from service.process import close_service, open_service
from service.responses.service import Service
from service.settings.core import DEFAULT_TENANT
from service.settings.settings import Settings
from store.jobs.model import Lease
from store.redis.connection import connect
from tests.support.chaos.inside import queue
from tests.support.engine.scripted import Stall
from tests.support.service.background import changed
from tests.support.service.inside import opened, scripted
from tests.support.service.scraped import Scraped
from tests.support.waiting import until

RAN_SECONDS = 4.0


class Scene:
    """A response that a worker is at, whose model has said something and goes on when told to."""

    def __init__(self, service: Service, working: Worker, id: str, go: asyncio.Event) -> None:
        self.service = service
        self.working = working
        self.id = id
        self.go = go

    @property
    def counted(self) -> Scraped:
        return Scraped(generate_latest(self.service.metrics.registry).decode())

    async def command(self, *words: object) -> None:
        """Change something of the store by hand."""
        async with contextlib.aclosing(connect(self.service.settings.redis_url)) as redis:
            await redis.execute_command(*map(str, words))

    async def ran(self, seconds: float) -> None:
        """It has been under way for so much longer."""
        key = self.service.store.keyspace.turn(DEFAULT_TENANT, self.id).key("job")
        await self.command("HINCRBY", key, "started", -round(seconds * 1000))

    async def taken(self) -> None:
        """Somebody else takes its lease over."""
        jobs = self.service.jobs
        leases = self.service.store.keyspace.turn(DEFAULT_TENANT, self.id).key("leases")
        await self.command("ZADD", leases, 0, f"{DEFAULT_TENANT}/{self.id[5:]}")
        await jobs.claim(jobs.shard_of(Lease(DEFAULT_TENANT, self.id, "")), 1)


class Silence:
    """Channels on which nothing is said, as a worker uses them."""

    @asynccontextmanager
    async def channel(self, name: str) -> AsyncIterator["Silence"]:
        yield self

    async def messages(self, seconds: float) -> list[bytes]:
        await asyncio.sleep(seconds)
        return []


Stage = Callable[..., contextlib.AbstractAsyncContextManager[Scene]]


@pytest.fixture
def stage(settings: Settings) -> Stage:
    """Sets the scene, until the end of a block. Its worker doesn't hear what is cancelled, and looks for jobs once."""

    @asynccontextmanager
    async def scene(**times: float) -> AsyncIterator[Scene]:
        go = asyncio.Event()
        engine = scripted([opened("Said so far."), Stall(go), opened(" And more.")[3:], Stall()])
        service = open_service(changed(settings, lease_seconds=600), engine)
        await engine.start()
        id = await queue(service, "hi")
        vars(service.store.listening)["channel"] = Silence().channel  # a worker that hears nothing
        working = Worker(service, ended=lambda id: None, timing=Timing(poll_seconds=600.0, **times))
        work = asyncio.create_task(working.work())
        try:
            await until(lambda: engine.running == 1)
            yield Scene(service, working, id, go)
        finally:
            working.stop()
            await work
            await close_service(service)

    return scene


async def said(scene: Scene) -> None:
    """What the model said is in the log."""
    await until(lambda: _counted(scene, "harmonium_log_entries_total"), 10, wanted=lambda entries: entries > 0)


async def _counted(scene: Scene, name: str) -> float:
    return scene.counted.value(name)


async def test_one_that_is_cancelled_ran_from_its_first_claim_on(stage: Stage) -> None:
    async with stage() as scene:
        await said(scene)
        await scene.ran(RAN_SECONDS)
        await cancel(scene.service, DEFAULT_TENANT, scene.id)
        assert scene.counted.value("harmonium_job_run_seconds_count") == 1
        assert RAN_SECONDS <= scene.counted.value("harmonium_job_run_seconds_sum") < 10 * RAN_SECONDS


async def test_a_lease_that_somebody_else_took_over_is_a_lost_one(stage: Stage) -> None:
    async with stage() as scene:
        await said(scene)
        await scene.taken()
        scene.go.set()
        await until(lambda: not scene.working.running)
        assert scene.counted.value("harmonium_leases_lost_total") == 1


async def test_what_was_lost_by_the_time_it_is_handed_back_was_not_handed_back(stage: Stage) -> None:
    async with stage(batch_seconds=600.0) as scene:
        await scene.taken()
        scene.working.stop()
        await until(lambda: not scene.working.running)
        assert scene.counted.value("harmonium_jobs_handed_back_total") == 0
        assert scene.counted.value("harmonium_leases_lost_total") == 1
