"""What the console's API costs where a tenant has many trees, some of a thousand turns: over HTTP, one after the other.

    scripts/bench console [--check] [--trees N] [--shards N]

Pages of 20 and of 100 from the front and from deep in the list, a filter that nothing matches, which looks at as many
trees as a request may, and trees of a thousand turns: a chain, a comb and forks of one turn. It prints as well for how
long one script has the server.
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
from bench.listing import of_scripts
from store.embedded import EmbeddedServer
from store.history.caps import Caps
from store.history.history import ConversationHistoryStore
from store.redis.connection import connect
from store.turn import Status, StoredMessage, Turn

TREES = 100_000
TREE_TURNS = 1_000
AT_ONCE = 50
TARGET_MS = 30.0
"""The most that a page of 20 may take at the 99th percentile, wherever it is in the list."""

TREE_TARGET_MS = 100.0
"""The most that a tree of a thousand turns may take, its median."""

SCRIPT_TARGET_MS = 2.0
"""The most for which a script may have the server, at the 99th percentile."""

TENANT = "default"
WORDS = [f"word{number}" for number in range(2_000)]


def turn_of(id: str, parent: str | None) -> Turn:
    """A turn of some 6 KB of JSON and 2 KB of tokens."""
    said = [" ".join(random.choices(WORDS, k=count)) for count in (40, 300, 300)]
    item = {"id": f"msg_{id[5:]}8000", "type": "message", "role": "user", "content": said[0]}
    output = [
        {"id": f"rs_{id[5:]}0000", "type": "reasoning", "content": [{"type": "reasoning_text", "text": said[1]}]},
        {"id": f"msg_{id[5:]}0001", "type": "message", "content": [{"type": "output_text", "text": said[2]}]},
    ]
    usage = {"input_tokens": 400, "output_tokens": 600, "total_tokens": 1_000}
    response = {
        "id": id,
        "object": "response",
        "model": "gpt-oss-20b",
        "usage": usage,
        "metadata": {},
        "output": output,
    }
    messages = (StoredMessage("user", random.randbytes(2_000)),)
    encode = msgspec.json.encode
    return Turn(id, parent, Status.COMPLETED, messages, encode(response), encode([item]))


async def fill(url: str, count: int, shards: int) -> dict[str, str]:
    """Store so many trees of one turn, and large ones; the ids of these by their shapes."""
    store = ConversationHistoryStore(connect(url), shards=shards, caps=Caps(responses=0, bytes=0), timeout_seconds=30.0)

    async def part(own: range) -> None:
        for _ in own:
            await store.append(TENANT, turn_of(store.new_id(), None))

    async def grown(shape: str) -> str:
        ids = [store.new_id()]
        await store.append(TENANT, turn_of(ids[0], None))
        for number in range(1, TREE_TURNS):
            parent = ids[{"chain": number - 1, "comb": max(0, number - 1 - number % 2), "forks": 0}[shape]]
            ids.append(store.new_id(parent))
            await store.append(TENANT, turn_of(ids[-1], parent))
        return ids[0]

    await asyncio.gather(*(part(range(first, count, AT_ONCE)) for first in range(AT_ONCE)))
    large = {shape: await grown(shape) for shape in ("chain", "comb", "forks")}
    await store.close()
    return large


async def cursors(client: Client, pages: int) -> list[str]:
    """Places from the front to the end of the list."""
    found, after = [], ""
    for _ in range(pages):
        page = msgspec.json.decode(await client.get(f"/console/api/trees?limit=100{after}"))
        if page["after"] is None:
            break
        found.append(page["after"])
        after = f"&after={page['after']}"
    return found


async def measure(port: int, large: dict[str, str], count: int, rounds: int) -> dict[str, list[float]]:
    """The seconds that requests took, by what they were for."""
    took: dict[str, list[float]] = {}
    async with Client(port) as client:
        places = await cursors(client, count // 100)

        async def ask(name: str, path: str) -> None:
            start = time.perf_counter()
            await client.get(path)
            took.setdefault(name, []).append(time.perf_counter() - start)

        for number in range(rounds):
            await ask("20, the front", "/console/api/trees?limit=20")
            await ask("20, anywhere", f"/console/api/trees?limit=20&after={random.choice(places)}")
            await ask("100, anywhere", f"/console/api/trees?limit=100&after={random.choice(places)}")
            if number % 10 == 0:
                await ask("20 of none", "/console/api/trees?limit=20&model=none")
                for shape, id in large.items():
                    await ask(f"a tree: {shape}", f"/console/api/trees/{id}")
    return took


async def run(url: str, count: int, shards: int, rounds: int) -> tuple[float, float, float]:
    """Print a line for each request; in ms the 99th percentile of a page of 20, the worst median of a tree, and the
    99th percentile of a script.
    """
    redis = connect(url)
    assert isinstance(redis, Redis)
    large = await fill(url, count, shards)
    settings = {"HARMONIUM_REDIS_URL": url, "HARMONIUM_SHARDS": str(shards), "HARMONIUM_MAX_RESPONSES": "0"}
    with Server(["-m", "service", "serve"], settings=settings) as server:
        await measure(server.port, large, 1_000, 10)
        await redis.config_resetstat()
        took = await measure(server.port, large, count, rounds)
        script = await of_scripts(redis)
    await redis.aclose()
    print(f"{count:,} trees, shards: {shards}")
    print("request             p50 ms    p99 ms")
    tails = {name: quantiles(each, n=100)[98] * 1e3 for name, each in took.items()}
    for name, each in took.items():
        print(f"{name:17} {median(each) * 1e3:8.2f}  {tails[name]:8.2f}")
    print(f"a script at the 99th percentile: {script:.2f} ms")
    trees = max(median(each) * 1e3 for name, each in took.items() if name.startswith("a tree"))
    return max(tails["20, the front"], tails["20, anywhere"]), trees, script


def main() -> int:
    """0, or 1 when --check is given and a target missed."""
    parser = argparse.ArgumentParser(description="the cost of the console's pages and trees")
    parser.add_argument("--check", action="store_true", help="exit 1 when a target is missed")
    parser.add_argument("--trees", type=int, default=TREES, help=f"how many ({TREES})")
    parser.add_argument("--shards", type=int, default=1, help="in how many shards (1)")
    parser.add_argument("--rounds", type=int, default=300, help="how many pages of each kind (300)")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder, EmbeddedServer(Path(folder)) as server:
        page, tree, script = asyncio.run(run(server.url, options.trees, options.shards, options.rounds))
    met = page <= TARGET_MS and tree <= TREE_TARGET_MS and script <= SCRIPT_TARGET_MS
    print(
        f"console: {page:.1f} ms for a page of 20 at the 99th percentile, {tree:.1f} ms for a tree of a thousand turns,"
        f" {script:.1f} ms for a script (target {TARGET_MS:.0f}, {TREE_TARGET_MS:.0f} and {SCRIPT_TARGET_MS:.0f}):"
        f" {'met' if met else 'missed'}"
    )
    return 0 if met or not options.check else 1


if __name__ == "__main__":
    sys.exit(main())
