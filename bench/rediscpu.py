"""What the store's operations cost Redis in CPU, one after the other as a process sends them; beside another checkout.

    scripts/bench rediscpu [--check] [--quick] [--server embedded] [--against CHECKOUT] [--json]

CPU is that of the server's main thread, as it says itself: of scripts, of the commands in them, of writing to its file
and of its sockets. The calls are the store's own, each awaited before the next, so the server wakes up for each. With
`--against` the same calls run by turns with the store of another checkout, in a process and on a server of its own, so
that whatever else the machine does hits both. Never compare the figures of two runs: use `--against`.
"""

import argparse
import asyncio
import json
import subprocess
import sys
from collections.abc import Awaitable, Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import asdict, dataclass
from pathlib import Path
from random import randbytes
from statistics import median
from typing import IO, NamedTuple, cast

from msgspec import structs
from rich.progress import track

from bench._growth import turn_of
from bench._rig import Server, running
from bench._told import Target, report, table
from store.history.history import ConversationHistoryStore
from store.jobs.jobs import Jobs
from store.jobs.log import Entry, EventLog
from store.jobs.model import JobLimits, Lease
from store.listening import Listening
from store.redis.connection import connect
from store.turn import Expense, Status

PING, CREATE = "PING", "a create begins"
FOLLOWED, JOURNALED = "an event followed, 2 at once", "8 events journaled"
TARGETS = {CREATE: 12.0, FOLLOWED: 1.6, JOURNALED: 3.3}
"""The most that each may cost as a multiple of a PING, which is what it takes to be asked anything."""

WARM_UP, ROUNDS, QUICK_ROUNDS, OPERATIONS = 2, 40, 8, 100
TENANT = "bench"
TURN_BYTES, EVENT_BYTES = 1_000, 15
"""What a turn of 64 tokens takes, and an event in a batch of 8."""

FOLLOWED_EVENTS, JOURNALED_EVENTS = 2, 8
CHAINS, DEPTH = 20, 10
LEASE_SECONDS = 3600.0
ASKING = ("cmdstat_info", "cmdstat_evalsha", "cmdstat_ping")
"""What is not counted as a command: how this is measured, and what is counted by its parts."""

ROOT = Path(__file__).resolve().parent.parent
BEGIN = """
import sys
_, checkout, root, kind = sys.argv
sys.path[:1] = [checkout]
import store
sys.path[:1] = [root]
from bench import rediscpu
import asyncio
asyncio.run(rediscpu.serve(kind))
"""
"""The program of a process: the store of one checkout, measured by this one."""


class Spent(NamedTuple):
    """What the server spent on one operation: µs of CPU, µs in scripts, and commands, those in scripts included."""

    cpu: float
    script: float
    commands: float


@dataclass(frozen=True)
class Row:
    """An operation: medians of the rounds, and of its CPU as a multiple of a PING in the same round; those of another
    checkout, and of the ratios of the two."""

    operation: str
    spent: Spent
    pings: float
    other: Spent | None
    ratio: float | None


@dataclass(frozen=True)
class Found:
    """All operations."""

    rows: Sequence[Row]

    def targets(self) -> list[Target]:
        """What is judged."""
        found = {row.operation: row.pings for row in self.rows}
        return [Target(f"times the CPU of a PING, {name}", found[name], most) for name, most in TARGETS.items()]

    def lines(self) -> list[str]:
        """What is told."""
        columns = ["operation", "Redis us", "in scripts", "commands", "PINGs"]
        more = ["other: Redis us", "in scripts", "commands", "ratio"]
        compared = any(row.other for row in self.rows)
        rows = [(row.operation, *row.spent, row.pings, *(row.other or ()), row.ratio) for row in self.rows]
        if compared:
            return table([*columns, *more], rows)
        return table(columns, [each[: len(columns)] for each in rows])


