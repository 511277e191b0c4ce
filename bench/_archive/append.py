"""Append: what a store with an archive costs the server beyond one without.

Two servers get the same commands by turns, which were packed beforehand; one of them has an archive, and archives what
it got between the turns, which is told apart. Once both have room, and once each new turn evicts one.
"""

import asyncio
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass
from statistics import median

from bench._archive.opened import Bench, opened
from bench._archive.turns import TENANT, Conversations, conversations
from bench._rig import Commands, recorded, running
from bench._told import Target, table
from store.history.caps import Caps
from store.history.history import ConversationHistoryStore
from store.layout import LAYOUT
from tests.support.archive.opened import Place

TARGET_RATIO = 1.05
"""CPU of the server for an append with an archive, as a multiple of one without."""

DEPTH = 10
OPERATIONS = 100
ROUNDS = 80
KEPT_TURNS = 2_000
"""How many turns there is room for where each new one evicts one."""


@dataclass(frozen=True)
class Append:
    """µs of the server's CPU for an append, medians of the rounds, and the median of their ratios; and for a turn that
    is archived.
    """

    what: str
    plain: float
    archived: float
    ratio: float
    confirming: float


@dataclass(frozen=True)
class Appends:
    """What appends cost."""

    appends: Sequence[Append]

    def targets(self) -> list[Target]:
        """What is judged."""
        return [
            Target(f"times an append without an archive, {each.what}", each.ratio, TARGET_RATIO)
            for each in self.appends
        ]

    def lines(self) -> list[str]:
        """What is told."""
        heads = ("an append, us of the server", "without", "with", "ratio", "archiving a turn")
        return table(
            heads, [(each.what, each.plain, each.archived, each.ratio, each.confirming) for each in self.appends]
        )


async def measure(bench: Bench) -> Appends:
    """With room, and without."""
    made = await conversations()
    rounds, kept = bench.few(ROUNDS, 10), bench.few(KEPT_TURNS, 300)
    ways = {"with room": Caps(), "each evicts one": Caps(responses=kept)}
    return Appends([await measure_with(bench, made, what, caps, rounds) for what, caps in ways.items()])


async def measure_with(bench: Bench, made: Conversations, what: str, caps: Caps, rounds: int) -> Append:
    """Both by turns, once they are as full as they get."""
    warm = (caps.responses if caps.responses < Caps().responses else 0) // OPERATIONS + 2
    plain: list[float] = []
    archived: list[float] = []
    confirming: list[float] = []
    with running(bench.redis) as without, running(bench.redis) as behind, tempfile.TemporaryDirectory() as folder:
        async with opened(behind, Place("sqlite", f"sqlite://{folder}"), caps) as there:
            for number in bench.progress.track(range(warm + rounds), description=what):
                commands = await asyncio.to_thread(appends, made, caps)
                costs = {
                    side: side.cost(commands).cpu for side in ((without, behind) if number % 2 else (behind, without))
                }
                before = behind.cpu_us()
                await there.archive_all()
                if number >= warm:
                    plain.append(costs[without])
                    archived.append(costs[behind])
                    confirming.append((behind.cpu_us() - before) / OPERATIONS)
    ratio = median(one / other for one, other in zip(archived, plain, strict=True))
    return Append(what, median(plain), median(archived), ratio, median(confirming))


def appends(made: Conversations, caps: Caps) -> Commands:
    """What a store sends to append the next OPERATIONS turns."""

    async def calls(store: ConversationHistoryStore) -> None:
        store.follow_layout(LAYOUT)
        for _ in range(OPERATIONS // DEPTH):
            for turn in made.turns(store, DEPTH):
                await store.append(TENANT, turn)

    return recorded(calls, caps=caps)
