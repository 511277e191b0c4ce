"""Many: a million conversations with room for 50,000 in memory, of which ten thousand are asked for.

One process stores them and archives them at the same time, as a service does. What it holds, and what Redis does, is
told on the way: that must not grow with what is archived. Those that are asked for are chosen at random, most of them
away; each is read, and some are continued.
"""

import asyncio
import os
import random
import tempfile
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from statistics import median, quantiles

from rich.progress import TaskID

from bench._archive.opened import Bench, Opened, disk_bytes, opened
from bench._archive.turns import TENANT, Conversations, conversations
from bench._harness import held_bytes
from bench._rig import Server, running
from bench._told import Target, table
from store.errors import NotFound, StoreFull
from store.history.caps import Caps
from tests.support.archive.opened import Place

CONVERSATIONS, KEPT, ASKED, CONTINUED = 1_000_000, 50_000, 10_000, 500
QUICK = 50
"""The part of these that a short run takes."""

STOPS = 10
"""How often it is told what is held."""

FLAT = 1.05
"""What process and Redis may hold at the end as a multiple of what they held at the second stop."""

AT_ONCE = 32
RETRY_SECONDS = 0.05


@dataclass(frozen=True)
class Held:
    """After so many conversations: bytes of the process, of Redis and of the archive's files, and how many were stored
    a second since the last stop.
    """

    conversations: int
    process: int
    redis: int
    disk: int
    a_second: float


@dataclass(frozen=True)
class Many:
    """What was held, and what became of those that were asked for: seconds for each that was found."""

    held: Sequence[Held]
    asked: int
    found: Sequence[float]
    away: int
    continued: int
    full: int

    def targets(self) -> list[Target]:
        """What is judged."""
        early, late = self.held[1], self.held[-1]
        return [
            Target("conversations found of those asked for", len(self.found) / self.asked, 1.0, least=True),
            Target("times the process's memory at a fifth", late.process / early.process, FLAT),
            Target("times the memory of Redis at a fifth", late.redis / early.redis, FLAT),
        ]

    def lines(self) -> list[str]:
        """What is told."""
        heads = ("conversations", "process MB", "Redis MB", "archive MB", "stored a second")
        rows = [
            (each.conversations, each.process / 1e6, each.redis / 1e6, each.disk / 1e6, each.a_second)
            for each in self.held
        ]
        most = quantiles(self.found, n=100)[98]
        return [
            *table(heads, rows),
            f"{len(self.found):,} of {self.asked:,} found, {self.away:,} of them away:"
            f" {1e3 * median(self.found):.2f} ms p50, {1e3 * most:.2f} p99;"
            f" {self.continued:,} continued; {self.full:,} times there was no room until more was archived",
        ]


async def measure(bench: Bench) -> Many:
    """Store them, then ask."""
    part = bench.few(1, QUICK)
    made = await conversations()
    with running(bench.redis) as redis, tempfile.TemporaryDirectory() as folder:
        place = Place("sqlite", f"sqlite://{folder}")
        async with opened(redis, place, Caps(responses=KEPT // part)) as there:
            filling = Filling(there, made, redis, place, bench, part)
            async with asyncio.TaskGroup() as group:  # what archives may fail, and then nothing would ever find room
                archiving = group.create_task(archive(there))
                await filling.fill()
                await there.archive_all()
                found = await asked(filling)
                archiving.cancel()
            return found


async def archive(there: Opened) -> None:
    """Archive what is due, for ever."""
    while True:
        await there.archiving.archive_due()
        await asyncio.sleep(RETRY_SECONDS)


class Filling:
    """Stores conversations of one turn, and remembers some of them, chosen beforehand."""

    def __init__(
        self, there: Opened, made: Conversations, redis: Server, place: Place, bench: Bench, part: int
    ) -> None:
        """One in `part` of them."""
        self.there, self.made = there, made
        self.held: list[Held] = []
        self.remembered: list[str] = []
        self.full = 0
        self._redis, self._place, self._bench = redis, place, bench
        self._count = CONVERSATIONS // part
        self._chosen = set(random.Random(20).sample(range(self._count), ASKED // part))

    async def fill(self) -> None:
        """Store all."""
        task = self._bench.progress.add_task(f"{self._count:,} conversations", total=self._count)
        for start in range(0, self._count, self._count // STOPS):
            numbers, began = range(start, start + self._count // STOPS), time.monotonic()
            left = iter(numbers)
            await asyncio.gather(*(self._some(left, task) for _ in range(AT_ONCE)))
            await self._look(numbers.stop, len(numbers) / (time.monotonic() - began))
        self._bench.progress.remove_task(task)

    async def _some(self, left: Iterator[int], task: TaskID) -> None:
        """Store the next ones."""
        for number in left:
            id = await self._store()
            if number in self._chosen:
                self.remembered.append(id)
            self._bench.progress.advance(task)

    async def _store(self) -> str:
        (turn,) = self.made.turns(self.there.store, 1)
        while True:
            try:
                await self.there.store.append(TENANT, turn)
            except StoreFull:
                self.full += 1
                await asyncio.sleep(RETRY_SECONDS)
            else:
                return turn.id

    async def _look(self, stored: int, rate: float) -> None:
        disk = disk_bytes(self._place) or 0
        self.held.append(Held(stored, held_bytes(os.getpid()), self._redis.held_bytes(), disk, rate))


async def asked(filling: Filling) -> Many:
    """Ask for those that are remembered, in any order."""
    store, ids = filling.there.store, filling.remembered
    random.Random(21).shuffle(ids)
    found: list[float] = []
    away = 0
    for id in ids:
        away += not await in_memory(filling.there, id)
        began = time.perf_counter()
        try:
            response = await store.get(TENANT, id)
        except NotFound:
            continue
        if id.encode() in response:
            found.append(time.perf_counter() - began)
    continued = 0
    for id in ids[:CONTINUED]:
        chain = await store.chain(TENANT, id)
        continued += chain.ids == (id,)
    return Many(filling.held, len(ids), found, away, continued, filling.full)


async def in_memory(there: Opened, id: str) -> bool:
    """Whether Redis has a turn."""
    keys = there.store.keyspace.turn(TENANT, id)
    async with there.store.server.operation() as operation:
        return bool(await operation.command("EXISTS", keys.key("node")))
