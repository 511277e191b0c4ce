"""Follow: from an event's append to its follower, with a thousand followers of a thousand responses on one API process.

Appends come at a steady pace from this process, through store/jobs/jobs.py, as a worker's do; the followers are in
another process (audience.py). The time in each event is that at which its append began, so it is the whole way: script,
channel, API, socket, client. How many events go into one append changes what an event costs, so each is told.
"""

import asyncio
import time
from collections.abc import Sequence
from contextlib import AsyncExitStack
from dataclasses import dataclass
from itertools import cycle, islice

from bench._background.audience import Audience
from bench._background.processes import (
    LONG,
    Bench,
    Spread,
    api,
    opened,
    submitted,
    until,
    worker,
)
from bench._harness import Server
from bench._rig import Server as Redis
from bench._rig import running
from bench._told import Target, table
from service.api.events import Event, OutputTextDelta
from service.responses.output.journal import Batch, encode_batch
from service.responses.service import Service
from store.jobs.log import LogEntry
from store.jobs.model import Job

TARGET_MS = 20.0
"""From append to follower, p99, at the worst of BATCHES."""

FOLLOWERS, FEW = 1_000, 200
"""How many follow; memory is the difference between the two."""

EVENTS_PER_SECOND = 2_000
BATCHES = (2, 8)
"""Events in an append: what a model says in 20 ms at 100 tokens a second, and at 400."""

SECONDS = 10
LEASE_SECONDS = 3600.0
WARM_UP_SECONDS = 2.0

WORKER_TOKENS_PER_SECOND = 2
"""Of each response whose memory in a worker is told: a thousand of them make EVENTS_PER_SECOND."""


@dataclass(frozen=True)
class Lag:
    """With so many events in an append: ms from append to follower, µs of CPU an event of the API, of Redis and of
    whoever appends, and the appended events a second."""

    batch: int
    lag: Spread
    api_us: float
    redis_us: float
    writer_us: float
    rate: float


@dataclass(frozen=True)
class Follows:
    """The lags, and the KiB that a follower takes in the API, and a running job in a worker."""

    followers: int
    lags: list[Lag]
    follower_kib: float
    job_kib: float
    worker_us: float

    def targets(self) -> list[Target]:
        """What is judged."""
        worst = max(each.lag.p99 for each in self.lags)
        return [Target(f"ms from append to {self.followers:,} followers, p99", worst, TARGET_MS)]

    def lines(self) -> list[str]:
        """What is told."""
        columns = ("events an append", "p50 ms", "p99 ms", "worst ms", "API us", "Redis us", "writer us", "events/s")
        rows = [(each.batch, *each.lag, each.api_us, each.redis_us, each.writer_us, each.rate) for each in self.lags]
        return [
            *table(columns, rows),
            f"{self.followers:,} followers of as many responses on one API process; us are CPU of an event.",
            f"{self.follower_kib:.1f} KiB of the API a follower, {self.job_kib:.1f} KiB of a worker a running job;",
            f"{self.worker_us:.1f} us of a worker's CPU a token, at {WORKER_TOKENS_PER_SECOND} tokens/s a job.",
        ]


async def measure(bench: Bench) -> Follows:
    """Lags and memory."""
    most, few = bench.few(FOLLOWERS, 200), bench.few(FEW, 50)
    with running(bench.redis) as redis:
        lags, follower_kib = await followed(bench, redis, most, few)
    with running(bench.redis) as redis:
        job_kib, worker_us = await worked(bench, redis, most, few)
    return Follows(most, lags, follower_kib, job_kib, worker_us)


class Pen:
    """Appends to the log of one job what says when that was."""

    def __init__(self, service: Service, job: Job) -> None:
        self.id = job.lease.id
        self._jobs, self._lease, self._last = service.jobs, job.lease, job.last
        self._item_id = f"msg_{self.id.removeprefix('resp_')}0000"

    async def append(self, count: int) -> None:
        """Append so many deltas, each of one token."""
        now = f"{time.monotonic():.6f}"
        numbers = range(self._last + 1, self._last + 1 + count)
        deltas: list[Event] = [OutputTextDelta(self._item_id, 0, 0, now, (), sequence_number=each) for each in numbers]
        self._last += count
        await self._jobs.write(self._lease, LogEntry(self._last, encode_batch(Batch(deltas, bytes(4 * count)))))


