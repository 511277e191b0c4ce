"""Log: what an append costs the server beside a plain XADD of the same bytes, and what a token takes in memory.

The store's own commands and the plain ones were packed beforehand and run in turns, so what is measured is the server's
work for them and nothing of Python's. A plain XADD checks no lease, holds none, counts nothing and tells nobody; with a
publish, followers would hear of it. The rest is what the log promises, and this is its price.
"""

import asyncio
from dataclasses import dataclass
from statistics import median

from bench._background.processes import TENANT, Bench, opened, submit
from bench._background.writing import Growing
from bench._rig import Commands, Server, recorded, running
from bench._told import Target, table
from service.api.events import Event, OutputTextDelta
from service.responses.output.journal import Batch, encode_batch
from store.history.history import ConversationHistoryStore
from store.jobs.jobs import Jobs
from store.jobs.log import Entry
from store.jobs.model import Job, JobLimits
from store.redis.wire import pack

TARGET_RATIO = 3.5
"""CPU of an append as a multiple of a plain XADD's, at JUDGED events."""

BATCHES = (1, 8, 32)
JUDGED = 8
ROUNDS, OPERATIONS = 40, 200

SHAPES = (2, 8, 64)
TOKENS = 20_000
"""Tokens in a batch, and in the log whose memory is told."""

LEASE_SECONDS = 3600.0
WORDS = ("the", " quick", " brown", " fox", " jumps", " over", " a", " lazy dog.")


@dataclass(frozen=True)
class Append:
    """So many events in an append: µs of the server's CPU an event, for ours, a plain XADD, and one with a publish; the
    first as a multiple of the others; and the bytes of an event in the entry, and in the server's file, for ours and
    plain.
    """

    batch: int
    ours: float
    plain: float
    publishing: float
    ratio: float
    publishing_ratio: float
    sizes: tuple[float, float, float]


@dataclass(frozen=True)
class Held:
    """A log written in batches of so many tokens: bytes of memory a token for the log, and for the last snapshot; and
    µs of the server's CPU a token, all snapshots included."""

    batch: int
    log: float
    snapshot: float
    cpu: float


@dataclass(frozen=True)
class Costs:
    """What appends cost, and what logs hold."""

    appends: list[Append]
    held: list[Held]

    def targets(self) -> list[Target]:
        """What is judged."""
        ratio = next(each.ratio for each in self.appends if each.batch == JUDGED)
        return [Target(f"times the CPU of a plain XADD, {JUDGED} events an append", ratio, TARGET_RATIO)]

    def lines(self) -> list[str]:
        """What is told."""
        us = ("events an append", "us an event", "XADD", "ratio", "XADD, SPUBLISH", "ratio")
        rows = [
            (each.batch, each.ours, each.plain, each.ratio, each.publishing, each.publishing_ratio, *each.sizes)
            for each in self.appends
        ]
        held = [(each.batch, each.log, each.snapshot, each.cpu) for each in self.held]
        return [
            *table((*us, "bytes", "in the file", "XADD's"), rows),
            "",
            *table(("tokens a batch", "log bytes a token", "snapshot", "server us"), held),
        ]


async def measure(bench: Bench) -> Costs:
    """Appends of each size, and logs of each shape."""
    rounds, count = bench.few(ROUNDS, 10), bench.few(TOKENS, 3_000)
    appends = [await append(bench, batch, rounds) for batch in bench.progress.track(BATCHES, description="appends")]
    held = [await log_of(bench, size, count) for size in bench.progress.track(SHAPES, description="logs")]
    return Costs(appends, held)


async def append(bench: Bench, batch: int, rounds: int) -> Append:
    """Ours and the plain ones in turns."""
    with running(bench.redis) as redis:
        async with opened(redis, lease_seconds=LEASE_SECONDS) as service:
            await submit(service, "Write.")
            (job,) = (await service.jobs.claim(0, 1)).jobs
        script = Script(job, batch)
        ways = {"ours": script.ours, "plain": script.plain, "publishing": script.publishing}
        cpu: dict[str, list[float]] = {way: [] for way in ways}
        file: dict[str, int] = dict.fromkeys(ways, 0)
        for _ in range(rounds):
            script.next()
            for way, commands in ways.items():
                packed = await asyncio.to_thread(commands)  # on a loop of its own
                before = file_bytes(redis)
                cpu[way].append(redis.cost(packed, replies=1 + (way == "publishing")).cpu / batch)
                file[way] += file_bytes(redis) - before
    events = rounds * OPERATIONS * batch
    return Append(
        batch,
        **{way: median(each) for way, each in cpu.items()},
        ratio=median(ours / plain for ours, plain in zip(cpu["ours"], cpu["plain"], strict=True)),
        publishing_ratio=median(ours / told for ours, told in zip(cpu["ours"], cpu["publishing"], strict=True)),
        sizes=(script.entry_bytes / batch, file["ours"] / events, file["plain"] / events),
    )


def file_bytes(redis: Server) -> int:
    """How long the file is to which the server writes every change."""
    return int(redis.told("persistence")["aof_current_size"])


class Script:
    """The same entries for all ways, OPERATIONS at a time."""

    def __init__(self, job: Job, batch: int) -> None:
        self.entry_bytes = 0
        """Of the last entry."""
        self._job, self._batch = job, batch
        self._last = job.last
        self._item_id = f"msg_{job.lease.id.removeprefix('resp_')}0000"
        self._entries: list[Entry] = []

    def next(self) -> None:
        """Go on to the next entries."""
        self._entries = [self._entry() for _ in range(OPERATIONS)]
        self.entry_bytes = len(self._entries[-1].blob)

    def _entry(self) -> Entry:
        first, self._last = self._last + 1, self._last + self._batch
        deltas: list[Event] = [
            OutputTextDelta(self._item_id, 0, 0, WORDS[number % len(WORDS)], (), sequence_number=number)
            for number in range(first, self._last + 1)
        ]
        ids = b"".join(number.to_bytes(4, "little") for number in range(self._batch))
        return Entry(self._last, encode_batch(Batch(deltas, ids)))

    def ours(self) -> Commands:
        """As the store writes them."""

        async def calls(store: ConversationHistoryStore) -> None:
            jobs = Jobs(store, JobLimits(lease_seconds=LEASE_SECONDS))
            for entry in self._entries:
                await jobs.write(self._job.lease, entry)

        return recorded(calls)

    def plain(self) -> Commands:
        """The bytes alone, into a stream of their own."""
        return [pack(("XADD", "plain", f"{entry.last + 1}-0", "b", entry.blob)) for entry in self._entries]

    def publishing(self) -> Commands:
        """The bytes, and a message to a channel."""
        return [
            pack(("XADD", "told", f"{entry.last + 1}-0", "b", entry.blob))
            + pack(("SPUBLISH", "told", b"%d " % (entry.last + 1) + entry.blob))
            for entry in self._entries
        ]


async def log_of(bench: Bench, size: int, count: int) -> Held:
    """Write one log, and look at what the server holds."""
    with running(bench.redis) as redis:
        async with opened(redis, lease_seconds=LEASE_SECONDS) as service:
            growing = await Growing.begin(service, size)
            cpu = redis.cpu_us()
            await growing.grow(count)
            cpu = redis.cpu_us() - cpu
            await growing.close()
            keys = service.store.keyspace.turn(TENANT, growing.id)
        log, snapshot = (redis.ask("MEMORY", "USAGE", keys.key(family), "SAMPLES", 0) for family in ("log", "snapshot"))
    return Held(size, log / growing.tokens, snapshot / growing.tokens, cpu / growing.tokens)
