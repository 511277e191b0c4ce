"""What the dictionary of responses spares: bytes of Redis a turn, CPU to pack and unpack one, and of whole requests.

    scripts/bench dictionary [--check] [--json]

Two stores with a `harmonium serve` on the demo engine each, at the same time: one keeps the first layout, in which
responses are compressed by themselves, and the other one has this release's. Bytes are the growth of each server's
`used_memory`. Packing is timed in this process, by what the service stored; both kinds take turns in every round, and
so do requests. Nothing that is measured with was in what the dictionary was trained with.
"""

import argparse
import asyncio
import json
import sys
import tempfile
import time
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import asdict, dataclass
from pathlib import Path
from statistics import median

from redis.asyncio import Redis

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT))

from bench._harness import Client, Server, connected  # noqa: E402
from bench._sizing import table  # noqa: E402
from bench.capacity import CONCURRENCY, PATH, SETTINGS, Rig, body  # noqa: E402
from store import codec  # noqa: E402
from store.embedded import EmbeddedServer  # noqa: E402
from store.layout import FIRST, LAYOUT  # noqa: E402

KINDS = {"alone": FIRST, "dictionary": LAYOUT}
"""How responses are compressed, and in what layout they are."""

SHAPES = ((64, 1), (64, 10), (200, 1), (200, 10), (800, 10))
"""Tokens of an answer, and turns of a conversation."""

TYPICAL = (64, 10)
TURNS = 2_000
TARGET_BYTES = 1_900
"""What a turn of the typical shape may hold of Redis."""

ROUNDS, REQUESTS = 10, 200
PACKED = 400
"""Responses that packing is timed by."""


@dataclass(frozen=True)
class Held:
    """What a turn holds of Redis, in bytes, by kind: by what its memory grew by, and by the store's own account, which
    leaves out what the server has for all keys together; and its response blob alone.
    """

    tokens: int
    depth: int
    turn: Mapping[str, float]
    account: Mapping[str, float]
    blob: Mapping[str, float]


@dataclass(frozen=True)
class Cost:
    """The CPU of something in µs, by kind: the least of all rounds, and the median."""

    what: str
    least: Mapping[str, float]
    median: Mapping[str, float]


Rigs = Mapping[str, tuple[Rig, Redis]]


@asynccontextmanager
async def rigs() -> AsyncIterator[Rigs]:
    """A service of each kind, with a store of its own that is of its layout."""
    async with AsyncExitStack() as stack:
        found: dict[str, tuple[Rig, Redis]] = {}
        for kind, layout in KINDS.items():
            folder = stack.enter_context(tempfile.TemporaryDirectory())
            store = stack.enter_context(EmbeddedServer(Path(folder)))
            redis = await stack.enter_async_context(Redis.from_url(store.url))
            await redis.hset("harmonium:{00}:store", mapping={"layout": layout, "shards": 1})
            settings = {**SETTINGS, "HARMONIUM_REDIS_URL": store.url}
            server = stack.enter_context(Server(["-m", "service", "serve"], settings=settings))
            clients = await stack.enter_async_context(connected(server.port, CONCURRENCY))
            rig = Rig(server, store, redis, clients)
            await clients[0].get("/ready")
            await rig.grown(1, TURNS)
            found[kind] = rig, redis
        yield found


async def blobs(redis: Redis) -> dict[bytes, bytes]:
    """All response blobs."""
    keys = [key async for key in redis.scan_iter("*:response:*", count=1000)]
    values = [value for value in await redis.mget(keys) if isinstance(value, bytes)]
    return dict(zip(keys, values, strict=True))


async def accounted(redis: Redis) -> int:
    """What the store says that it holds."""
    return int(await redis.hget("harmonium:{00}:usage", "bytes") or 0)


async def held(found: Rigs, tokens: int, depth: int) -> Held:
    """Store turns of a shape with each kind."""
    turn: dict[str, float] = {}
    account: dict[str, float] = {}
    blob: dict[str, float] = {}
    for kind, (rig, redis) in found.items():
        before, counted = await blobs(redis), await accounted(redis)
        turn[kind] = (await rig.grown(depth, TURNS, tokens)).memory
        account[kind] = (await accounted(redis) - counted) / TURNS
        new = [value for key, value in (await blobs(redis)).items() if key not in before]
        blob[kind] = sum(map(len, new)) / len(new)
    return Held(tokens, depth, turn, account, blob)


