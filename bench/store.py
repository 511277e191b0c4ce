"""The cost of the store to its server: appends that evict, touches, memory.

    scripts/bench store [--check] [--quick] [--server redis]

Server CPU is that of its main thread, as it says itself, for commands that were packed beforehand. A script and the
plain writes that it is compared with run in turns, so that whatever else the machine does hits both. Never compare with
writes of other bytes, and never let the rival's keys be warmer than the store's.
"""

import argparse
import asyncio
import json
import sys
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass
from statistics import median

from rich.progress import Progress

from bench._growth import PLAIN_REPLIES, SHAPES, TENANT, Conversations, PlainWrites, turn_of
from bench._rig import Commands, Server, recorded, running
from store.errors import NotFound
from store.history.caps import Caps
from store.history.history import ConversationHistoryStore
from store.jobs.jobs import Jobs
from store.redis.connection import connect

FLAT, RATIO, TOUCH_US, HELD = 1.3, 4.0, 10.0, 1.35
"""The targets: server time of an append at the fullest level against the emptiest, CPU of an append against the plain
writes, server time of a touch, and bytes that the server holds for a byte of payload at TURN_BYTES a turn."""

TURN_BYTES = 6_000
SMALL_TURN_BYTES = 200
"""What a million turns fit with in any machine's memory."""

LEVELS = {SMALL_TURN_BYTES: (10_000, 100_000, 1_000_000), TURN_BYTES: (10_000, 100_000)}
QUICK_LEVELS = {SMALL_TURN_BYTES: (1_000, 10_000), TURN_BYTES: (2_000,)}
DEPTHS = (1, 10, 100, 1_000, 10_000)
HELD_TURNS = {100: 4_000, 1_000: 3_000, TURN_BYTES: 2_000, 100_000: 200}

ROUNDS, OPERATIONS = 60, 100
AT_ONCE = 10
FILL_TURNS = 2_000


@dataclass(frozen=True)
class Level:
    """One append that evicts one, with so many turns stored, and the plain writes: µs of CPU, medians of the rounds.

    `least` and `script` are the least of all rounds, `busy_…` is with AT_ONCE sent at once. A ratio is the median of
    the rounds' own, as a round's two halves have the same neighbours.
    """

    size: int
    turns: int
    append: float
    least: float
    script: float
    plain: float
    ratio: float
    busy_append: float
    busy_ratio: float


@dataclass(frozen=True)
class Held:
    """What the server holds for turns of a size that grow in a shape, as multiples of their payload."""

    size: int
    shape: str
    held: float
    account: float


def measure_level(kind: str, size: int, turns: int, rounds: int) -> Level:
    """Fill a new server, then append and write plainly in turns: alone, and AT_ONCE at a time."""
    caps = Caps(responses=turns, bytes=0)
    grown, plain = Conversations(size), PlainWrites(size, turns)
    with running(kind) as server:
        fill(server, grown, plain, turns, caps)
        rows: dict[int, list[tuple[float, float]]] = {1: [], AT_ONCE: []}
        scripts: list[float] = []
        for _ in range(rounds):
            for at_once, pairs in rows.items():
                commands, writes = grown.commands(OPERATIONS, caps), plain.commands(OPERATIONS)
                append = server.cost(commands, at_once=at_once)
                pairs.append((append.cpu, server.cost(writes, replies=PLAIN_REPLIES, at_once=at_once).cpu))
                scripts += [append.script] if at_once == 1 else []
    return Level(
        size,
        turns,
        append=median(append for append, _ in rows[1]),
        least=min(append for append, _ in rows[1]),
        script=min(scripts),
        plain=median(plain for _, plain in rows[1]),
        ratio=median(append / plain for append, plain in rows[1]),
        busy_append=median(append for append, _ in rows[AT_ONCE]),
        busy_ratio=median(append / plain for append, plain in rows[AT_ONCE]),
    )


def fill(server: Server, grown: Conversations, plain: PlainWrites, turns: int, caps: Caps) -> None:
    """Store `turns` turns by the store's script, and as many plainly."""
    with Progress(transient=True) as progress:
        task = progress.add_task(f"{turns:,} turns of {grown.size:,} bytes", total=turns)
        for start in range(0, turns, FILL_TURNS):
            commands = grown.commands(min(FILL_TURNS, turns - start), caps)
            if any(reply[0] != b"ok" for reply in server.send(commands, len(commands))):
                raise RuntimeError("an append was refused")
            progress.advance(task, len(commands))
        for some in plain.fill():
            server.send(some, len(some))


def measure_touch(kind: str, rounds: int, depths: Sequence[int]) -> dict[int, float]:
    """µs that touch.lua takes for a turn at each depth of one chain."""
    ids: list[str] = []

    async def lengthen(store: ConversationHistoryStore) -> None:
        while len(ids) < max(depths):
            parent = ids[-1] if ids else None
            ids.append(store.new_id(parent))
            await store.append(TENANT, turn_of(ids[-1], parent, SMALL_TURN_BYTES))

    def touches(id: str) -> Commands:
        async def calls(store: ConversationHistoryStore) -> None:
            for _ in range(OPERATIONS):
                with suppress(NotFound):  # what it is told, so that it reads no response
                    await store.get(TENANT, id)

        return recorded(calls, reply="missing")

    with running(kind) as server:
        server.send(recorded(lengthen), max(depths))
        least = dict.fromkeys(depths, float("inf"))
        for _ in range(rounds):
            for depth in depths:
                least[depth] = min(least[depth], server.cost(touches(ids[depth - 1])).script)
    return least


