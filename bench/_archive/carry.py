"""Carry: how fast one process archives what a store has, from Redis to the archive and back to say that it is there.

The store is filled first, with trees of DEPTH turns. Then nothing else runs in this process.
"""

import tempfile
import time
from collections.abc import Sequence
from contextlib import ExitStack
from dataclasses import dataclass

from bench._archive.opened import Bench, bucket, disk_bytes, opened
from bench._archive.turns import Conversations, conversations
from bench._rig import running
from bench._told import Target, table
from store.archive.archive import Archive
from tests.support.archive.opened import Place

TARGET_TREES = 1_000
"""The fewest trees a second that are to be archived in an object store with its server out of the way."""

TARGET_SQLITE_BYTES, TARGET_VALUE_BYTES = 1_000, 850
"""The most that a turn may take: in SQLite's file, and in a value."""

DEPTH = 10
TREES = 4_000


@dataclass(frozen=True)
class Carried:
    """Trees a second, CPU of this process and of Redis for a turn in µs, and bytes of a turn: in its value, and in its
    file, where these are told.
    """

    where: str
    rate: float
    cpu: float
    redis_cpu: float
    value: float
    disk: float


@dataclass(frozen=True)
class Carrying:
    """What archiving comes to."""

    carried: Sequence[Carried]

    def targets(self) -> list[Target]:
        """What is judged."""
        sqlite, objects = self.carried
        return [
            Target(
                "trees of ten turns a second, end to end, S3 out of the way", objects.rate, TARGET_TREES, least=True
            ),
            Target("bytes of a turn in SQLite's file", sqlite.disk, TARGET_SQLITE_BYTES),
            Target("bytes of a turn in a value", sqlite.value, TARGET_VALUE_BYTES),
        ]

    def lines(self) -> list[str]:
        """What is told."""
        heads = ("where", "trees/s", "turns/s", "CPU us a turn", "Redis us", "B in a value", "B on disk")
        rows = [
            (each.where, each.rate, DEPTH * each.rate, each.cpu, each.redis_cpu, each.value, each.disk)
            for each in self.carried
        ]
        return table(heads, rows)


async def measure(bench: Bench) -> Carrying:
    """SQLite and an object store."""
    made = await conversations()
    trees = bench.few(TREES, 300)
    with ExitStack() as stack:
        folder = stack.enter_context(tempfile.TemporaryDirectory())
        places = {"sqlite": Place("sqlite", f"sqlite://{folder}"), "S3, least server": stack.enter_context(bucket())}
        return Carrying([await carry(bench, made, where, place, trees) for where, place in places.items()])


async def carry(bench: Bench, made: Conversations, where: str, place: Place, trees: int) -> Carried:
    """Fill a store, and archive it."""
    task = bench.progress.add_task(f"{trees:,} trees to {where}", total=None)
    with running(bench.redis) as redis:
        async with opened(redis, place) as there:
            await made.fill(there.store, trees, DEPTH)
            began, cpu, redis_cpu = time.perf_counter(), time.process_time(), redis.cpu_us()
            await there.archive_all()
            took, cpu, redis_cpu = time.perf_counter() - began, time.process_time() - cpu, redis.cpu_us() - redis_cpu
            value = await value_bytes(there.archive) if place.kind == "sqlite" else 0
    disk = disk_bytes(place) or 0
    bench.progress.remove_task(task)
    turns = trees * DEPTH
    return Carried(where, trees / took, 1e6 * cpu / turns, redis_cpu / turns, value / turns, disk / turns)


async def value_bytes(archive: Archive) -> int:
    """The bytes of all values of an archive."""
    total, after = 0, ""
    while page := await archive.list("v1/", after=after):
        total, after = total + sum(entry.size for entry in page), page[-1].key
    return total
