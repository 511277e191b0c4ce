"""What the archive's backends cost: frames of a tree of ten turns put and read back, side by side in one run.

    scripts/bench archive [--check] [--quick]

Puts come as many at once as an archive lets through, shard by shard, as an archiver's do; reads and rewrites one after
the other, as a request's do. Postgres is Debian's, where one is installed. S3 is a moto, which takes most of the time
itself, and the least server that does (`bench/_bucket.py`), so that it is out of the way. Nobody's network is in
between, but for the last row: a link of 25 ms.
"""

import argparse
import asyncio
import os
import random
import sys
import tempfile
import time
from collections.abc import Awaitable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from statistics import median, quantiles
from typing import NamedTuple

import asyncpg

from store.archive.archive import Archive
from store.archive.port import Bounds
from store.archive.postgres import TABLE
from tests.support.archive import servers
from tests.support.archive.link import link
from tests.support.archive.opened import Place, open_at
from tests.support.ports import free_port
from tests.support.waiting import wait_until

FRAME_BYTES = 7_730
"""Ten turns of 2.9 KB in one zstd frame with a dictionary."""

TURNS = 10
FRAMES = 200
"""How many different ones there are; they can't be compressed, as frames can't."""

PICKED = 64
"""How many trees of one shard come behind each other."""

READS = 1_000
REWRITES = 300
BOUNDS = Bounds(total_seconds=60.0, request_seconds=60.0, connect_seconds=5.0)
LINK_SECONDS = 0.025
LINK_READS = 100

SQLITE_TURNS = 50_000
"""The fewest turns a second that are to be archived in SQLite."""

BUCKET_TREES = 1_000
"""The fewest trees a second with a server out of the way."""

LINK_RATIO, LINK_MORE = 1.3, 0.010
"""What a read over a link may take at the median: so many times the link's own round trip, and so many seconds."""


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


async def measure(kind: Kind) -> Found:
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
    disk = await taken(kind.place)
    return Found(kind.name, rate, cpu_us, puts, gets, rewrites, disk / kind.trees if disk else None)


async def taken(place: Place) -> int | None:
    """How many bytes an archive has taken of its disk; None where it has none."""
    if place.kind == "sqlite":
        return sum(entry.stat().st_size for entry in os.scandir(place.url.removeprefix("sqlite://")))
    if place.kind != "postgres":
        return None
    connection = await asyncpg.connect(place.url)
    size = "SELECT sum(pg_total_relation_size(oid)) FROM pg_class WHERE relname LIKE $1 AND relkind = 'r'"
    found = await connection.fetchval(size, f"{TABLE}%")
    await connection.close()
    return int(found)


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


@contextmanager
def bucket() -> Iterator[Place]:
    """The least server, in a process of its own."""
    port = free_port()
    with servers.running([sys.executable, "-m", "bench._bucket", str(port)]):
        wait_until(lambda: servers.listens(port), passing=OSError)
        yield Place("s3", f"s3://{servers.BUCKET}", port, servers.access(port))


def report(found: Sequence[Found]) -> None:
    """Print the table: trees and turns a second, the median and the 99th percentile of calls in ms, bytes on disk."""
    print(f"{'':18} {'trees/s':>9} {'turns/s':>9} {'CPU us':>7} {'put p50':>8} {'p99':>8} {'get p50':>8} {'p99':>8}"
          f" {'rewrite':>8} {'p99':>8} {'B/tree':>8}")  # fmt: skip
    for each in found:
        calls = "".join(f" {ms:8.2f}" for took in (each.puts, each.gets, each.rewrites) for ms in figures(took))
        disk = f"{each.disk_bytes:8,.0f}" if each.disk_bytes else f"{'-':>8}"
        print(f"{each.name:18} {each.rate:9,.0f} {TURNS * each.rate:9,.0f} {each.cpu_us:7.0f}{calls} {disk}")


def figures(took: Sequence[float]) -> tuple[float, float]:
    """The median and the 99th percentile, in ms."""
    return 1e3 * median(took), 1e3 * quantiles(took, n=100)[98]


def main() -> int:
    """0, or 1 when --check is given and a target missed."""
    parser = argparse.ArgumentParser(description="what the archive's backends cost")
    parser.add_argument("--check", action="store_true", help="exit 1 when a target is missed")
    parser.add_argument("--quick", action="store_true", help="a tenth of the trees")
    options = parser.parse_args()
    part = 10 if options.quick else 1
    with ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory()))
        least = stack.enter_context(bucket())
        moto = stack.enter_context(servers.s3())
        kinds = [
            Kind("sqlite, 1 file", Place("sqlite", f"sqlite://{folder}/one"), 1, 50_000 // part),
            Kind("sqlite, 16 files", Place("sqlite", f"sqlite://{folder}/many"), 16, 50_000 // part),
            Kind("S3, least server", least, 16, 10_000 // part),
            Kind("S3, moto", Place("s3", f"s3://{servers.BUCKET}", moto, servers.access(moto)), 16, 2_000 // part),
        ]
        if programs := servers.postgres_programs():
            port = stack.enter_context(servers.postgres(programs, syncs=True))
            kinds.append(Kind("postgres", Place("postgres", servers.database(port), port), 16, 20_000 // part))
        found = [asyncio.run(measure(kind)) for kind in kinds]
        hit, miss = asyncio.run(measure_link(least))
    report(found)
    print(f"over a link of {1e3 * LINK_SECONDS:g} ms: {1e3 * hit:.1f} ms a read, {1e3 * miss:.1f} ms a miss")
    rates = {each.name: each.rate for each in found}
    turns = TURNS * min(rate for name, rate in rates.items() if name.startswith("sqlite"))
    trees, most = rates["S3, least server"], LINK_RATIO * LINK_SECONDS + LINK_MORE
    met = turns >= SQLITE_TURNS and trees >= BUCKET_TREES and hit <= most
    print(
        f"archive: {turns:,.0f} turns/s with SQLite (target {SQLITE_TURNS:,}),"
        f" {trees:,.0f} trees/s with S3 out of the way ({BUCKET_TREES:,}),"
        f" {1e3 * hit:.1f} ms a read over the link ({1e3 * most:.1f}): {'met' if met else 'missed'}"
    )
    return 0 if met or not options.check else 1


if __name__ == "__main__":
    sys.exit(main())