async def claimed(service: Service, count: int) -> list[Job]:
    """So many jobs, submitted and claimed by this process."""
    await submitted(service, LONG, count)
    jobs = list[Job]()
    while len(jobs) < count:
        jobs += (await service.jobs.claim(0, count)).jobs
    return jobs


async def write(pens: Sequence[Pen], batch: int, seconds: float, audience: Audience) -> list[float]:
    """Append at a steady pace, to one log after the other, for so long; how late the events came to their followers."""
    loop = asyncio.get_running_loop()
    count = round(seconds * EVENTS_PER_SECOND / batch)
    began, appends = loop.time(), set[asyncio.Task[None]]()
    for number, pen in enumerate(islice(cycle(pens), count)):
        await asyncio.sleep(max(0.0, began + number * batch / EVENTS_PER_SECOND - loop.time()))
        append = asyncio.create_task(pen.append(batch))
        appends.add(append)
        append.add_done_callback(appends.discard)
    await asyncio.gather(*appends)
    return await audience.lags(count * batch)


async def followed(bench: Bench, redis: Redis, most: int, few: int) -> tuple[list[Lag], float]:
    """The lags, and the KiB of a follower."""
    async with AsyncExitStack() as stack:
        front = stack.enter_context(api(redis, profile=bench.profile))
        audience = stack.enter_context(Audience(front.port))
        service = await stack.enter_async_context(opened(redis, lease_seconds=LEASE_SECONDS))
        pens = [Pen(service, job) for job in await claimed(service, most)]
        await audience.follow([pen.id for pen in pens[:few]])
        await write(pens[:few], BATCHES[0], 1.0, audience)
        held = front.held_bytes()
        await audience.follow([pen.id for pen in pens[few:]])
        await write(pens, BATCHES[0], WARM_UP_SECONDS, audience)
        held = front.held_bytes() - held
        tracked = bench.progress.track(BATCHES, description=f"{most:,} followers")
        lags = [await lag(front, redis, pens, batch, bench.few(SECONDS, 2), audience) for batch in tracked]
    return lags, held / (most - few) / 1024


async def lag(front: Server, redis: Redis, pens: Sequence[Pen], batch: int, seconds: float, audience: Audience) -> Lag:
    """What so many events an append come to."""

    def spent() -> tuple[float, float, float]:
        return front.cpu_seconds() * 1e6, redis.cpu_us(), time.process_time() * 1e6

    before, began = spent(), time.perf_counter()
    found = await write(pens, batch, seconds, audience)
    took = time.perf_counter() - began
    api_us, redis_us, writer_us = ((now - then) / len(found) for now, then in zip(spent(), before, strict=True))
    return Lag(batch, Spread.of(found, 1e3), api_us, redis_us, writer_us, len(found) / took)


async def worked(bench: Bench, redis: Redis, most: int, few: int) -> tuple[float, float]:
    """The KiB of a running job in a worker, and its µs of CPU a token."""
    seconds = bench.few(SECONDS, 2)
    async with opened(redis) as service:
        with worker(redis, worker_concurrency=most, demo_tokens_per_second=WORKER_TOKENS_PER_SECOND) as process:
            await running_jobs(service, few)
            await asyncio.sleep(WARM_UP_SECONDS)
            held = process.held_bytes()
            await running_jobs(service, most - few)
            await asyncio.sleep(WARM_UP_SECONDS)
            held, cpu = process.held_bytes() - held, process.cpu_seconds()
            await asyncio.sleep(seconds)
            cpu = process.cpu_seconds() - cpu
    return held / (most - few) / 1024, cpu * 1e6 / (most * WORKER_TOKENS_PER_SECOND * seconds)


async def running_jobs(service: Service, count: int) -> None:
    """Submit so many more, and wait until a worker has them all."""
    await submitted(service, LONG, count)

    async def taken() -> bool:
        return not any((await service.jobs.queue(0)).waiting)

    await until(taken, "workers have all jobs")
