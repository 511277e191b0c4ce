"""Claim: how long a response waits for a worker that has nothing to do, and what that costs a stream that is detached.

Both ends are taken from the server's own MONITOR, to the microsecond: the script that accepts a job, and the one that
takes it. Beside it stands the way from the client's request to that claim, HTTP and prompt included. Requests come one
by one, each when the one before has long ended. Streams take turns: one with X-Harmonium-Detach, and one without.
"""

import asyncio
import random
import re
import time
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass

import msgspec

from bench._background.processes import MODEL, PATH, Bench, Spread, api, body, until, worker
from bench._harness import connected
from bench._rig import Server, running
from bench._told import Target, table

TARGET_MS = 5.0
"""From submit to claim, p50."""

REQUESTS = 400
WARM_UP = 20
REST_SECONDS = (0.02, 0.06)
"""Between one request's claim and the next request; a response of 16 tokens takes a few milliseconds."""

LINE_BYTES = 1 << 24

_MOMENT = re.compile(rb'^\+(\d+\.\d+) .* "(?:HSET|HSETNX)" "\S+:job:([0-9a-f]{48})" .*"(submitted|started)"')


@dataclass(frozen=True)
class Claims:
    """ms from the job's submission to its claim, and from the request to that; to the first delta of a stream, and of
    one that is detached.
    """

    submitted: Spread
    asked: Spread
    streamed: Spread
    detached: Spread

    def targets(self) -> list[Target]:
        """What is judged."""
        return [Target("ms from submit to claim, p50", self.submitted.p50, TARGET_MS)]

    def lines(self) -> list[str]:
        """What is told."""
        return table(
            ("to the claim", "p50 ms", "p99 ms", "worst ms"),
            [("from submit", *self.submitted), ("from the request", *self.asked)],
        ) + table(
            ("to the first delta", "p50 ms", "p99 ms", "worst ms"),
            [("of a stream", *self.streamed), ("with X-Harmonium-Detach", *self.detached)],
        )


Moments = dict[tuple[bytes, bytes], float]
"""When something was first done to a job, in seconds since 1970: by the job's digits and `submitted` or `started`."""


async def measure(bench: Bench) -> Claims:
    """Ask one by one."""
    count = bench.few(REQUESTS, 40)
    submitted, asked = list[float](), list[float]()
    with running(bench.redis) as redis, api(redis) as front, worker(redis):
        async with monitored(redis) as moments, connected(front.port, 1) as (client,):
            for number in bench.progress.track(range(WARM_UP + count), description="claims"):
                began = time.time()
                answer = await client.post(PATH, body("Say hello.", streams=False, most=16))
                digits = msgspec.json.decode(answer)["id"].removeprefix("resp_").encode()
                await until(lambda digits=digits: (digits, b"started") in moments, "a claim")
                claimed = moments[digits, b"started"]
                if number >= WARM_UP:
                    submitted.append(claimed - moments[digits, b"submitted"])
                    asked.append(claimed - began)
                await asyncio.sleep(random.uniform(*REST_SECONDS))
        firsts = await streams(bench, front.port)
    return Claims(*(Spread.of(each, 1e3) for each in (submitted, asked, *firsts)))


async def streams(bench: Bench, port: int) -> tuple[list[float], list[float]]:
    """Seconds to the first delta of streams, and of those that are detached."""
    found: tuple[list[float], list[float]] = ([], [])
    wanted = msgspec.json.encode({"model": MODEL, "input": "Say hello.", "stream": True, "max_output_tokens": 16})
    async with connected(port, 1) as (client,):
        for number in bench.progress.track(range(WARM_UP + bench.few(REQUESTS, 40)), description="first deltas"):
            for detached, each in enumerate(found):
                seconds = await client.first(PATH, wanted, **({"x-harmonium-detach": "true"} if detached else {}))
                if number >= WARM_UP:
                    each.append(seconds)
                await asyncio.sleep(random.uniform(*REST_SECONDS))
    return found


@asynccontextmanager
async def monitored(redis: Server) -> AsyncGenerator[Moments, None]:
    """What the server says that it does to jobs, as it does it."""
    reader, writer = await asyncio.open_unix_connection(redis.url.removeprefix("unix://"), limit=LINE_BYTES)
    writer.write(b"MONITOR\r\n")
    await reader.readline()
    moments: Moments = {}
    task = asyncio.create_task(_note(reader, moments))
    try:
        yield moments
    finally:
        task.cancel()
        with suppress(asyncio.CancelledError):
            await task
        writer.close()
        await writer.wait_closed()


async def _note(reader: asyncio.StreamReader, moments: Moments) -> None:
    while line := await reader.readline():
        found = _MOMENT.match(line)
        if found is not None:
            moments.setdefault((found[2], found[3]), float(found[1]))