class Work:
    """The operations on one server: each does so many of what it is named for."""

    def __init__(self, store: ConversationHistoryStore) -> None:
        self._store = store
        self._jobs = Jobs(store, JobLimits(lease_seconds=LEASE_SECONDS))
        self._log = EventLog(store)
        self._tips: list[str] = []
        self._leases: dict[int, Lease] = {}
        self._last: dict[int, int] = {}

    async def begin(self, channels: Listening) -> None:
        """Have a log that is followed for as long as this process lasts, and one that is not; and some chains."""
        for events in (FOLLOWED_EVENTS, JOURNALED_EVENTS):
            self._leases[events], self._last[events] = await self._claimed(), 0
        for _ in range(CHAINS):
            tip = None
            for _ in range(DEPTH):
                tip = await self._append(tip, None)
            self._tips.append(str(tip))
        channel = self._log.channel(TENANT, self._leases[FOLLOWED_EVENTS].id)
        await channels.channel(channel).__aenter__()

    def operations(self) -> dict[str, Callable[[int], Awaitable[None]]]:
        """By their names."""
        return {
            PING: self._ping,
            CREATE: self._create,
            f"a create continues {DEPTH} turns": self._continue,
            FOLLOWED: lambda count: self._write(count // FOLLOWED_EVENTS, FOLLOWED_EVENTS),
            JOURNALED: lambda count: self._write(count, JOURNALED_EVENTS),
            "a quiet follower": self._tail,
            "a background response": self._in_background,
        }

    async def _ping(self, count: int) -> None:
        for _ in range(count):
            async with self._store.server.operation() as operation:
                await operation.command("PING")

    async def _create(self, count: int) -> None:
        for _ in range(count):
            await self._append(None, None)

    async def _continue(self, count: int) -> None:
        for number in range(count):
            tip = self._tips[number % len(self._tips)]
            pin = self._store.token()
            await self._store.pin(TENANT, tip, pin)
            await self._append(tip, pin)

    async def _append(self, parent: str | None, pin: str | None) -> str:
        expense = Expense("key_1", "gpt-oss-20b", 100, 50, 64, 10)
        turn = structs.replace(turn_of(self._store.new_id(parent), parent, TURN_BYTES), expense=expense)
        await self._store.append(TENANT, turn, pin=pin)
        return turn.id

    async def _write(self, count: int, events: int) -> None:
        for _ in range(count):
            self._last[events] += events
            await self._jobs.write(self._leases[events], Entry(self._last[events], randbytes(EVENT_BYTES * events)))

    async def _tail(self, count: int) -> None:
        read = getattr(self._log, "tail_soon", self._log.tail)  # an older checkout has no other
        await asyncio.gather(*(read(TENANT, self._leases[JOURNALED_EVENTS].id) for _ in range(count)))

    async def _in_background(self, count: int) -> None:
        for _ in range(count):
            lease = await self._claimed()
            ended = structs.replace(turn_of(lease.id, None, TURN_BYTES), status=Status.COMPLETED)
            await self._jobs.finish(lease, ended, Entry(1, randbytes(EVENT_BYTES)))

    async def _claimed(self) -> Lease:
        turn = structs.replace(turn_of(self._store.new_id(), None, TURN_BYTES), status=Status.QUEUED)
        await self._jobs.submit(TENANT, turn, randbytes(TURN_BYTES), Entry(0, randbytes(EVENT_BYTES)), streams=True)
        (job,) = (await self._jobs.claim(0, 1)).jobs
        return job.lease


async def serve(kind: str) -> None:
    """For each line on standard input do a round of every operation, and tell what each has cost."""
    with running(kind) as server:
        redis = connect(server.url)
        store, channels = ConversationHistoryStore(redis), Listening(redis)
        work = Work(store)
        await work.begin(channels)
        operations = work.operations()
        while await asyncio.to_thread(sys.stdin.readline):
            found = {name: await cost(server, operation) for name, operation in operations.items()}
            print(json.dumps(found), flush=True)
        await channels.close()
        await store.close()


async def cost(server: Server, operation: Callable[[int], Awaitable[None]]) -> Spent:
    """Of one of OPERATIONS."""
    before = spent(server)
    await operation(OPERATIONS)
    return Spent(*((now - then) / OPERATIONS for now, then in zip(spent(server), before, strict=True)))


def spent(server: Server) -> Spent:
    """So far; a script's own time has that of the commands in it."""
    stats = {
        name: dict(each.split("=") for each in told.split(",")) for name, told in server.told("commandstats").items()
    }
    calls = sum(int(each["calls"]) for name, each in stats.items() if name not in ASKING)
    return Spent(server.cpu_us(), float(stats.get("cmdstat_evalsha", {"usec": 0})["usec"]), calls)


@contextmanager
def serving(kind: str, checkout: Path) -> Iterator[Callable[[], dict[str, Spent]]]:
    """A process with the store of a checkout; a function that has it do a round."""
    command = [sys.executable, "-c", BEGIN, str(checkout), str(ROOT), kind]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, cwd=checkout, text=True) as process:
        asks, answers = cast(tuple[IO[str], IO[str]], (process.stdin, process.stdout))

        def measured() -> dict[str, Spent]:
            asks.write("\n")
            asks.flush()
            return {name: Spent(*each) for name, each in json.loads(answers.readline()).items()}

        yield measured
        asks.close()


