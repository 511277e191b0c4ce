"""What the console's API costs where a tenant has many trees, some of a thousand turns; and its page in a browser.

    scripts/bench console [--check] [--only api|browser] [--trees N] [--shards N] [--minutes N]

Pages of 20 and of 100 from the front and from deep in the list, a filter that nothing matches, which looks at as many
trees as a request may, and trees of a thousand turns: a chain, a comb and forks of one turn; over HTTP, one after the
other. It prints as well for how long one script has the server.

In a browser, which needs Chromium: when the page first shows something, and what a tab holds that is open for a working
day, in fast motion (bench/_opened.py).
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

from bench._harness import HOST, Client, Server
from bench._opened import CHROMIUM, DAY_MINUTES, GROWTH_TARGET_BYTES, NODES_TARGET, PAINT_TARGET_MS, look
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

WATCHED_TOKENS_A_SECOND = 100
"""How fast the demo engine is where a browser looks at what runs."""

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


async def run(url: str, large: dict[str, str], count: int, shards: int, rounds: int) -> bool:
    """Print a line for each request; whether a page of 20, a tree and a script are within their targets."""
    redis = connect(url)
    assert isinstance(redis, Redis)
    with Server(["-m", "service", "serve"], settings=settings_of(url, shards)) as server:
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
    tree = max(median(each) * 1e3 for name, each in took.items() if name.startswith("a tree"))
    page = max(tails["20, the front"], tails["20, anywhere"])
    met = page <= TARGET_MS and tree <= TREE_TARGET_MS and script <= SCRIPT_TARGET_MS
    print(
        f"console: {page:.1f} ms for a page of 20 at the 99th percentile, {tree:.1f} ms for a tree of a thousand turns,"
        f" {script:.1f} ms for a script (target {TARGET_MS:.0f}, {TREE_TARGET_MS:.0f} and {SCRIPT_TARGET_MS:.0f}):"
        f" {'met' if met else 'missed'}"
    )
    return met


def browse(url: str, shards: int, minutes: int) -> bool:
    """Print what the page comes to in a browser; whether that is within its targets."""
    if not CHROMIUM.exists():
        print(f"console: nothing was measured in a browser, as there is no {CHROMIUM}")
        return False
    pace = {"HARMONIUM_DEMO_TOKENS_PER_SECOND": str(WATCHED_TOKENS_A_SECOND)}
    with Server(["-m", "service", "serve"], settings=settings_of(url, shards) | pace) as server:
        found = look(f"http://{HOST}:{server.port}", minutes)
    heap, nodes, listeners = found.grown
    print(
        f"console: the first of it is seen after {found.paint:.0f} ms; a tab holds {heap / 1e3:,.0f} kB of heap,"
        f" {nodes} nodes and {listeners} listeners more than after its first hour (target {PAINT_TARGET_MS:.0f},"
        f" {GROWTH_TARGET_BYTES / 1e3:,.0f}, {NODES_TARGET} and 0): {'met' if found.met else 'missed'}"
    )
    return found.met


def settings_of(url: str, shards: int) -> dict[str, str]:
    """The settings of a service with this store."""
    return {"HARMONIUM_REDIS_URL": url, "HARMONIUM_SHARDS": str(shards), "HARMONIUM_MAX_RESPONSES": "0"}


def main() -> int:
    """0, or 1 when --check is given and a target missed."""
    parser = argparse.ArgumentParser(
        description="the cost of the console's pages and trees, and of its page in a browser"
    )
    parser.add_argument("--check", action="store_true", help="exit 1 when a target is missed")
    parser.add_argument("--only", choices=("api", "browser"), help="measure this alone")
    parser.add_argument("--trees", type=int, default=TREES, help=f"how many ({TREES})")
    parser.add_argument("--shards", type=int, default=1, help="in how many shards (1)")
    parser.add_argument("--rounds", type=int, default=300, help="how many pages of each kind (300)")
    parser.add_argument("--minutes", type=int, default=DAY_MINUTES, help=f"how long the tab is open ({DAY_MINUTES})")
    options = parser.parse_args()
    met = True
    with tempfile.TemporaryDirectory() as folder, EmbeddedServer(Path(folder)) as server:
        large = asyncio.run(fill(server.url, options.trees, options.shards))
        if options.only != "browser":
            met = asyncio.run(run(server.url, large, options.trees, options.shards, options.rounds))
        if options.only != "api":
            met = browse(server.url, options.shards, options.minutes) and met
    return 0 if met or not options.check else 1


if __name__ == "__main__":
    sys.exit(main())
