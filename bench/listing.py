"""What a page of `GET /v1/conversations` costs where a tenant has many: over HTTP, one request after the other.

    scripts/bench listing [--check] [--conversations N] [--shards N]

Pages of 20 and of 100 from anywhere in the list, and filters that one in a hundred matches, or none: these look at as
many as a request may. It prints as well for how long one of their scripts has the server.
"""

import argparse
import asyncio
import random
import sys
import tempfile
import time
from pathlib import Path
from statistics import median, quantiles

import msgspec
from redis.asyncio import Redis

from bench._harness import Client, Server
from service.api.conversation import Conversation
from store.embedded import EmbeddedServer
from store.history.caps import Caps
from store.history.conversations import Conversations, by_hand
from store.history.history import ConversationHistoryStore
from store.redis.connection import connect

CONVERSATIONS = 100_000
RARE = 100
"""One in so many has what a filter looks for."""

AT_ONCE = 50
TARGET_MS = 25.0
"""The most that a page of 20 may take at the 99th percentile."""

SCRIPT_TARGET_MS = 2.0
"""The most for which a script may have the server, at the 99th percentile."""

TENANT = "default"
PAGES = {
    "20": "limit=20",
    "100": "limit=100",
    "20 of 1 in 100": "limit=20&metadata[rare]=yes",
    "20 of none": "limit=20&metadata[rare]=never",
}


async def fill(url: str, count: int, shards: int) -> list[str]:
    """Begin so many conversations; their ids."""
    store = ConversationHistoryStore(connect(url), shards=shards, caps=Caps(responses=0, bytes=0), timeout_seconds=30.0)
    conversations = Conversations(store)

    async def part(own: range) -> list[str]:
        ids = [conversations.new_id() for _ in own]
        for number, id in zip(own, ids, strict=True):
            metadata = {"user": f"user {number % 1000}", "rare": "no" if number % RARE else "yes"}
            shown = msgspec.json.encode(Conversation(id, 1_700_000_000, metadata))
            await conversations.create(TENANT, id, by_hand(conversations.new_turn_id(id), None, ()), shown)
        return ids

    made = await asyncio.gather(*(part(range(first, count, AT_ONCE)) for first in range(AT_ONCE)))
    await store.close()
    return [id for ids in made for id in ids]


async def measure(port: int, ids: list[str], rounds: int) -> dict[str, list[float]]:
    """The seconds that pages took, by what they were of."""
    took: dict[str, list[float]] = {name: [] for name in PAGES}
    async with Client(port) as client:
        for _ in range(rounds):
            for name, query in PAGES.items():
                order = random.choice(["asc", "desc"])
                start = time.perf_counter()
                await client.get(f"/v1/conversations?{query}&order={order}&after={random.choice(ids)}")
                took[name].append(time.perf_counter() - start)
    return took


async def of_scripts(redis: Redis) -> float:
    """The milliseconds that a script has the server for, at the 99th percentile since statistics were reset."""
    stats = await redis.info("latencystats")
    return stats["latency_percentiles_usec_evalsha"]["p99"] / 1e3


async def run(url: str, count: int, shards: int, rounds: int) -> tuple[float, float]:
    """Print a line for each kind of page; the 99th percentiles in ms of a page of 20, and of a script."""
    redis = connect(url)
    assert isinstance(redis, Redis)
    ids = await fill(url, count, shards)
    settings = {"HARMONIUM_REDIS_URL": url, "HARMONIUM_SHARDS": str(shards), "HARMONIUM_MAX_RESPONSES": "0"}
    with Server(["-m", "service", "serve"], settings=settings) as server:
        await measure(server.port, ids, 10)
        await redis.config_resetstat()
        took = await measure(server.port, ids, rounds)
        script = await of_scripts(redis)
    await redis.aclose()
    print(f"{count:,} conversations, shards: {shards}")
    print("page              p50 ms    p99 ms")
    tails = {name: quantiles(each, n=100)[98] * 1e3 for name, each in took.items()}
    for name, each in took.items():
        print(f"{name:15} {median(each) * 1e3:8.2f}  {tails[name]:8.2f}")
    print(f"a script at the 99th percentile: {script:.2f} ms")
    return tails["20"], script


def main() -> int:
    """0, or 1 when --check is given and a target missed."""
    parser = argparse.ArgumentParser(description="the cost of a page of conversations")
    parser.add_argument("--check", action="store_true", help="exit 1 when a target is missed")
    parser.add_argument("--conversations", type=int, default=CONVERSATIONS, help=f"how many ({CONVERSATIONS})")
    parser.add_argument("--shards", type=int, default=1, help="in how many shards (1)")
    parser.add_argument("--rounds", type=int, default=300, help="how many pages of each kind (300)")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder, EmbeddedServer(Path(folder)) as server:
        ran = run(server.url, options.conversations, options.shards, options.rounds)
        tail, script = asyncio.run(ran)
    met = tail <= TARGET_MS and script <= SCRIPT_TARGET_MS
    print(
        f"listing: {tail:.1f} ms for a page of 20 at the 99th percentile, {script:.1f} ms for a script"
        f" (target {TARGET_MS:.0f} and {SCRIPT_TARGET_MS:.0f}): {'met' if met else 'missed'}"
    )
    return 0 if met or not options.check else 1


if __name__ == "__main__":
    sys.exit(main())
