"""What harmonium before a real vLLM costs, beside raw tokens in and out and beside vLLM's own Responses endpoint.

    scripts/bench vllm [--check] [--json] [--url URL] [--gpu] [--smol] [--profile]

One vLLM serves all three ways (_vllm.py). Each continues the same conversation of 1, 10 and 50 turns from its tip
again and again, streaming, with one request under way, with 8 and with 32; the prompt and the number of tokens are the
same. The ways take turns within a round, so that whatever else the machine does hits all of them; a figure is the
median of the rounds, a latency the percentile of all of them. CPU is that of the process that serves HTTP alone:
neither vLLM's engine, which works in children, nor the client, nor the embedded store counts.

The model is the talker, or with --smol SmolLM2, whose prompts its chat template makes.
"""

import argparse
import asyncio
import json
import sys
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import AsyncExitStack, ExitStack
from itertools import product
from pathlib import Path
from statistics import median, quantiles
from typing import NamedTuple, Self, cast
from urllib.parse import urlsplit

import uvloop

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT))

from bench._harness import HOST, LAST_CHUNK, cpu_seconds  # noqa: E402
from bench._vllm import (  # noqa: E402
    DEPTHS,
    GENERATE,
    HARMONIUM,
    OWN,
    SMOL,
    TALKER,
    TOKENS,
    Vllm,
    Way,
    harmonium,
    listening_process,
    ways,
)

CONCURRENCIES = (1, 8, 32)
AHEAD_FROM = 10
"""Turns from which on harmonium has to be ahead of vLLM's Responses endpoint."""

MOST_CPU_US, LEAST_SHARE = 45.0, 0.98
"""With several requests under way: CPU of a token in harmonium, and the share of raw generate's requests/s."""

TARGET_ADDED_MS = 3.0
TARGET_SHARE = 0.95
"""On a GPU, over raw generate: added to the first token and to the total at p50 for one request at a time, and the
share of requests/s that is left at eight."""

REQUEST_SECONDS = 60


class Timing(NamedTuple):
    """Seconds from sending a request to its first token of text, and to its end."""

    first: float
    total: float


class Round(NamedTuple):
    """What one way did with one load: requests/s, CPU seconds a token of its server and of vLLM's, and its timings."""

    rate: float
    cpu: float
    vllm_cpu: float
    timings: list[Timing]


Cell = tuple[int, int, str]
"""What is measured: turns, requests under way, the way's name."""


class Connection(asyncio.Protocol):
    """A connection that times streamed answers as their bytes come, and does next to nothing else with them."""

    def __init__(self, way: Way) -> None:
        self._way = way
        self._received = bytearray()
        self._first = 0.0
        self._ended: asyncio.Future[float] | None = None

    async def __aenter__(self) -> Self:
        loop = asyncio.get_running_loop()
        transport, _ = await loop.create_connection(lambda: self, HOST, self._way.port)
        self._transport = cast(asyncio.Transport, transport)
        return self

    async def __aexit__(self, *raised: object) -> None:
        self._transport.close()

    async def ask(self, depth: int) -> Timing:
        """Send the way's request for a depth. Raises RuntimeError if the answer isn't what was to come."""
        body = self._way.bodies[depth]
        head = f"POST {self._way.path} HTTP/1.1\r\nhost: {HOST}\r\ncontent-type: application/json\r\n"
        self._received.clear()
        self._first, self._ended = 0.0, asyncio.get_running_loop().create_future()
        began = time.perf_counter()
        self._transport.write(f"{head}content-length: {len(body)}\r\n\r\n".encode() + body)
        ended = await asyncio.wait_for(self._ended, REQUEST_SECONDS)
        if not self._first or self._way.whole not in self._received:
            raise RuntimeError(f"{self._way.name} did not answer as expected: …{self._received[-2000:].decode()}")
        return Timing(self._first - began, ended - began)

    def data_received(self, data: bytes) -> None:
        """Note when the first token of text is here, and when all is."""
        self._received += data
        if not self._first and self._way.begun.search(self._received):
            self._first = time.perf_counter()
        if self._received.endswith(LAST_CHUNK) or not self._received.startswith(b"HTTP/1.1 200 "):
            self._end()

    def connection_lost(self, exc: Exception | None) -> None:
        """What came so far is all."""
        self._end()

    def _end(self) -> None:
        if self._ended is not None and not self._ended.done():
            self._ended.set_result(time.perf_counter())