def measure_held(kind: str, sizes: dict[int, int]) -> list[Held]:
    """What the server's memory grows by, and what the store says that it holds."""
    rows: list[Held] = []
    for size, count in sizes.items():
        for shape in SHAPES:
            with running(kind) as server:
                server.send(Conversations(size).commands(10, Caps()), 10)  # the first ones make what stays
                before, noted = server.held_bytes(), asyncio.run(account(server.url))
                grown = Conversations(size, (shape,))
                for _ in range(0, count, 20):
                    server.send(grown.commands(20, Caps()), 20)
                held, counted = server.held_bytes() - before, asyncio.run(account(server.url)) - noted
            rows.append(Held(size, shape, held / grown.stored_bytes, counted / grown.stored_bytes))
    return rows


async def account(url: str) -> int:
    """What the store says that the server holds for it."""
    store = ConversationHistoryStore(connect(url))
    try:
        return (await Jobs(store).queue(0)).bytes
    finally:
        await store.close()


@dataclass(frozen=True)
class Found:
    """All that one run measured."""

    server: str
    levels: list[Level]
    touch: dict[int, float]
    held: list[Held]

    @property
    def flat(self) -> float:
        """Server time of an append with the most turns stored, as a multiple of that with the fewest."""
        small = [level.script for level in self.levels if level.size == SMALL_TURN_BYTES]
        return small[-1] / small[0]

    @property
    def ratio(self) -> float:
        """The worst multiple of the plain writes with ordinary turns."""
        return max(level.ratio for level in self.levels if level.size == TURN_BYTES)

    @property
    def touch_us(self) -> float:
        """The worst touch."""
        return max(self.touch.values())

    @property
    def held_ratio(self) -> float:
        """The most that is held for a byte of payload with ordinary turns, in the shape that takes most."""
        return max(row.held for row in self.held if row.size == TURN_BYTES)

    @property
    def met(self) -> bool:
        """Whether all targets are."""
        return self.flat <= FLAT and self.ratio <= RATIO and self.touch_us <= TOUCH_US and self.held_ratio <= HELD


def measure(kind: str, quick: bool) -> Found:
    """Everything, on a server of the kind."""
    rounds = 25 if quick else ROUNDS
    chosen = QUICK_LEVELS if quick else LEVELS
    levels = [measure_level(kind, size, turns, rounds) for size, many in chosen.items() for turns in many]
    touch = measure_touch(kind, rounds, DEPTHS[:-1] if quick else DEPTHS)
    held = measure_held(kind, {size: count // 4 if quick else count for size, count in HELD_TURNS.items()})
    return Found(kind, levels, touch, held)


def report(found: Found) -> None:
    """Print the tables."""
    print("    bytes      turns  append us   least  script   plain  ratio  at once: append  ratio")
    for row in found.levels:
        print(
            f"{row.size:9,} {row.turns:10,} {row.append:10.1f} {row.least:7.1f} {row.script:7.1f} {row.plain:7.1f}"
            f" {row.ratio:6.2f} {row.busy_append:16.1f} {row.busy_ratio:6.2f}"
        )
    print("touch us:", ", ".join(f"{us:.1f} at {depth:,}" for depth, us in found.touch.items()))
    print("    bytes   shape  held / payload  account / held")
    for each in found.held:
        print(f"{each.size:9,} {each.shape:>7} {each.held:15.3f} {each.account / each.held:15.3f}")


def main() -> int:
    """0, or 1 when --check is given and a target missed."""
    parser = argparse.ArgumentParser(description="what the store costs the server")
    parser.add_argument("--check", action="store_true", help="exit 1 when a target is missed")
    parser.add_argument("--quick", action="store_true", help="fewer turns, and no million of them")
    parser.add_argument(
        "--server", choices=("embedded", "redis"), default="embedded", help="embedded, or the one on PATH"
    )
    parser.add_argument("--json", action="store_true", help="print all figures as JSON, too")
    options = parser.parse_args()
    found = measure(options.server, options.quick)
    report(found)
    if options.json:
        print(json.dumps(asdict(found)))
    print(
        f"store: {found.flat:.2f}x from fewest to most turns (target {FLAT}x),"
        f" {found.ratio:.2f}x the plain writes ({RATIO}x),"
        f" touch {found.touch_us:.1f} us ({TOUCH_US} us), {found.held_ratio:.2f} bytes held per byte ({HELD}):"
        f" {'met' if found.met else 'missed'}"
    )
    return 0 if found.met or not options.check else 1


if __name__ == "__main__":
    sys.exit(main())
