"""Rate: how many jobs a second go through one worker process, beside the job libraries docket and saq.

Ours are background responses of 8 tokens on the unpaced demo engine: sampled, written to their event log, stored, and
logged. They are submitted through service/background/submit.py, as HTTP asks for 16 tokens at least. The rivals get a
task that does nothing, and one that writes as many bytes to Redis in as many steps as a job of ours does; neither
samples, so never read their figures as if they did our work. All have the same Redis, the same event loop, one process,
and as many jobs under way at once. The queue is full before the worker begins; the first tenth of it isn't counted.
"""

import asyncio
import json
import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from statistics import median
from subprocess import PIPE
from typing import Any

import msgspec

from bench._background.processes import TENANT, WAIT_SECONDS, Bench, opened, submitted, until, worker
from bench._rig import Server, running
from bench._told import Target, table
from service.background.follow import find
from service.responses.service import Service
from service.settings.settings import Settings

ROOT = Path(__file__).resolve().parents[2]
RIVALS_PYTHON = ROOT / ".venv-rivals" / "bin" / "python"
RIVAL = Path(__file__).with_name("rival.py")
RIVALS = {"docket": 10, "docket-5ms": 1, "saq": 1}
"""See rival.py. Each gets one in so many of the jobs: one that waits needs no more to show how fast it is."""

TASKS = ("nothing", "writes")

TARGET_RATE = 300.0
"""Jobs a second."""

TOKENS = 8
JOBS = 3_000
ROUNDS = 3
UNCOUNTED = 10
"""One job in so many is over before the clock runs."""

CONCURRENCY: int = Settings.model_fields["worker_concurrency"].default
LEAST_JOBS = 10 * CONCURRENCY
LOOKED_AT = 20
"""How many responses are looked at, to see that they are what was asked for."""


@dataclass(frozen=True)
class Written:
    """What a job of ours writes: the bytes of each entry of its log, and of what is stored in the end."""

    entries: list[int]
    stored: int


@dataclass(frozen=True)
class Rates:
    """Jobs a second by who ran them, of each round; CPU ms a job of our worker; and the rivals' versions."""

    rates: dict[str, list[float]]
    cpu_ms: list[float]
    written: Written
    versions: dict[str, str] = field(default_factory=dict)

    def targets(self) -> list[Target]:
        """What is judged."""
        return [Target("jobs/s of one worker process", median(self.rates["harmonium"]), TARGET_RATE, least=True)]

    def lines(self) -> list[str]:
        """What is told."""
        ours = median(self.rates["harmonium"])
        rows = [(name, f"{median(rates):,.0f}", f"{median(rates) / ours:.2f}x") for name, rates in self.rates.items()]
        versions = ", ".join(f"{name} {version}" for name, version in self.versions.items())
        absent = (
            f"docket and saq are left out: there is no {RIVALS_PYTHON.parents[1].name}; scripts/setup rivals makes it"
        )
        return [
            *table(("who", "jobs/s", "of ours"), rows),
            f"{median(self.cpu_ms):.2f} ms of CPU a job of ours, which writes {len(self.written.entries)} entries of"
            f" {sum(self.written.entries):,} bytes and stores {self.written.stored:,} bytes",
            versions or absent,
        ]


async def measure(bench: Bench) -> Rates:
    """All in turns, ROUNDS times."""
    count, rates, cpu = bench.few(JOBS, 800), dict[str, list[float]](), list[float]()
    written, versions = Written([], 0), dict[str, str]()
    for _ in bench.progress.track(range(bench.few(ROUNDS, 1)), description="jobs a second"):
        with running(bench.redis) as redis:
            rate, cpu_ms, written = await ours(bench, redis, count)
            rates.setdefault("harmonium", []).append(rate)
            cpu.append(cpu_ms)
            for rival, share in RIVALS.items() if RIVALS_PYTHON.exists() else ():
                for task in TASKS:
                    told = await theirs(redis, rival, task, max(LEAST_JOBS, count // share), written)
                    rates.setdefault(f"{rival}, {task}", []).append(told["rate"])
                    versions[told["package"]] = told["version"]
    return Rates(rates, cpu, written, versions)


async def ours(bench: Bench, redis: Server, count: int) -> tuple[float, float, Written]:
    """Jobs a second, CPU ms a job, and what one wrote."""
    async with opened(redis, max_queued=count) as service:
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


async def theirs(redis: Server, rival: str, task: str, count: int, written: Written) -> dict[str, Any]:
    """What a rival says of itself, in an environment of its own."""
    sizes = [*written.entries, written.stored] if task == "writes" else []
    arguments = [rival, redis.url, str(count), str(CONCURRENCY), json.dumps(sizes)]
    process = await asyncio.create_subprocess_exec(RIVALS_PYTHON, "-P", RIVAL, *arguments, stdout=PIPE, stderr=PIPE)
    out, error = await asyncio.wait_for(process.communicate(), WAIT_SECONDS)
    if process.returncode:
        raise RuntimeError(f"{rival} failed: {error.decode()[-2000:]}")
    return json.loads(out)
