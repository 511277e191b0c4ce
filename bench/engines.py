"""How conversations are spread over several servers, and what one that fails costs.

    scripts/bench engines [--check] [--json]

An engine over four stand-ins for vLLM's servers, each with a prefix cache of its own, in this process. A thousand
conversations of six turns take turns, 64 at once; each turn's prompt is all that was before it and something new. In
the third turn one server dies, with what it was at, and in the fourth it is back, with an empty cache. Beside it, in
the same run, the same load where nothing says which generations belong together. Both once more with half as many
conversations, where each server has room for a few generations' tokens alone, so that the others wait, and takes its
time to compute what isn't cached of a prompt. A generation that fails is asked for again, as a client does.

The hit rate is how much of what an earlier turn of the same conversation had in its prompt was cached. The spread is
how much the busiest server had of an even share; the fullest is how much of its room any server had at most. To heal is
from the server's death to the last generation that failed of it, and from its return to the first that it gets again.
The first token is timed from where a generation is asked for, so all that was waited is in it. Idle is the longest time
in which a server had nothing under way while somebody waited.
"""

import argparse
import asyncio
import json
import random
import sys
import time
from collections.abc import Sequence
from contextlib import AsyncExitStack
from dataclasses import dataclass, field
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT))

import msgspec  # noqa: E402

from service.engine.port import EngineUnavailable, Generation, ModelCard, Sampling  # noqa: E402
from service.engine.servers.engine import Access, ServersEngine  # noqa: E402
from service.engine.vllm.servers import Vllm  # noqa: E402
from service.harmony.tokens import RETURN, STOPS  # noqa: E402
from tests.support.engine.scripted import ScriptedEngine  # noqa: E402
from tests.support.engine.standin import BLOCK_TOKENS, Standin, standing_in  # noqa: E402
from tests.support.waiting import until  # noqa: E402

SERVERS = 4
CONVERSATIONS = 1000
TURNS = 6
DIES, RETURNS = 2, 3
"""The turns in whose middle the server goes and comes back."""

AT_ONCE = 64
FIRST_TOKENS, TURN_TOKENS = 256, 64
PROBE_SECONDS = 0.5
TRIES = 5
VOCABULARY = 150_000

LEAST_RATE = 0.97
"""The least hit rate while all servers are well."""

LEAST_RATE_IN_ALL = 0.92
"""The least with one of four failing in between, whose conversations are computed anew once."""

MOST_SPREAD = 1.25
MOST_HEALING = 3 * PROBE_SECONDS
ROOM_TOKENS = 4096
"""What each server has room for in the last loads: about half of what would be under way there."""

COMPUTE_SECONDS = 100e-6
"""What a token of a prompt takes there: a whole prompt some 40 ms, and what is new in a turn 7."""

LEAST_RATE_WHERE_FULL = 0.85
MOST_TIME_WHERE_FULL = 0.7
"""How much of the time it may take that it takes where nothing is held together."""

MOST_IDLE_SECONDS = 0.5
LOOK_SECONDS = 0.01
"""How often it is looked whether a server is idle."""

LEAST_BETTER = 1.5
"""How many times the hit rate is that of generations that nothing holds together."""


@dataclass
class Found:
    """What was found of a load, by turn."""

    hits: list[float] = field(default_factory=list)
    spreads: list[float] = field(default_factory=list)
    hit_rate: float = 0.0
    failed: int = 0
    """Generations that broke off, or found no server."""
    lost: int = 0
    """Of those, how many failed again and again."""
    fullest: float = 0.0
    """The most that a server had under way of what it had room for."""
    total_seconds: float = 0.0
    first_p50_ms: float = 0.0
    first_p99_ms: float = 0.0
    idle_seconds: float = 0.0
    noticed_seconds: float = 0.0
    back_seconds: float = 0.0


