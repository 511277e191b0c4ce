"""How much fits: bytes a turn, conversations in a GiB, what a request costs a process and Redis, and what that makes of
1 M and 100 M conversations.

    scripts/bench capacity [--check] [--long] [--json]

A real `harmonium serve` on the demo engine, with the embedded server as its Redis, and eight requests at once. Bytes
are the growth of the server's `used_memory` and of its file; CPU is the processes' own, the engine's part in it. The
second half is arithmetic on that (bench/_sizing.py), and a simulation of how shards fill and lie on nodes.
"""

import argparse
import asyncio
import json
import random
import sys
import tempfile
import time
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from redis.asyncio import Redis

from bench._harness import Client, Server, connected, cpu_seconds
from bench._sizing import (
    GIB,
    ArchiveCosts,
    ArchivePlan,
    Costs,
    Demand,
    Machine,
    Plan,
    plan,
    plan_archive,
    table,
)
from store.embedded import EmbeddedServer

TOKENS = 200
"""Tokens of every answer, reasoning included; the input has some twenty."""

DEPTHS = (1, 10, 50)
TYPICAL = 10
TURNS = 400
"""Turns that are stored for each depth, and requests of each kind; ten times as many with --long."""

CONCURRENCY = 8
WARM_UP = 100
TARGET_BYTES = 4_000
TARGET_MIB = 160
"""What a turn of TOKENS tokens may hold of Redis at depth TYPICAL, and a process of memory at rest."""

DEMANDS = (Demand(1_000_000), Demand(10_000_000), Demand(100_000_000))
VLLM_TOKEN_SECONDS = 80e-6
"""What a token from a vLLM server costs a process, all of its request included: scripts/bench vllm, eight at once,
answers of 32 tokens. The demo engine's cost less."""

ARCHIVE = ArchiveCosts(value_bytes=795, file_bytes=990, process_seconds=115e-6)
"""What a turn comes to in an archive: scripts/bench archive --only carry, an object store's CPU."""

NODES_GIB = (64, 256)
"""The memory of nodes of Redis that are planned with."""

PATH = "/v1/responses"
MIB = 1 << 20
SETTINGS = {"HARMONIUM_STORE_CACHE_BYTES": str(8 * MIB), "HARMONIUM_WORKER_CONCURRENCY": str(CONCURRENCY)}
"""A small read cache, so that what is measured at rest is not what it holds."""


@dataclass(frozen=True)
class Size:
    """What turns of a depth hold of the server's memory and of its file, in bytes a turn."""

    depth: int
    memory: float
    file: float


@dataclass(frozen=True)
class Cost:
    """What a kind of request costs: CPU of the process and of Redis in milliseconds; and how many came a second."""

    kind: str
    process_ms: float
    redis_ms: float
    a_second: float


@dataclass(frozen=True)
class Measured:
    """All of it; memory of the process in bytes."""

    sizes: Sequence[Size]
    costs: Sequence[Cost]
    at_rest: int
    after: int

    def size(self, depth: int) -> Size:
        """That of a depth."""
        return next(each for each in self.sizes if each.depth == depth)

    def cost(self, kind: str) -> Cost:
        """That of a kind."""
        return next(each for each in self.costs if each.kind == kind)


def body(number: int, tokens: int = TOKENS, **more: object) -> bytes:
    """A request whose answer is cut at so many tokens."""
    words = f"Write at least 400 words about the year {1000 + number}, please, and be brief."
    return json.dumps({"model": "gpt-oss-20b", "input": words, "max_output_tokens": tokens, **more}).encode()