async def load(way: Way, depth: int, under_way: int, count: int, pids: tuple[int, int]) -> Round:
    """`count` requests, `under_way` at once, after one on each connection that isn't counted.

    `pids` are the processes whose CPU is told: the way's own server, and vLLM's.
    """
    async with AsyncExitStack() as open_ones:
        connections = [await open_ones.enter_async_context(Connection(way)) for _ in range(under_way)]
        await asyncio.gather(*(each.ask(depth) for each in connections))
        waiting, timings = iter(range(count)), list[Timing]()

        async def work(connection: Connection) -> None:
            for _ in waiting:
                timings.append(await connection.ask(depth))

        before, began = [cpu_seconds(pid) for pid in pids], time.perf_counter()
        await asyncio.gather(*map(work, connections))
        seconds, after = time.perf_counter() - began, [cpu_seconds(pid) for pid in pids]
    own, vllm = ((now - then) / count / TOKENS for now, then in zip(after, before, strict=True))
    return Round(count / seconds, own, vllm, timings)


async def measure(ways: Sequence[Way], clocks: Mapping[str, int], rounds: int, count: int) -> dict[Cell, list[Round]]:
    """Every load on every way, `rounds` times; `count` requests one at a time, and twice as many several at a time, or
    one for each of these where that is more.
    """
    found: dict[Cell, list[Round]] = {}
    for number in range(rounds):
        say(f"round {number + 1} of {rounds}")
        for depth, under_way in product(DEPTHS, CONCURRENCIES):
            for way in (*ways[number % len(ways) :], *ways[: number % len(ways)]):  # nobody is always the first
                requests = count if under_way == 1 else max(2 * count, under_way)
                done = await load(way, depth, under_way, requests, (clocks[way.name], clocks[GENERATE]))
                found.setdefault((depth, under_way, way.name), []).append(done)
    return found


class Figures(NamedTuple):
    """What is told of a cell: requests/s, latencies in ms, CPU µs a token of its server, and of all that serve it."""

    rate: float
    first_p50: float
    first_p99: float
    total_p50: float
    total_p99: float
    cpu: float
    both: float


def figures(name: str, rounds: Sequence[Round]) -> Figures:
    """The figures of a cell's rounds."""
    first, total = ([timing[column] * 1e3 for each in rounds for timing in each.timings] for column in (0, 1))
    both = [each.cpu + (each.vllm_cpu if name == HARMONIUM else 0) for each in rounds]
    return Figures(
        rate=median(each.rate for each in rounds),
        first_p50=median(first),
        first_p99=quantiles(first, n=100, method="inclusive")[-1],
        total_p50=median(total),
        total_p99=quantiles(total, n=100, method="inclusive")[-1],
        cpu=median(each.cpu for each in rounds) * 1e6,
        both=median(both) * 1e6,
    )


class Target(NamedTuple):
    """A figure that is judged: what it is, its value, its limit, and whether it is met."""

    what: str
    value: float
    limit: float
    met: bool


class Added(NamedTuple):
    """What harmonium adds to raw generate: ms at p50, one request at a time, and the share of requests/s at eight."""

    first_ms: float
    total_ms: float
    share: float


def added(found: Mapping[Cell, Figures], depth: int) -> Added:
    """What harmonium adds at a depth."""
    one, eight, _ = CONCURRENCIES
    ours, raw = found[depth, one, HARMONIUM], found[depth, one, GENERATE]
    first, total = ours.first_p50 - raw.first_p50, ours.total_p50 - raw.total_p50
    return Added(first, total, share_of_raw(found, depth, eight))


def share_of_raw(found: Mapping[Cell, Figures], depth: int, under_way: int) -> float:
    """The share of raw generate's requests/s that is left."""
    return found[depth, under_way, HARMONIUM].rate / found[depth, under_way, GENERATE].rate


def cpu_targets(found: Mapping[Cell, Figures]) -> Iterator[Target]:
    """What is judged where vLLM's engine runs on the same cores."""
    for depth, under_way in product(DEPTHS, CONCURRENCIES):
        ours, own = found[depth, under_way, HARMONIUM], found[depth, under_way, OWN]
        at = f"at {depth} turns, {under_way} at once"
        yield Target(f"CPU us a token {at}", ours.cpu, own.cpu, ours.cpu < own.cpu)
        if depth >= AHEAD_FROM:
            yield Target(f"requests/s {at}", ours.rate, own.rate, ours.rate > own.rate)
            yield Target(f"total ms at p50 {at}", ours.total_p50, own.total_p50, ours.total_p50 < own.total_p50)
        if under_way > 1:
            share = share_of_raw(found, depth, under_way)
            yield Target(f"CPU us a token, by itself, {at}", ours.cpu, MOST_CPU_US, ours.cpu <= MOST_CPU_US)
            yield Target(f"share of raw generate's requests/s {at}", share, LEAST_SHARE, share >= LEAST_SHARE)