class Load:
    """The conversations, over an engine and its servers."""

    def __init__(self, engine: ServersEngine, servers: Sequence[Standin], *, held: bool, conversations: int) -> None:
        """`held` is whether generations say which conversation they belong to."""
        self._engine, self._servers, self._held = engine, servers, held
        self._conversations = conversations
        self._firsts: list[float] = []
        self._random = random.Random(1)
        self._prompts = [self._words(FIRST_TOKENS) for _ in range(conversations)]
        self._known = [0] * conversations
        self._died = self._returned = 0.0
        self._found = Found()
        self._cached = self._reachable = 0

    async def run(self) -> Found:
        """All turns."""
        hits = reachable = 0
        began, watching = time.monotonic(), asyncio.create_task(self._watch())
        for turn in range(TURNS):
            before = [len(server.generations) for server in self._servers]
            self._cached = self._reachable = 0
            await self._turn(turn)
            if self._reachable:
                self._found.hits.append(self._cached / self._reachable)
            had = [len(server.generations) - old for server, old in zip(self._servers, before, strict=True)]
            self._found.spreads.append(max(had) * SERVERS / sum(had))
            hits, reachable = hits + self._cached, reachable + self._reachable
        watching.cancel()
        self._found.total_seconds = time.monotonic() - began
        self._found.first_p50_ms, self._found.first_p99_ms = (
            1000 * sorted(self._firsts)[int(len(self._firsts) * part)] for part in (0.5, 0.99)
        )
        self._found.hit_rate = hits / reachable
        return self._found

    async def _turn(self, turn: int) -> None:
        order = self._random.sample(range(self._conversations), self._conversations)
        left, event = iter(order), asyncio.Event()

        async def work() -> None:
            for number in left:
                if order.index(number) == self._conversations // 2:
                    event.set()
                await self._ask(number, turn)

        upheaval = asyncio.create_task(self._upset(turn, event))
        await asyncio.gather(*(work() for _ in range(AT_ONCE)))
        await upheaval

    async def _upset(self, turn: int, half: asyncio.Event) -> None:
        """In the middle of a turn, have the last server go, or come back and wait until it is found."""
        await half.wait()
        server = self._servers[-1]
        if turn == DIES:
            self._died = time.monotonic()
            await server.die()
        elif turn == RETURNS:
            await server.start()
            self._returned = time.monotonic()
            await until(lambda: all(self._engine.servers().values()), 30)
            self._found.back_seconds = time.monotonic() - self._returned

    async def _watch(self) -> None:
        """See how long servers have nothing to do while somebody waits."""
        since: dict[str, float] = {}
        while True:
            now, up = time.monotonic(), self._engine.servers()
            for name, load in self._engine.loads().items():
                if up[name] and not load.tokens and self._engine.waiting:
                    self._found.idle_seconds = max(self._found.idle_seconds, now - since.setdefault(name, now))
                else:
                    since.pop(name, None)
            await asyncio.sleep(LOOK_SECONDS)

    async def _ask(self, number: int, turn: int) -> None:
        """A turn of a conversation."""
        prompt, known = self._prompts[number], self._known[number]
        for attempt in range(TRIES):
            id = f"{number}-{turn}-{attempt}"
            sampling = Sampling(8, temperature=0, stop_ids=STOPS)
            affinity = str(number) if self._held else id
            generation = Generation(id, prompt, sampling, affinity=affinity, cache_salt="all")
            if self._held:
                own, before = f"{number}-{turn}", f"{number}-{turn - 1}"
                generation = msgspec.structs.replace(generation, response=own, continues=before)
            asked, first = time.monotonic(), 0.0
            try:
                async for chunk in self._engine.generate(generation):
                    first = first or time.monotonic() - asked
                    loads = [load.tokens / load.room for load in self._engine.loads().values() if load.room]
                    self._found.fullest = max(self._found.fullest, *loads, 0.0)
                    self._cached += min(chunk.cached_tokens or 0, known) if chunk.finish else 0
            except EngineUnavailable:
                self._found.failed += 1
                self._found.noticed_seconds = time.monotonic() - self._died
                continue
            self._firsts.append(first)
            self._reachable += known
            self._known[number] = (len(prompt) - 1) // BLOCK_TOKENS * BLOCK_TOKENS
            self._prompts[number] = [*prompt, *self._words(TURN_TOKENS)]
            return
        self._found.lost += 1

    def _words(self, count: int) -> list[int]:
        return [self._random.randrange(VOCABULARY) for _ in range(count)]


async def measure(*, held: bool, full: bool = False) -> Found:
    """A load on servers of its own, which are slow and have little room if they are to be full."""
    card = ModelCard("talker", 0, 131_072)
    async with AsyncExitStack() as stack:
        servers = [
            await stack.enter_async_context(standing_in(ScriptedEngine(card, [[5, RETURN]]))) for _ in range(SERVERS)
        ]
        for server in servers:
            server.compute_seconds = COMPUTE_SECONDS if full else 0
        urls = tuple(server.url for server in servers)
        access = Access(urls, probe_seconds=PROBE_SECONDS, kv_tokens=ROOM_TOKENS if full else 0)
        engine = ServersEngine(Vllm(), access)
        await engine.start()
        try:
            return await Load(
                engine, servers, held=held, conversations=CONVERSATIONS // 2 if full else CONVERSATIONS
            ).run()
        finally:
            await engine.close()