class Rig:
    """The service, its Redis and the clients."""

    def __init__(self, server: Server, store: EmbeddedServer, redis: Redis, clients: Sequence[Client]) -> None:
        self.server = server
        self.clients = clients
        self._store = store
        self._redis = redis

    async def each(self, count: int, work: Callable[[Client, int], Awaitable[None]]) -> None:
        """Do `work` so many times, by all clients."""
        numbers = iter(range(count))

        async def take(client: Client) -> None:
            for number in numbers:
                await work(client, number)

        await asyncio.gather(*map(take, self.clients))

    async def held(self) -> tuple[int, int]:
        """The bytes that Redis holds in memory, and in its file."""
        found: dict[str, Any] = {**await self._redis.info("memory"), **await self._redis.info("persistence")}
        return int(found["used_memory"]), int(found["aof_current_size"])

    async def grown(self, depth: int, count: int, tokens: int = TOKENS) -> Size:
        """Store `count` turns of so many tokens in conversations of a depth."""
        before = await self.held()

        async def conversation(client: Client, number: int) -> None:
            parent: dict[str, str] = {}
            for turn in range(depth):
                answer = json.loads(await client.post(PATH, body(depth * number + turn, tokens, **parent)))
                parent = {"previous_response_id": answer["id"]}

        await self.each(count // depth, conversation)
        after = await self.held()
        turns = depth * (count // depth)
        return Size(depth, (after[0] - before[0]) / turns, (after[1] - before[1]) / turns)

    async def cost(self, kind: str, count: int, work: Callable[[Client, int], Awaitable[None]]) -> Cost:
        """Do `work` so many times."""
        process, redis, began = self.server.cpu_seconds(), cpu_seconds(self._store.pid), time.perf_counter()
        await self.each(count, work)
        seconds = time.perf_counter() - began
        spent = self.server.cpu_seconds() - process, cpu_seconds(self._store.pid) - redis
        return Cost(kind, 1e3 * spent[0] / count, 1e3 * spent[1] / count, count / seconds)


async def costs(rig: Rig, count: int) -> list[Cost]:
    """Each kind of request."""
    answer = json.loads(await rig.clients[0].post(PATH, body(0)))
    tips = [answer["id"]]
    for number in range(TYPICAL - 1):
        answer = json.loads(await rig.clients[0].post(PATH, body(number, previous_response_id=tips[-1])))
        tips.append(answer["id"])

    async def begin(client: Client, number: int) -> None:
        await client.post(PATH, body(number))

    async def go_on(client: Client, number: int) -> None:
        await client.post(PATH, body(number, previous_response_id=tips[-1]))

    async def stream(client: Client, number: int) -> None:
        await client.stream(PATH, body(number, stream=True))

    async def retrieve(client: Client, number: int) -> None:
        await client.get(f"{PATH}/{tips[number % len(tips)]}")

    async def in_background(client: Client, number: int) -> None:
        await client.stream(PATH, body(number, background=True, stream=True))

    return [
        await rig.cost("a conversation begins", count, begin),
        await rig.cost(f"it continues, {TYPICAL} turns deep", count, go_on),
        await rig.cost("streamed", count, stream),
        await rig.cost("in the background, and followed", count, in_background),
        await rig.cost("retrieved", 4 * count, retrieve),
    ]


async def measure(count: int) -> Measured:
    """Run everything."""
    with tempfile.TemporaryDirectory() as folder, EmbeddedServer(Path(folder)) as store:
        settings = {**SETTINGS, "HARMONIUM_REDIS_URL": store.url}
        with Server(["-m", "service", "serve"], settings=settings) as server:
            async with Redis.from_url(store.url) as redis, connected(server.port, CONCURRENCY) as clients:
                rig = Rig(server, store, redis, clients)
                await clients[0].get("/ready")
                at_rest = server.held_bytes()
                await rig.grown(1, WARM_UP)
                sizes = [await rig.grown(depth, count) for depth in DEPTHS]
                found = await costs(rig, count)
                return Measured(sizes, found, at_rest, server.held_bytes())


def report(found: Measured) -> None:
    """Print the tables."""
    sizes = [
        [str(each.depth), f"{each.memory:,.0f}", f"{each.file:,.0f}", f"{GIB / (each.depth * each.memory):,.0f}"]
        for each in found.sizes
    ]
    print(table(("turns", "bytes a turn", "in the file", "conversations in a GiB"), sizes), end="\n\n")
    rows = [
        [
            each.kind,
            f"{each.process_ms:.2f}",
            f"{1e3 / each.process_ms:,.0f}",
            f"{each.redis_ms:.3f}",
            f"{1e3 / each.redis_ms:,.0f}",
        ]
        for each in found.costs
    ]
    print(table(("request", "CPU ms", "a core", "Redis ms", "a Redis"), rows), end="\n\n")
    print(f"a process: {found.at_rest / MIB:.0f} MiB at rest, {found.after / MIB:.0f} MiB after all of that\n")
    heads = ("conversations", "turns/s", "GiB", "node GiB", "nodes", "shards", "GiB each", "a node", "by itself")
    plans = [
        [
            *(f"{demand.conversations:,}", f"{demand.turns_a_second:,.0f}", f"{made.gib:,.0f}"),
            *(f"{machine.memory / GIB:.0f}", str(made.nodes), str(made.shards), f"{made.shard_gib:.1f}"),
            *(str(made.shards_a_node), str(made.by_itself), f"{made.redis_cores:.2f}", str(made.processes)),
        ]
        for demand, machine, made in planned(found)
    ]
    print(table((*heads, "Redis cores", "processes"), plans), end="\n\n")
    heads = (
        "with an archive",
        "node GiB",
        "hours in memory",
        "GiB of objects",
        "of SQLite",
        "puts in 30 days",
        "cores",
    )
    archived = [
        [
            *(f"{demand.conversations:,}", f"{machine.memory / GIB:.0f}", f"{made.hours:,.1f}"),
            *(f"{made.objects_gib:,.0f}", f"{made.files_gib:,.0f}", f"{made.puts:,.0f}", f"{made.cores:.2f}"),
        ]
        for demand, machine, made in archives(found)
    ]
    print(table(heads, archived), end="\n\n")


def planned(found: Measured) -> list[tuple[Demand, Machine, Plan]]:
    """What each demand takes, on each kind of node."""
    each, machines = costs_of(found), [Machine(gib * GIB) for gib in NODES_GIB]
    return [
        (demand, machine, plan(each, demand, machine, random.Random(0))) for demand in DEMANDS for machine in machines
    ]


def archives(found: Measured) -> list[tuple[Demand, Machine, ArchivePlan]]:
    """What each demand takes with an archive and one node of Redis, of the smaller kind."""
    machine = Machine(NODES_GIB[0] * GIB)
    return [(demand, machine, plan_archive(costs_of(found), ARCHIVE, demand, machine)) for demand in DEMANDS]


def costs_of(found: Measured) -> Costs:
    """What is reckoned with."""
    typical = found.cost(f"it continues, {TYPICAL} turns deep")
    return Costs(found.size(TYPICAL).memory, typical.redis_ms / 1e3, TOKENS * VLLM_TOKEN_SECONDS)


def as_json(found: Measured) -> str:
    """All of it as one object."""
    plans = [
        {"demand": asdict(demand), "node": asdict(machine), "plan": asdict(made)}
        for demand, machine, made in planned(found)
    ]
    return json.dumps({"measured": asdict(found), "plans": plans}, indent=2)


def main() -> int:
    """0, or 1 when --check is given and a target missed."""
    parser = argparse.ArgumentParser(description="how many conversations fit, and what a request costs")
    parser.add_argument("--check", action="store_true", help="exit 1 when a target is missed")
    parser.add_argument("--long", action="store_true", help="ten times as many turns and requests")
    parser.add_argument("--json", action="store_true", help="print one JSON object instead of tables")
    options = parser.parse_args()
    found = asyncio.run(measure(TURNS * (10 if options.long else 1)))
    typical, rest = found.size(TYPICAL).memory, found.at_rest / MIB
    if options.json:
        print(as_json(found))
    else:
        report(found)
        print(
            f"capacity: {typical:,.0f} bytes a turn of {TOKENS} tokens at depth {TYPICAL}, {rest:.0f} MiB a process"
            f" (target <= {TARGET_BYTES:,} bytes and <= {TARGET_MIB} MiB)"
        )
    met = typical <= TARGET_BYTES and rest <= TARGET_MIB
    return 0 if met or not options.check else 1


if __name__ == "__main__":
    sys.exit(main())