def gpu_targets(found: Mapping[Cell, Figures]) -> Iterator[Target]:
    """What is judged where vLLM's engine runs on a GPU."""
    for depth in DEPTHS:
        first, total, share = added(found, depth)
        yield Target(f"first ms added at {depth} turns", first, TARGET_ADDED_MS, first <= TARGET_ADDED_MS)
        yield Target(f"total ms added at {depth} turns", total, TARGET_ADDED_MS, total <= TARGET_ADDED_MS)
        yield Target(f"share of raw at {depth} turns", share, TARGET_SHARE, share >= TARGET_SHARE)


def report(found: Mapping[Cell, Figures], judged: Sequence[Target]) -> None:
    """Print a row for each cell, what harmonium adds to raw generate, and the targets that were missed."""
    columns = ("turns", "at once", "way", "req/s", "first p50", "p99", "total p50", "p99", "CPU us", "both")
    print(" ".join(f"{column:>10}" for column in columns))
    for (depth, under_way, name), each in found.items():
        print(f"{depth:10} {under_way:10} {name:>10} {each.rate:10.2f}", *(f"{value:10.1f}" for value in each[1:]))
    print("\nLatencies are ms; CPU is of a token, in the process that serves; `both` has vLLM's API process in it.\n")
    for depth in DEPTHS:
        first, total, share = added(found, depth)
        print(f"{depth:3} turns: {first:+.1f} ms first and {total:+.1f} ms total at p50, one at a time,")
        print(f"           and {share:.1%} of the requests/s at {CONCURRENCIES[1]}, over raw generate")
    for each in judged:
        if not each.met:
            print(f"missed: {each.what}: {each.value:.2f} against {each.limit:.2f}")
    print(f"vllm: {sum(each.met for each in judged)} of {len(judged)} targets met")


def as_json(found: Mapping[Cell, Figures], judged: Sequence[Target]) -> str:
    """All of the report's figures."""
    cells = [
        {"turns": depth, "concurrency": under_way, "way": name, **each._asdict()}
        for (depth, under_way, name), each in found.items()
    ]
    over = {depth: added(found, depth)._asdict() for depth in DEPTHS}
    return json.dumps({"cells": cells, "added": over, "targets": [each._asdict() for each in judged]}, indent=2)


def run(options: argparse.Namespace) -> dict[Cell, Figures]:
    """Start what is to be measured, and measure it."""
    asked = SMOL if options.smol else TALKER
    with ExitStack() as running:
        port = options.url or running.enter_context(Vllm(asked)).port
        service = running.enter_context(harmonium(port, profile=options.profile))
        say(f"holding conversations of {max(DEPTHS)} turns")
        all_ways = ways(port, service.port, asked)
        clocks = {way.name: listening_process(way.port) for way in all_ways}
        with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
            found = runner.run(measure(all_ways, clocks, options.rounds, options.requests))
    return {cell: figures(cell[-1], rounds) for cell, rounds in found.items()}


def say(what: str) -> None:
    """Tell how far it is."""
    print(f"{time.strftime('%H:%M:%S')} {what}", file=sys.stderr, flush=True)


def local_port(url: str) -> int:
    """The port of a URL on this machine; another's processes can't be measured."""
    parts = urlsplit(url)
    if parts.hostname not in (HOST, "localhost") or not parts.port:
        raise argparse.ArgumentTypeError(f"should be like http://{HOST}:8001, on this machine")
    return parts.port


def main() -> int:
    """0, or 1 when --check is given and a target missed."""
    parser = argparse.ArgumentParser(description="harmonium before vLLM, raw generate and vLLM's /v1/responses")
    parser.add_argument("--check", action="store_true", help="exit 1 when a target is missed")
    parser.add_argument("--rounds", type=int, default=5, help="how often each load is measured (5)")
    parser.add_argument("--requests", type=int, default=16, help="of a load in a round, more for several at once (16)")
    parser.add_argument("--url", type=local_port, help="a vLLM that runs here, with scale-out and the responses store")
    parser.add_argument("--gpu", action="store_true", help="judge what is added to raw generate instead; needs --url")
    parser.add_argument("--smol", action="store_true", help="SmolLM2, which speaks by a chat template")
    parser.add_argument("--profile", action="store_true", help="run harmonium under cProfile and print its top rows")
    parser.add_argument("--json", action="store_true", help="print the figures as JSON")
    options = parser.parse_args()
    if options.gpu and not options.url:
        parser.error("--gpu needs --url: scripts/vllm-cpu serves on the CPU")
    found = run(options)
    judged = list((gpu_targets if options.gpu else cpu_targets)(found))
    if options.json:
        print(as_json(found, judged))
    else:
        report(found, judged)
    return 0 if all(each.met for each in judged) or not options.check else 1


if __name__ == "__main__":
    sys.exit(main())
