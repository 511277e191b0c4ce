"""Pacing on the event loop: a tenant that asks for more than the loop can do waits, and others don't wait for it.

The loop runs what is ready in the order in which it came. So with hundreds of requests at work each step of another one
waits for a step of all of them, and an answer takes dozens of steps. Where several tenants are there, one that has
LEAST at work begins with more only while the loop is quick: while all that is ready at a moment takes no longer than
BRIEF_SECONDS. So the loop does as much as before, for fewer at a time. A tenant that is alone never waits, nor does
one on a loop that mostly waits for its engine. What waits is bounded by the connections that a process accepts, and by
the jobs that it claims.
"""

import asyncio
from collections import Counter
from collections.abc import Callable
from time import monotonic, perf_counter
from types import TracebackType
from weakref import WeakValueDictionary

LEAST = 1
"""So many of a tenant begin at once, however busy the loop is."""

BRIEF_SECONDS = 0.00025
"""How long one round of the loop may take for more to begin."""

MOST_ROUNDS = 8
"""For how many rounds of a busy loop a piece of work that has begun waits until it goes on."""

LATELY_SECONDS = 1.0
"""For how long a tenant counts as there after it began with something."""


class Work:
    """A piece of work of a tenant, until the end of a `with` block or `end`."""

    def __init__(self, working: Counter[str], tenant: str) -> None:
        self._working: Counter[str] | None = working
        self._tenant = tenant
        working[tenant] += 1

    def end(self) -> None:
        """It is done. A second time changes nothing."""
        working, self._working = self._working, None
        if working is not None:
            working[self._tenant] -= 1
            if not working[self._tenant]:
                del working[self._tenant]

    def __enter__(self) -> None:
        pass

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self.end()


class Pacing:
    """When which tenant begins with what, among the requests and jobs of one process."""

    def __init__(self, clock: Callable[[], float] = monotonic) -> None:
        self._clock = clock
        self._working: Counter[str] = Counter()
        """How many are at work of each tenant, of those that have any."""
        self._last = self._before = ("", float("-inf"))
        """The tenant that came last, and the last other one, each with when that was."""
        self._lines: WeakValueDictionary[str, asyncio.Lock] = WeakValueDictionary()
        """Where those of a tenant wait, in the order in which they came."""

    async def begin(self, tenant: str) -> Work:
        """Wait until a tenant may begin with another one."""
        self._note(tenant)
        if self._has_enough(tenant):
            line = self._lines.get(tenant)
            if line is None:
                line = self._lines[tenant] = asyncio.Lock()
            async with line:
                while self._has_enough(tenant) and await _round() > BRIEF_SECONDS:
                    pass
        return Work(self._working, tenant)

    async def go_on(self, tenant: str) -> None:
        """Let others run between two pieces of a tenant's work, while the loop is busy: for MOST_ROUNDS at most."""
        for _ in range(MOST_ROUNDS):
            if not self._has_enough(tenant) or await _round() <= BRIEF_SECONDS:
                return

    def _note(self, tenant: str) -> None:
        if tenant != self._last[0]:
            self._before = self._last
        self._last = tenant, self._clock()

    def _has_enough(self, tenant: str) -> bool:
        """Whether it is at others' expense if a tenant begins with more."""
        if self._working.get(tenant, 0) < LEAST:
            return False
        if len(self._working) > 1:
            return True
        _, at = self._before if self._last[0] == tenant else self._last
        return self._clock() - at < LATELY_SECONDS


async def _round() -> float:
    """How long the loop takes for all that is ready."""
    began = perf_counter()
    await asyncio.sleep(0)
    return perf_counter() - began
