"""Backends: frames of a tree of ten turns put and read back, side by side.

Puts come as many at once as an archive lets through, shard by shard, as an archiver's do; reads and rewrites one after
the other, as a request's do. Postgres is Debian's, where one is installed. S3 is a moto, which takes most of the time
itself, and the least server that does (`bench/_bucket.py`), so that it is out of the way. Nobody's network is in
between, but for the last row: a link of 25 ms.
"""

import asyncio
import random
import tempfile
import time
from collections.abc import Awaitable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from statistics import median, quantiles
from typing import NamedTuple

from bench._archive.opened import BOUNDS, LINK_SECONDS, Bench, bucket, disk_bytes, most_over_link
from bench._told import Target, table
from store.archive.archive import Archive
from tests.support.archive import servers
from tests.support.archive.link import link
from tests.support.archive.opened import Place, open_at

FRAME_BYTES = 7_730
"""Ten turns of 2.9 KB in one zstd frame with a dictionary."""

TURNS = 10
FRAMES = 200
"""How many different ones there are; they can't be compressed, as frames can't."""

PICKED = 64
"""How many trees of one shard come behind each other."""

READS = 1_000
REWRITES = 300
LINK_READS = 100

SQLITE_TURNS = 50_000
"""The fewest turns a second that are to be archived in SQLite."""

BUCKET_TREES = 1_000
"""The fewest trees a second with a server out of the way."""


LEAST = "S3, least server"


class Kind(NamedTuple):
    """A backend that is measured: where it is, into how many shards the trees go, and how many there are."""

    name: str
    place: Place
    shards: int
    trees: int


@dataclass(frozen=True)
class Found:
    """What one of them came to: trees a second, our own CPU for each, and seconds of single calls."""

    name: str
    rate: float
    cpu_us: float
    puts: Sequence[float]
    gets: Sequence[float]
    rewrites: Sequence[float]
    disk_bytes: float | None


def key_of(number: int, shards: int) -> str:
    """The key of a tree. Those of a shard come behind each other, as an archiver picks them, in no order."""
    return f"v1/{number // PICKED % shards:02x}/default/{random.Random(number).getrandbits(88):022x}/0"


async def timed(call: Awaitable[object]) -> float:
    """How many seconds it takes."""
    begun = time.perf_counter()
    await call
    return time.perf_counter() - begun


async def put_all(archive: Archive, kind: Kind, frames: Sequence[bytes]) -> tuple[float, list[float]]:
    """Put all trees, as many at once as the archive lets through; trees a second, and what each put took."""
    took: list[float] = []
    numbers = iter(range(kind.trees))

    async def some() -> None:
        for number in numbers:
            frame = frames[number % FRAMES]
            took.append(await timed(archive.put(key_of(number, kind.shards), frame, only_if=None)))

    whole = await timed(asyncio.gather(*(some() for _ in range(BOUNDS.concurrency))))
    return kind.trees / whole, took


async def rewrite(archive: Archive, key: str, frame: bytes) -> None:
    """What erasing one turn comes to."""
    found = await archive.get(key)
    assert found
    await archive.put(key, frame, only_if=found.etag)


async def measure_kind(kind: Kind) -> Found:
    """One backend."""
    chance = random.Random(19)
    frames = [chance.randbytes(FRAME_BYTES) for _ in range(FRAMES)]
    archive = open_at(kind.place, BOUNDS)
    cpu = time.process_time()
    rate, puts = await put_all(archive, kind, frames)
    cpu_us = 1e6 * (time.process_time() - cpu) / kind.trees
    somewhere = [key_of(chance.randrange(kind.trees), kind.shards) for _ in range(READS)]
    gets = [await timed(archive.get(key)) for key in somewhere]
    rewrites = [await timed(rewrite(archive, key, frames[0][:7000])) for key in somewhere[:REWRITES]]
    await archive.close()
    disk = await disk_bytes(kind.place)
    return Found(kind.name, rate, cpu_us, puts, gets, rewrites, disk / kind.trees if disk else None)


async def measure_link(place: Place) -> tuple[float, float]:
    """The median seconds of a read over a link, and of a read of what isn't there."""
    async with link(place.port) as between:
        archive = open_at(place.through(between.port), BOUNDS)
        key = key_of(-1, 1)
        await archive.put(key, bytes(FRAME_BYTES), only_if=None)
        between.delay_seconds = LINK_SECONDS
        hits = [await timed(archive.get(key)) for _ in range(LINK_READS)]
        misses = [await timed(archive.get(f"{key}9")) for _ in range(LINK_READS)]
        await archive.close()
    return median(hits), median(misses)


@dataclass(frozen=True)
class Backends:
    """What each of them came to, and the median seconds of a read over the link, and of one of what isn't there."""

    found: Sequence[Found]
    hit: float
    miss: float

    def targets(self) -> list[Target]:
        """What is judged."""
        rates = {each.name: each.rate for each in self.found}
        turns = TURNS * min(rate for name, rate in rates.items() if name.startswith("sqlite"))
        return [
            Target("turns a second put into SQLite", turns, SQLITE_TURNS, least=True),
            Target("trees a second put into S3, the server out of the way", rates[LEAST], BUCKET_TREES, least=True),
            Target("ms a read over the link", 1e3 * self.hit, 1e3 * most_over_link()),
        ]

    def lines(self) -> list[str]:
        """What is told: the median and the 99th percentile of calls in ms."""
        calls = [f"{call} {which}" for call in ("put", "get", "rewrite") for which in ("p50", "p99")]
        rows = [
            (
                *(each.name, each.rate, TURNS * each.rate, each.cpu_us),
                *(figure for took in (each.puts, each.gets, each.rewrites) for figure in spread(took)),
                each.disk_bytes or "-",
            )
            for each in self.found
        ]
        over = f"over a link of {1e3 * LINK_SECONDS:g} ms: {1e3 * self.hit:.1f} ms a read, {1e3 * self.miss:.1f} a miss"
        return [*table(("", "trees/s", "turns/s", "CPU us", *calls, "B a tree"), rows), over]


def spread(took: Sequence[float]) -> tuple[float, float]:
    """The median and the 99th percentile, in ms."""
    return 1e3 * median(took), 1e3 * quantiles(took, n=100)[98]


@contextmanager
def kinds(part: int) -> Iterator[list[Kind]]:
    """All that can run here; one in `part` of their trees."""
    with ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory()))
        least = stack.enter_context(bucket())
        moto = stack.enter_context(servers.s3())
        found = [
            Kind("sqlite, 1 file", Place("sqlite", f"sqlite://{folder}/one"), 1, 50_000 // part),
            Kind("sqlite, 16 files", Place("sqlite", f"sqlite://{folder}/many"), 16, 50_000 // part),
            Kind(LEAST, least, 16, 10_000 // part),
            Kind("S3, moto", Place("s3", f"s3://{servers.BUCKET}", moto, servers.access(moto)), 16, 2_000 // part),
        ]
        if programs := servers.postgres_programs():
            port = stack.enter_context(servers.postgres(programs, syncs=True))
            found.append(Kind("postgres", Place("postgres", servers.database(port), port), 16, 20_000 // part))
        yield found


async def measure(bench: Bench) -> Backends:
    """Each of them, and the link."""
    with kinds(bench.few(1, 10)) as all_kinds:
        found = [await measure_kind(kind) for kind in bench.progress.track(all_kinds, description="backends")]
        hit, miss = await measure_link(next(kind.place for kind in all_kinds if kind.name == LEAST))
    return Backends(found, hit, miss)
