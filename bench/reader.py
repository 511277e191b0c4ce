"""What a token costs between a server's socket and the engine's port, beside the same stream read with aiohttp.

    scripts/bench reader [--check]

A server in a process of its own sends answers of 64 events with a token each, a chunk an event as vLLM does: all at
once, or one each 5 ms. This process reads them by turns with aiohttp, as its stream reader hands them out, with the
pool that the engine has, and as the engine's chunks. The figures are this process's CPU for each token, what a request
costs included.
"""

import argparse
import asyncio
import sys
import time
from collections.abc import Awaitable, Callable
from contextlib import AsyncExitStack, aclosing
from pathlib import Path
from statistics import median
from typing import NamedTuple

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT))

import aiohttp  # noqa: E402
import uvloop  # noqa: E402

from bench._harness import HOST, Server  # noqa: E402
from bench._pouring import TOKENS  # noqa: E402
from service.engine.connections.outgoing import target_of  # noqa: E402
from service.engine.connections.pool import Pool  # noqa: E402
from service.engine.names import Place  # noqa: E402
from service.engine.port import Generation, Sampling  # noqa: E402
from service.engine.servers.engine import Access  # noqa: E402
from service.engine.vllm.servers import vllm_engine  # noqa: E402
from service.engine.vllm.wire import Endpoint, request_body  # noqa: E402

ROUNDS = 7
CONNECT_SECONDS = 5.0
TARGET = 0.5
"""What reading may cost beside aiohttp where all comes at once: there the bytes count, and not the waking up."""

Read = Callable[[Generation], Awaitable[None]]


class Load(NamedTuple):
    """How many streams go on at once, how often each, and whether their events come one by one."""

    name: str
    paced: bool
    streams: int
    times: int


LOADS = (
    Load("at once, 1 stream", paced=False, streams=1, times=60),
    Load("at once, 64 streams", paced=False, streams=64, times=3),
    Load("one each 5 ms, 8 streams", paced=True, streams=8, times=2),
    Load("one each 5 ms, 64 streams", paced=True, streams=64, times=1),
)


def with_aiohttp(session: aiohttp.ClientSession, url: str) -> Read:
    """Read an answer as the engine did when its connections were aiohttp's."""

    async def read(generation: Generation) -> None:
        body = request_body(Endpoint.GENERATE, generation, "poured")
        async with session.post(url + Endpoint.GENERATE, data=body, allow_redirects=False) as response:
            while await response.content.readany():
                pass

    return read


def with_pool(pool: Pool, url: str) -> Read:
    """Read an answer with the pool that the engine has."""
    target = target_of(Place(url, url))

    async def read(generation: Generation) -> None:
        body = request_body(Endpoint.GENERATE, generation, "poured")
        connection = await pool.send("POST", target, Endpoint.GENERATE, {}, body)
        while await connection.read():
            pass
        connection.leave()

    return read


async def cost(read: Read, load: Load) -> float:
    """CPU µs of this process for each token."""
    sampling = Sampling(2 * TOKENS, 1.0 if load.paced else 0.0)
    generation = Generation("resp_0123456789abcdef", [1, 2, 3], sampling)

    async def stream() -> None:
        for _ in range(load.times):
            await read(generation)

    before = time.process_time()
    await asyncio.gather(*(stream() for _ in range(load.streams)))
    return (time.process_time() - before) / (load.streams * load.times * TOKENS) * 1e6


async def measure(port: int) -> dict[str, float]:
    """Print the table; the pool's part of aiohttp's cost, by load."""
    url, ratios = f"http://{HOST}:{port}", dict[str, float]()
    async with AsyncExitStack() as stack:
        session = await stack.enter_async_context(
            aiohttp.ClientSession(connector=aiohttp.TCPConnector(limit=0), auto_decompress=False)
        )
        pool = Pool(keeps=True, connect_seconds=CONNECT_SECONDS)
        stack.push_async_callback(pool.close)
        engine = vllm_engine(Access((url,)))
        await engine.start()
        stack.push_async_callback(engine.close)

        async def with_engine(generation: Generation) -> None:
            async with aclosing(engine.generate(generation)) as chunks:
                async for _ in chunks:
                    pass

        ways: dict[str, Read] = {
            "aiohttp": with_aiohttp(session, url),
            "pool": with_pool(pool, url),
            "engine": with_engine,
        }
        print(f"{'CPU µs a token':28}" + "".join(f"{way:>10}" for way in ways) + f"{'ratio':>10}")
        for load in LOADS:
            took: dict[str, list[float]] = {way: [] for way in ways}
            for counted in (False, *[True] * ROUNDS):
                for way, read in ways.items():
                    us = await cost(read, load)
                    if counted:
                        took[way].append(us)
            ratios[load.name] = median(
                ours / theirs for ours, theirs in zip(took["pool"], took["aiohttp"], strict=True)
            )
            figures = "".join(f"{median(each):10.2f}" for each in took.values())
            print(f"{load.name:28}{figures}{ratios[load.name]:10.2f}", flush=True)
    return ratios


def main() -> int:
    """Measure; 1 where --check finds the target missed."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--check", action="store_true")
    check = parser.parse_args().check
    with Server(["-m", "bench._pouring"], settings={"PYTHONPATH": str(ROOT)}, port_variable="POURING_PORT") as server:
        ratios = uvloop.run(measure(server.port))
    most = max(ratio for name, ratio in ratios.items() if name.startswith("at once"))
    print(f"reader: {most:.2f} of what aiohttp takes (target at most {TARGET})")
    return int(check and most > TARGET)


if __name__ == "__main__":
    sys.exit(main())