def packing(stored: Sequence[bytes]) -> list[Cost]:
    """Packing and unpacking responses, a turn at a time."""
    texts = [codec.decode_response(blob) for blob in stored]
    numbers = {kind: codec.dictionary_of(layout) for kind, layout in KINDS.items()}
    packed = {kind: [codec.encode_response(*text, number) for text in texts] for kind, number in numbers.items()}
    pack: dict[str, list[float]] = {kind: [] for kind in KINDS}
    unpack: dict[str, list[float]] = {kind: [] for kind in KINDS}
    for _ in range(3 * ROUNDS):
        for kind, number in numbers.items():
            pack[kind].append(timed(lambda: [codec.encode_response(*text, number) for text in texts]) / len(texts))  # noqa: B023
            unpack[kind].append(timed(lambda: list(map(codec.decode_response, packed[kind]))) / len(texts))  # noqa: B023
    return [cost("pack a response", pack), cost("unpack it", unpack)]


def timed(work: Callable[[], object]) -> float:
    """How many µs of CPU it took."""
    began = time.process_time()
    work()
    return 1e6 * (time.process_time() - began)


def cost(what: str, rounds: Mapping[str, Sequence[float]]) -> Cost:
    """The least and the median of some rounds."""
    return Cost(
        what,
        {kind: min(each) for kind, each in rounds.items()},
        {kind: median(each) for kind, each in rounds.items()},
    )


async def requests(found: Rigs) -> list[Cost]:
    """Creating a response and retrieving one, by the CPU of the service."""
    made: dict[str, list[float]] = {kind: [] for kind in KINDS}
    got: dict[str, list[float]] = {kind: [] for kind in KINDS}
    ids = {
        kind: json.loads(await rig.clients[0].post(PATH, body(0, TYPICAL[0])))["id"] for kind, (rig, _) in found.items()
    }

    async def create(client: Client, number: int) -> None:
        await client.post(PATH, body(number, TYPICAL[0]))

    for _ in range(ROUNDS):
        for kind, (rig, _) in found.items():

            async def retrieve(client: Client, number: int, id: str = ids[kind]) -> None:
                await client.get(f"{PATH}/{id}")

            made[kind].append(1e3 * (await rig.cost("", REQUESTS, create)).process_ms)
            got[kind].append(1e3 * (await rig.cost("", REQUESTS, retrieve)).process_ms)
    return [cost(f"create, {TYPICAL[0]} tokens", made), cost("retrieve", got)]


async def measure() -> tuple[list[Held], list[Cost]]:
    """Everything."""
    async with rigs() as found:
        sizes = [await held(found, tokens, depth) for tokens, depth in SHAPES]
        stored = list((await blobs(found["dictionary"][1])).values())[:PACKED]
        return sizes, [*packing(stored), *await requests(found)]


def report(sizes: Sequence[Held], costs: Sequence[Cost]) -> None:
    """Print the tables."""
    rows = [
        [str(each.tokens), str(each.depth)]
        + [f"{values[kind]:,.0f}" for values in (each.turn, each.account, each.blob) for kind in KINDS]
        for each in sizes
    ]
    measures = [f"{what}, {kind}" for what in ("a turn", "by account", "blob") for kind in KINDS]
    heads: Sequence[str] = ("tokens", "turns", *measures)
    print(table(heads, rows), end="\n\n")
    rows = [
        [each.what, *(f"{values[kind]:,.1f}" for values in (each.least, each.median) for kind in KINDS)]
        for each in costs
    ]
    heads = ("CPU us", *(f"{which}, {kind}" for which in ("least", "median") for kind in KINDS))
    print(table(heads, rows), end="\n\n")


def main() -> int:
    """0, or 1 when --check is given and a target missed."""
    parser = argparse.ArgumentParser(description="what the dictionary of responses spares")
    parser.add_argument("--check", action="store_true", help="exit 1 when a target is missed")
    parser.add_argument("--json", action="store_true", help="print all figures as JSON, too")
    options = parser.parse_args()
    sizes, costs = asyncio.run(measure())
    report(sizes, costs)
    if options.json:
        print(json.dumps({"sizes": [asdict(each) for each in sizes], "costs": [asdict(each) for each in costs]}))
    typical = next(each for each in sizes if (each.tokens, each.depth) == TYPICAL).turn["dictionary"]
    slower = [each.what for each in costs[:2] if each.least["dictionary"] > each.least["alone"]]
    met = typical <= TARGET_BYTES and not slower
    print(
        f"dictionary: {typical:,.0f} bytes a turn of {TYPICAL[0]} tokens (target {TARGET_BYTES:,}),"
        f" slower: {', '.join(slower) or 'nothing'} (nothing): {'met' if met else 'missed'}"
    )
    return 0 if met or not options.check else 1


if __name__ == "__main__":
    sys.exit(main())