def measure(kind: str, rounds: int, other: Path | None) -> Found:
    """All operations, by turns with those of another checkout."""
    with ExitStack() as stack:
        sides = [stack.enter_context(serving(kind, path)) for path in (ROOT, other) if path]
        found = [by_turns(sides, number) for number in track(range(WARM_UP + rounds), transient=True)][WARM_UP:]
    return Found([row_of(name, found) for name in found[0][0]])


def by_turns(sides: Sequence[Callable[[], dict[str, Spent]]], number: int) -> list[dict[str, Spent]]:
    """A round of each side, of which another one begins each time."""
    order = sorted(range(len(sides)), key=lambda side: (side + number) % len(sides))
    found = {side: sides[side]() for side in order}
    return [found[side] for side in range(len(sides))]


def row_of(operation: str, found: Sequence[Sequence[dict[str, Spent]]]) -> Row:
    """What the rounds found of one operation, of each the one side or both."""
    ours, *others = (
        Spent(*map(median, zip(*(side[operation] for side in sides), strict=True)))
        for sides in zip(*found, strict=True)
    )
    pings = median(each[0][operation].cpu / each[0][PING].cpu for each in found)
    ratio = median(each[0][operation].cpu / each[1][operation].cpu for each in found) if others else None
    return Row(operation, ours, pings, others[0] if others else None, ratio)


def main() -> int:
    """0, or 1 when --check is given and a target missed."""
    parser = argparse.ArgumentParser(description="what the store's operations cost Redis in CPU")
    parser.add_argument("--check", action="store_true", help="exit 1 when a target is missed")
    parser.add_argument("--quick", action="store_true", help="a smoke test; its figures say little")
    parser.add_argument("--server", choices=("embedded", "redis"), default="redis", help="the one on PATH, or embedded")
    parser.add_argument("--against", type=Path, metavar="CHECKOUT", help="another checkout to compare with")
    parser.add_argument("--json", action="store_true", help="print all figures as JSON, too")
    options = parser.parse_args()
    found = measure(options.server, QUICK_ROUNDS if options.quick else ROUNDS, options.against)
    judged = found.targets()
    report({"rediscpu": found}, judged)
    if options.json:
        print(json.dumps(asdict(found)))
    met = sum(each.met for each in judged)
    print(f"rediscpu: {met} of {len(judged)} targets met")
    return 0 if met == len(judged) or not options.check else 1


if __name__ == "__main__":
    sys.exit(main())
