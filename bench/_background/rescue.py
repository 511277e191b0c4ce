"""Rescue: how long followers hear nothing when the worker that makes their responses is killed.

SIGKILL hits the worker that holds all of them, and one without any work takes them over. The pause is from the kill to
the first event that the next worker made; what the dead one had written by then doesn't count.
"""

import re
import time
from collections.abc import Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from itertools import pairwise
from operator import ge

from bench._background.processes import LONG, Bench, Follower, api, until, worker
from bench._harness import Server
from bench._rig import running
from bench._told import Target, table

GRACE_SECONDS = 2.0
"""By how much a pause may be longer than the lease."""

RESPONSES = 8
TOKENS_PER_SECOND = 50
BEGUN_EVENTS = 25
"""How many events of each are here before the kill."""

DRAIN_SECONDS = 0.3
"""What comes so soon after the kill was written before it."""

_NUMBER = re.compile(rb'"sequence_number":(\d+)')


@dataclass(frozen=True)
class Pauses:
    """With a lease of so many seconds: the seconds that each follower heard nothing, for each kill."""

    lease: float
    seconds: list[float]

    @property
    def worst(self) -> float:
        """The longest."""
        return max(self.seconds)


@dataclass(frozen=True)
class Rescues:
    """The pauses for each lease."""

    pauses: list[Pauses]

    def targets(self) -> list[Target]:
        """What is judged."""
        return [
            Target(f"s to a rescue, lease {each.lease:g} s", each.worst, each.lease + GRACE_SECONDS)
            for each in self.pauses
        ]

    def lines(self) -> list[str]:
        """What is told."""
        rows = [(each.lease, len(each.seconds), min(each.seconds), each.worst) for each in self.pauses]
        return table(("lease s", "pauses", "least s", "worst s"), rows)


async def measure(bench: Bench) -> Rescues:
    """Kill workers that hold RESPONSES responses each."""
    leases = [(1.0, bench.few(5, 1)), *([] if bench.quick else [(10.0, 2)])]
    return Rescues([Pauses(lease, await pauses(bench, lease, kills)) for lease, kills in leases])


async def pauses(bench: Bench, lease: float, kills: int) -> list[float]:
    """The pause of each response at each kill."""
    settings = {
        "lease_seconds": lease,
        "store_timeout_seconds": min(lease / 3, 2),
        "demo_tokens_per_second": TOKENS_PER_SECOND,
    }
    with running(bench.redis) as redis, api(redis, **settings) as front, ExitStack() as workers:
        victim = workers.enter_context(worker(redis, **settings))
        heard: list[list[tuple[float, int]]] = [[] for _ in range(RESPONSES)]
        followers = [await followed(front, each) for each in heard]
        found: list[float] = []
        for _ in bench.progress.track(range(kills), description=f"rescues, lease {lease:g} s"):
            counts = [len(each) + BEGUN_EVENTS for each in heard]
            await until(lambda counts=counts: all(map(ge, map(len, heard), counts)), "events")
            rescuer = workers.enter_context(worker(redis, **settings))
            killed = time.monotonic()
            victim.kill()
            written = killed + DRAIN_SECONDS
            await until(lambda written=written: all(each[-1][0] > written for each in heard), "a rescue")
            found += [next(at for at, _ in each if at > written) - killed for each in heard]
            victim = rescuer
        for follower in followers:
            follower.close()
        check(heard)
    return found


async def followed(front: Server, heard: list[tuple[float, int]]) -> Follower:
    """A follower of a new response, who notes when each event came."""

    def note(now: float, data: bytes) -> None:
        heard.extend((now, int(number)) for number in _NUMBER.findall(data))

    follower = Follower(note)
    await follower.create(front.port, LONG)
    await follower.begun
    return follower


def check(heard: Sequence[Sequence[tuple[float, int]]]) -> None:
    """Raises RuntimeError if an event was missing or came twice."""
    if any(now != before + 1 for each in heard for (_, before), (_, now) in pairwise(each)):
        raise RuntimeError("an event was missing, or came twice")