def problems(found: Found, apart: Found, full: Found, full_apart: Found) -> list[str]:
    """Which limits were passed."""
    well = [found.hits[0], found.hits[-1]]
    limits = {
        f"hit rate while all are well {min(well):.3f}, at least {LEAST_RATE}": min(well) >= LEAST_RATE,
        f"hit rate {found.hit_rate:.3f}, at least {LEAST_RATE_IN_ALL}": found.hit_rate >= LEAST_RATE_IN_ALL,
        f"{found.hit_rate / apart.hit_rate:.2f} times that without affinity, at least {LEAST_BETTER}": (
            found.hit_rate >= LEAST_BETTER * apart.hit_rate
        ),
        f"spread {found.spreads[0]:.2f}, at most {MOST_SPREAD}": found.spreads[0] <= MOST_SPREAD,
        f"noticed after {found.noticed_seconds:.2f} s, at most {MOST_HEALING} s": found.noticed_seconds <= MOST_HEALING,
        f"found again after {found.back_seconds:.2f} s, at most {MOST_HEALING} s": found.back_seconds <= MOST_HEALING,
        f"{found.lost + full.lost} turns lost, none may be": not found.lost + full.lost,
        f"a server had {full.fullest:.2f} of its room": full.fullest <= 1,
        f"hit rate where all are full {full.hit_rate:.3f}, at least {LEAST_RATE_WHERE_FULL}": (
            full.hit_rate >= LEAST_RATE_WHERE_FULL
        ),
        f"{full.total_seconds / full_apart.total_seconds:.2f} of the time without affinity, at most "
        f"{MOST_TIME_WHERE_FULL}": full.total_seconds <= MOST_TIME_WHERE_FULL * full_apart.total_seconds,
        f"a server was idle for {full.idle_seconds:.2f} s while somebody waited, at most {MOST_IDLE_SECONDS}": (
            full.idle_seconds <= MOST_IDLE_SECONDS
        ),
    }
    return [limit for limit, met in limits.items() if not met]


HEADS = (
    "| Way | Hit rate | by turn, % | Busiest server by turn | Total, s | First token, p50, ms | p99 | Idle, s | Failed "
    "| Lost | Noticed, s | Back, s | Fullest |"
)


def shown(name: str, found: Found) -> str:
    """A row of the table."""
    hits = " ".join(f"{100 * rate:.0f}" for rate in found.hits)
    spreads = " ".join(f"{spread:.2f}" for spread in found.spreads)
    return (
        f"| {name} | {100 * found.hit_rate:.1f} % | {hits} | {spreads} | {found.total_seconds:.1f} "
        f"| {found.first_p50_ms:.0f} | {found.first_p99_ms:.0f} | {found.idle_seconds:.2f} | {found.failed} "
        f"| {found.lost} | {found.noticed_seconds:.2f} | {found.back_seconds:.2f} | {100 * found.fullest:.0f} % |"
    )


def main() -> int:
    """0, or 1 when --check is given and a limit passed."""
    parser = argparse.ArgumentParser(description="how conversations are spread over several servers")
    parser.add_argument("--check", action="store_true", help="fail where a limit is passed")
    parser.add_argument("--json", action="store_true", help="print figures as JSON")
    options = parser.parse_args()
    found, apart = asyncio.run(measure(held=True)), asyncio.run(measure(held=False))
    full, full_apart = asyncio.run(measure(held=True, full=True)), asyncio.run(measure(held=False, full=True))
    rows = {
        "by conversation": found,
        "nothing held together": apart,
        "by conversation, little room": full,
        "nothing held together, little room": full_apart,
    }
    if options.json:
        print(json.dumps({name: vars(row) for name, row in rows.items()}))
    else:
        print(HEADS)
        print("| --- " * HEADS.count(" | ") + "| --- |")
        print(*(shown(name, row) for name, row in rows.items()), sep="\n")
    passed = problems(found, apart, full, full_apart)
    for problem in passed:
        print(f"missed: {problem}")
    return 1 if options.check and passed else 0


if __name__ == "__main__":
    sys.exit(main())
