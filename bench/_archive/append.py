"""Append: what it costs with an archive beyond what it does without.

Two servers get the same commands by turns, which were packed beforehand; one of them has an archive, and archives what
it got between the turns, which is told apart. Once both have room, and once each new turn evicts one. A whole append is
that of a store: the CPU of its process, too.
"""

import asyncio
import tempfile
import time
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from statistics import median

from bench._archive.opened import Bench, opened
from bench._archive.turns import TENANT, Conversations, conversations
from bench._rig import Commands, Server, recorded, running
from bench._told import Target, table
from store.history.caps import Caps
from store.history.history import ConversationHistoryStore
from store.redis.connection import connect
from tests.support.archive.opened import Place

TARGET_RATIO = 1.05
"""CPU of a whole append with an archive, as a multiple of one without."""

DEPTH = 10
OPERATIONS = 100
ROUNDS = 80
KEPT_TURNS = 2_000
"""How many turns there is room for where each new one evicts one."""


@dataclass(frozen=True)
class Append:
    """µs of the server's CPU for an append, medians of the rounds, and the median of their ratios; the same of a whole
    one; and µs of the server's CPU for a turn that is archived.
    """

    what: str
    plain: float
    archived: float
    ratio: float
    whole_plain: float
    whole_archived: float
    whole_ratio: float
    confirming: float


@dataclass(frozen=True)
class Appends:
    """What appends cost."""

    appends: Sequence[Append]

    def targets(self) -> list[Target]:
        """What is judged."""
        return [
            Target(f"times a whole append without an archive, {each.what}", each.whole_ratio, TARGET_RATIO)
            for each in self.appends
        ]

    def lines(self) -> list[str]:
        """What is told."""
        sides = ("without", "with", "ratio")
        heads = ("us", *(f"server {side}" for side in sides), *(f"whole {side}" for side in sides), "archiving a turn")
        return table(heads, [tuple(asdict(each).values()) for each in self.appends])


async def measure(bench: Bench) -> Appends:
    """With room, and without."""
    made = await conversations()
    rounds, kept = bench.few(ROUNDS, 10), bench.few(KEPT_TURNS, 300)
    ways = {"with room": Caps(), "each evicts one": Caps(responses=kept)}
    return Appends([await measure_with(bench, made, what, caps, rounds) for what, caps in ways.items()])


async def measure_with(bench: Bench, made: Conversations, what: str, caps: Caps, rounds: int) -> Append:
    """Both by turns, once they are as full as they get."""
    warm = (caps.responses if caps.responses < Caps().responses else 0) // OPERATIONS + 2
    served, whole = Sides(), Sides()
    confirming: list[float] = []
    with running(bench.redis) as without, running(bench.redis) as behind, tempfile.TemporaryDirectory() as folder:
        async with opened(behind, Place("sqlite", f"sqlite://{folder}"), caps) as there:
            plain = ConversationHistoryStore(connect(without.url), caps=caps)
            for number in bench.progress.track(range(warm + rounds), description=what):
                commands = await asyncio.to_thread(appends, made, caps)
                sides = [(without, plain), (behind, there.store)][:: 1 if number % 2 else -1]
                costs = {server: server.cost(commands).cpu for server, _ in sides}
                await there.archive_all()
                wholes = {server: await whole_cost(made, server, store) for server, store in sides}
                before = behind.cpu_us()
                await there.archive_all()
                if number >= warm:
                    served.add(costs[without], costs[behind])
                    whole.add(wholes[without], wholes[behind])
                    confirming.append((behind.cpu_us() - before) / OPERATIONS)
            await plain.close()
    return Append(what, *served.medians(), *whole.medians(), median(confirming))


class Sides:
    """What rounds cost without an archive and with one."""

    def __init__(self) -> None:
        self._plain: list[float] = []
        self._archived: list[float] = []

    def add(self, plain: float, archived: float) -> None:
        """A round."""
        self._plain.append(plain)
        self._archived.append(archived)

    def medians(self) -> tuple[float, float, float]:
        """Of both, and of the ratios."""
        ratios = (one / other for one, other in zip(self._archived, self._plain, strict=True))
        return median(self._plain), median(self._archived), median(ratios)


async def whole_cost(made: Conversations, server: Server, store: ConversationHistoryStore) -> float:
    """µs of CPU of this process and of the server for each of OPERATIONS appends."""
    began = 1e6 * time.process_time() + server.cpu_us()
    for _ in range(OPERATIONS // DEPTH):
        await made.append(store, DEPTH)
    return (1e6 * time.process_time() + server.cpu_us() - began) / OPERATIONS


def appends(made: Conversations, caps: Caps) -> Commands:
    """What a store sends to append the next OPERATIONS turns."""

    async def calls(store: ConversationHistoryStore) -> None:
        for _ in range(OPERATIONS // DEPTH):
            for turn in made.turns(store, DEPTH):
                await store.append(TENANT, turn)

    return recorded(calls, caps=caps)
