"""Back: what it takes to continue a conversation of 50 turns that has left memory, beside one that is there.

It is the store's part of a request: the chain, read to be continued. What left is brought back for it first. Each is
asked for once; a third of them in each round, so that whatever else the machine does hits all.
"""

import tempfile
import time
from collections.abc import Sequence
from contextlib import AsyncExitStack
from dataclasses import dataclass
from statistics import median, quantiles

from bench._archive.opened import LINK_SECONDS, Bench, Opened, bucket, most_over_link, opened
from bench._archive.turns import TENANT, Conversations, conversations
from bench._rig import Server, running
from bench._told import Target, table
from tests.support.archive.opened import Place
from tests.support.store.link import link

DEPTH = 50
TREES = 150

TARGET_SECONDS = 0.008
"""The most that it may take with SQLite, at the median."""

SQLITE, OBJECTS, LINKED = "sqlite", "S3, least server", f"S3, over a link of {1e3 * LINK_SECONDS:g} ms"


@dataclass(frozen=True)
class Back:
    """Seconds that the first chain took, and the one after it, by where the turns were."""

    first: dict[str, Sequence[float]]
    again: dict[str, Sequence[float]]

    def targets(self) -> list[Target]:
        """What is judged."""
        limits = {SQLITE: TARGET_SECONDS, LINKED: most_over_link()}
        return [
            Target(f"ms to continue {DEPTH} turns, {where}", 1e3 * median(self.first[where]), 1e3 * limit)
            for where, limit in limits.items()
        ]

    def lines(self) -> list[str]:
        """What is told."""
        rows = [
            (where, 1e3 * median(first), 1e3 * quantiles(first, n=100)[98], 1e3 * median(self.again[where]))
            for where, first in self.first.items()
        ]
        return table(("ms", "away p50", "p99", "then in memory p50"), rows)


async def measure(bench: Bench) -> Back:
    """All of them by turns."""
    made = await conversations()
    trees = bench.few(TREES, 15)
    async with AsyncExitStack() as stack:
        folder = stack.enter_context(tempfile.TemporaryDirectory())
        least = stack.enter_context(bucket())
        between = await stack.enter_async_context(link(least.port))
        places = {
            SQLITE: Place("sqlite", f"sqlite://{folder}"),
            OBJECTS: least.apart("near"),
            LINKED: least.apart("far").through(between.port),
        }
        stores = {where: await emptied(stack, bench, made, place, trees) for where, place in places.items()}
        between.delay_seconds = LINK_SECONDS
        first: dict[str, list[float]] = {where: [] for where in places}
        again: dict[str, list[float]] = {where: [] for where in places}
        for number in bench.progress.track(range(trees), description="conversations that come back"):
            for where, (there, tips) in stores.items():
                first[where].append(await chain(there, tips[number]))
                again[where].append(await chain(there, tips[number]))
    return Back(dict(first), dict(again))


async def emptied(
    stack: AsyncExitStack, bench: Bench, made: Conversations, place: Place, trees: int
) -> tuple[Opened, list[str]]:
    """A store whose conversations are all in its archive and nowhere else; the ids of their last turns."""
    redis: Server = stack.enter_context(running(bench.redis))
    async with opened(redis, place) as there:
        tips = await made.fill(there.store, trees, DEPTH)
        await there.archive_all()
    redis.ask("FLUSHALL")
    return await stack.enter_async_context(opened(redis, place)), tips


async def chain(there: Opened, tip: str) -> float:
    """How many seconds a chain takes. Raises RuntimeError where it isn't whole."""
    began = time.perf_counter()
    found = await there.store.chain(TENANT, tip)
    took = time.perf_counter() - began
    if len(found.ids) != DEPTH:
        raise RuntimeError(f"{tip} came back with {len(found.ids)} turns")
    return took
