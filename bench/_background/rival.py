"""A job library as one worker process, in an environment of its own: what bench/background.py compares with.

    .venv-rivals/bin/python rival.py docket|docket-5ms|saq REDIS_URL JOBS CONCURRENCY SIZES

fills its queue, works it off, and prints a JSON object: jobs a second from the end of the first tenth on, the package
and its version. A task does nothing, or with SIZES, a JSON list, writes that many bytes one after the other: all but
the last as entries of a stream of its own, and the last as a string. Never import anything of harmonium here.
"""

import asyncio
import json
import sys
import time
from datetime import timedelta
from functools import partial
from importlib.metadata import version
from typing import Any

import uvloop  # pyright: ignore[reportMissingImports]
from redis.asyncio import Redis

UNCOUNTED = 10
"""One job in so many is over before the clock runs."""


class Work:
    """What each job does, and when it was done."""

    def __init__(self, name: str, redis: Any, jobs: int, sizes: list[int]) -> None:
        self.over = asyncio.Event()
        """Set once all jobs are done."""
        self._jobs = jobs
        self._ends: list[float] = []
        self._name = name
        self._redis = redis
        self._blobs = [b"x" * size for size in sizes]

    async def __call__(self, number: int) -> None:
        """Do one job."""
        if self._blobs:
            *entries, stored = self._blobs
            for place, blob in enumerate(entries, 1):
                await self._redis.xadd(f"{self._name}:log:{number}", {"b": blob}, id=f"{place}-0")
            await self._redis.set(f"{self._name}:stored:{number}", stored)
        self._ends.append(time.perf_counter())
        if len(self._ends) == self._jobs:
            self.over.set()

    def rate(self) -> float:
        """Jobs a second. Raises RuntimeError if some were not done, or twice."""
        if len(self._ends) != self._jobs:
            raise RuntimeError(f"{len(self._ends)} of {self._jobs} jobs were done")
        first = self._jobs // UNCOUNTED
        return (self._jobs - first) / (self._ends[-1] - self._ends[first - 1])


async def docket(url: str, work: "Work", jobs: int, concurrency: int, **options: Any) -> None:
    """docket: streams with a consumer group. `options` are its worker's."""
    from docket import Docket, Worker  # pyright: ignore[reportMissingImports]

    async def task(number: int) -> None:
        await work(number)

    async with Docket(name=f"rival-{time.time_ns()}", url=url) as queue:
        queue.register(task)
        for number in range(jobs):
            await queue.add(task)(number)
        async with Worker(queue, concurrency=concurrency, **options) as worker:
            await worker.run_until_finished()


async def saq(url: str, work: "Work", jobs: int, concurrency: int) -> None:
    """saq: lists and blocking moves."""
    from saq import Worker  # pyright: ignore[reportMissingImports]
    from saq.queue.redis import RedisQueue  # pyright: ignore[reportMissingImports]

    async def task(context: Any, *, number: int) -> None:
        await work(number)

    queue = RedisQueue(Redis.from_url(url), name=f"rival-{time.time_ns()}")
    await queue.connect()
    for number in range(jobs):
        await queue.enqueue("task", number=number)
    worker = Worker(queue, [("task", task)], concurrency=concurrency)
    working = asyncio.create_task(worker.start())
    await work.over.wait()
    await worker.stop()
    await working
    await queue.disconnect()


RIVALS = {
    "docket": (docket, "pydocket"),
    "docket-5ms": (partial(docket, minimum_check_interval=timedelta(milliseconds=5)), "pydocket"),
    "saq": (saq, "saq"),
}
"""docket looks for more work every 250 ms while all its places are taken, which alone keeps short tasks down to four
times `concurrency` a second; so it is also measured with 5 ms."""


async def main(rival: str, url: str, jobs: int, concurrency: int, sizes: list[int]) -> None:
    """Run a rival, and tell how fast it was."""
    run, package = RIVALS[rival]
    redis = Redis.from_url(url)
    work = Work(f"{rival}-{time.time_ns()}", redis, jobs, sizes)
    await run(url, work, jobs, concurrency)
    await redis.aclose()
    print(json.dumps({"rate": work.rate(), "package": package, "version": version(package)}))


if __name__ == "__main__":
    uvloop.run(main(sys.argv[1], sys.argv[2], int(sys.argv[3]), int(sys.argv[4]), json.loads(sys.argv[5])))
