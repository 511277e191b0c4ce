"""Pacing on the event loop: a tenant that asks for more than the loop can do waits, and others don't wait for it.

The loop runs what is ready in the order in which it came. So with hundreds of requests at work each step of another one
waits for a step of all of them, and an answer takes dozens of steps. Where several tenants are there, one that has more
than MODEST begins with the next one once none of its own is at work, or once the loop has been quick for QUICK_SECONDS:
once all that was ready at a moment took no longer than BRIEF_SECONDS, again and again. A moment alone says little, as
the loop is idle while another's request waits for the store; what begins then is in its way when the answer comes. A
tenant that is alone never waits, nor does one on a loop that mostly waits for its engine. However busy the loop stays,
a tenant begins with one more each WAIT_SECONDS: else a few responses that take long would keep all others of theirs
from ever beginning. The number that waits is bounded by a process's connections and by the jobs that it claims.

A lock for each tenant keeps its order, and one for all lets a single task measure the loop at a time: with hundreds of
tenants that measure it together, they would keep it busy, and nobody would begin.
"""

import asyncio
from collections.abc import Awaitable, Callable
from contextlib import AbstractContextManager
from time import monotonic, perf_counter
from weakref import WeakValueDictionary

MODEST = 4
"""A tenant with no more than so many, at work and waiting, never waits."""

BRIEF_SECONDS = 0.00025
"""How long one round of the loop may take for more to begin."""

QUICK_SECONDS = 0.001
"""How long each round of the loop has to be so brief."""

MOST_ROUNDS = 8
"""The most rounds of a busy loop that a piece of work that has begun waits until it goes on."""

WAIT_SECONDS = 1.0
"""The longest wait of a tenant's first request, if the loop comes round to it."""

CANCELS_AT_ONCE = 16
"""How many cancelled responses a process ends at once; each replays its log, for milliseconds of CPU."""

LATELY_SECONDS = 1.0
"""How long a tenant counts as present after it began with something."""


class Work(AbstractContextManager["Work"]):
    """A piece of work of a tenant, until the end of a `with` block or `close`."""

    def __init__(self, pacing: "Pacing", tenant: str) -> None:
        self._pacing, self._tenant = pacing, tenant
        self._ended = False

    def crowded(self) -> bool:
        """Whether its tenant has so much that it is at others' expense."""
        return self._pacing.crowded(self._tenant)

    async def go_on(self) -> None:
        """Let others run for a while: between two pieces of the work, at least where it is `crowded`."""
        await self._pacing.go_on(self._tenant)

    def close(self) -> None:
        if not self._ended:
            self._ended = True
            self._pacing.end(self._tenant)

    def __exit__(self, *_: object) -> None:
        self.close()


class Pacing:
    """When which tenant begins with what, among the requests and jobs of one process."""

    def __init__(self, clock: Callable[[], float] = monotonic) -> None:
        self._clock = clock
        self._there, self._working = dict[str, int](), dict[str, int]()
        """The numbers of each tenant: those at work or waiting, and those at work."""
        self._last = self._before = ("", float("-inf"))
        """The tenant that came last, and the last other one, each with when that was."""
        self._lines = WeakValueDictionary[str, asyncio.Lock]()
        """The order of each tenant of which some wait."""
        self._measuring = asyncio.Lock()
        self.cancelling = asyncio.Semaphore(CANCELS_AT_ONCE)
        """Held while a cancelled response is ended."""

    async def begin(self, tenant: str, *, hurry: asyncio.Event | None = None) -> Work:
        """The work of a tenant, once it may begin or `hurry` is set."""
        if tenant != self._last[0]:
            self._before = self._last
        self._last = tenant, self._clock()
        self._there[tenant] = self._there.get(tenant, 0) + 1
        try:
            if self.crowded(tenant):
                await (self._turn(tenant) if hurry is None else _first_of(self._turn(tenant), hurry.wait()))
        except BaseException:
            _less(self._there, tenant)
            raise
        self._working[tenant] = self._working.get(tenant, 0) + 1
        return Work(self, tenant)

    def end(self, tenant: str) -> None:
        for counts in (self._there, self._working):
            _less(counts, tenant)

    async def _turn(self, tenant: str) -> None:
        line = self._lines.setdefault(tenant, asyncio.Lock())
        async with line:
            until = self._clock() + WAIT_SECONDS
            while self.crowded(tenant) and tenant in self._working and self._clock() < until:
                async with self._measuring:
                    if await _quick():
                        return

    async def go_on(self, tenant: str) -> None:
        """Let others run between two pieces of a tenant's work, while the loop is busy: for MOST_ROUNDS at most."""
        for _ in range(MOST_ROUNDS):
            if not self.crowded(tenant) or await _round() <= BRIEF_SECONDS:
                return

    def crowded(self, tenant: str) -> bool:
        """Whether a tenant has so much that it is at others' expense."""
        return self._there.get(tenant, 0) > MODEST and self.several(tenant)

    def several(self, tenant: str) -> bool:
        """Whether another tenant than this one is at work or waits, or did lately."""
        if len(self._there) > 1:
            return True
        since = self._clock() - LATELY_SECONDS
        lately = {each for each, at in (self._last, self._before) if at > since}
        return bool((lately | self._there.keys()) - {tenant})


def _less(counts: dict[str, int], tenant: str) -> None:
    if counts[tenant] > 1:
        counts[tenant] -= 1
    else:
        del counts[tenant]


async def _first_of(*awaited: Awaitable[object]) -> None:
    tasks = [asyncio.ensure_future(each) for each in awaited]
    try:
        await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
    finally:
        for task in tasks:
            task.cancel()


async def _quick() -> bool:
    lasted = 0.0
    while lasted < QUICK_SECONDS:
        took = await _round()
        if took > BRIEF_SECONDS:
            return False
        lasted += took
    return True


async def _round() -> float:
    began = perf_counter()
    await asyncio.sleep(0)
    return perf_counter() - began
