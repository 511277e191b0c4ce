"""Rate: how many jobs a second go through one worker process.

They are background responses of 8 tokens on the unpaced demo engine: sampled, written to their event log, stored, and
logged. They are submitted through service/background/submit.py, as HTTP asks for 16 tokens at least. The queue is full
before the worker begins; the first tenth of it isn't counted.
"""

import time
from collections.abc import Sequence
from dataclasses import dataclass
from statistics import median

import msgspec

from bench._background.processes import TENANT, Bench, opened, submitted, until, worker
from bench._rig import Server, running
from bench._told import Target
from service.background.follow import find
from service.responses.service import Service

TARGET_RATE = 300.0
"""Jobs a second."""

TOKENS = 8
JOBS = 3_000
ROUNDS = 3
UNCOUNTED = 10
"""One job in so many is over before the clock runs."""

LOOKED_AT = 20
"""How many responses are looked at, to see that they are what was asked for."""


@dataclass(frozen=True)
class Written:
    """What a job of ours writes: the bytes of each entry of its log, and of what is stored in the end."""

    entries: list[int]
    stored: int


@dataclass(frozen=True)
class Rates:
    """Jobs a second, and CPU ms of the worker a job, of each round."""

    rates: list[float]
    cpu_ms: list[float]
    written: Written

    def targets(self) -> list[Target]:
        """What is judged."""
        return [Target("jobs/s of one worker process", median(self.rates), TARGET_RATE, least=True)]

    def lines(self) -> list[str]:
        """What is told."""
        return [
            f"{median(self.rates):,.0f} jobs/s, {median(self.cpu_ms):.2f} ms of CPU a job, which writes"
            f" {len(self.written.entries)} entries of {sum(self.written.entries):,} bytes and stores"
            f" {self.written.stored:,} bytes"
        ]


async def measure(bench: Bench) -> Rates:
    """ROUNDS times, each on a Redis of its own."""
    count, found = bench.few(JOBS, 800), Rates([], [], Written([], 0))
    for _ in bench.progress.track(range(bench.few(ROUNDS, 1)), description="jobs a second"):
        with running(bench.redis) as redis:
            rate, cpu_ms, written = await worked_off(bench, redis, count)
        found = Rates([*found.rates, rate], [*found.cpu_ms, cpu_ms], written)
    return found


async def worked_off(bench: Bench, redis: Server, count: int) -> tuple[float, float, Written]:
    """Jobs a second, CPU ms a job, and what one wrote."""
    async with opened(redis, max_queued_responses=count) as service:
        ids = await submitted(service, "Write at least 20 words.", count, most=TOKENS)
        with worker(redis, profile=bench.profile) as process:
            await until_left(service, count - count // UNCOUNTED)
            began, cpu, left = time.perf_counter(), process.cpu_seconds(), await jobs_left(service)
            if not left:
                raise RuntimeError("the jobs were done before anybody looked; there have to be more")
            await until_left(service, 0)
            seconds, cpu = time.perf_counter() - began, process.cpu_seconds() - cpu
        return left / seconds, cpu / left * 1e3, await written_by(redis, service, ids)


async def jobs_left(service: Service) -> int:
    """How many jobs have not ended."""
    queue = await service.jobs.queue(0)
    return sum(queue.waiting) + queue.running


async def until_left(service: Service, count: int) -> None:
    """Wait until at most so many have not ended. Raises TimeoutError."""

    async def few() -> bool:
        return await jobs_left(service) <= count

    await until(few, "jobs")


async def written_by(redis: Server, service: Service, ids: Sequence[str]) -> Written:
    """What a job wrote. Raises RuntimeError if responses are not what was asked for."""
    for id in ids[:: max(1, len(ids) // LOOKED_AT)]:
        response = await find(service.jobs, TENANT, id)
        if msgspec.json.decode(response)["usage"]["output_tokens"] != TOKENS:
            raise RuntimeError(f"an answer of another length: {response.decode()}")
    keys = service.store.keyspace.turn(TENANT, ids[0])
    stored = sum(redis.ask("STRLEN", keys.key(family)) for family in ("messages", "response"))
    return Written([len(entry.blob) for entry in await service.jobs.log.read(TENANT, ids[0], -1, 100)], stored)
