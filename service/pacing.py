"""Pacing on the event loop: a tenant that asks for more than the loop can do waits, and others don't wait for it.

The loop runs what is ready in the order in which it came. So with hundreds of requests at work each step of another one
waits for a step of all of them, and an answer takes dozens of steps. Where several tenants are there, one that asks for
more than MODEST at a time, and has LEAST at work, begins with more only once the loop has been quick for QUICK_SECONDS:
once all that was ready at a moment took no longer than BRIEF_SECONDS, again and again. A moment alone says little, as
the loop is idle while another's request waits for the store; what begins then is in its way when the answer comes. A
tenant that is alone never waits, nor does one on a loop that mostly waits for its engine. However busy the loop stays,
a tenant begins with one more each WAIT_SECONDS: else a few responses that take long would keep all others of theirs
from ever beginning. What waits is bounded by the connections that a process accepts, and by the jobs that it claims.

One task measures the loop for all that wait to begin, and looks at one tenant each time. Never let each of them measure
by itself: with hundreds of tenants that alone would keep the loop busy, and nobody would begin.
"""

import asyncio
from collections import Counter, deque
from collections.abc import Awaitable, Callable
from time import monotonic, perf_counter
from types import TracebackType

LEAST = 1
"""So many of a tenant begin at once, however busy the loop is."""

MODEST = 4
"""Of a tenant that has no more than so many, at work and waiting, none waits."""

BRIEF_SECONDS = 0.00025
"""How long one round of the loop may take for more to begin."""

QUICK_SECONDS = 0.001
"""For how long each round of the loop has to be so brief."""

MOST_ROUNDS = 8
"""For how many rounds of a busy loop a piece of work that has begun waits until it goes on."""

WAIT_SECONDS = 1.0
"""How long the first that waits of a tenant does so at most, if the loop comes round to it."""

LATELY_SECONDS = 1.0
"""For how long a tenant counts as there after it began with something."""


class Work:
    """A piece of work of a tenant, until the end of a `with` block or `end`."""

    def __init__(self, over: Callable[[], None], go_on: Callable[[], Awaitable[None]]) -> None:
        """`over` is called once, at its end."""
        self._over: Callable[[], None] | None = over
        self.go_on = go_on
        """To be awaited between two pieces of it: lets others run for a while."""

    def end(self) -> None:
        """It is done. A second time changes nothing."""
        over, self._over = self._over, None
        if over is not None:
            over()

    def __enter__(self) -> None:
        pass

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self.end()


class Line:
    """Those of a tenant that wait, in the order in which they came."""

    def __init__(self, now: float) -> None:
        self.waiting: deque[asyncio.Future[Work]] = deque()
        self.since = now
        """Since when the first of them has been the first."""


class Pacing:
    """When which tenant begins with what, among the requests and jobs of one process."""

    def __init__(self, clock: Callable[[], float] = monotonic) -> None:
        self._clock = clock
        self._working: Counter[str] = Counter()
        """How many are at work of each tenant, of those that have any."""
        self._last = self._before = ("", float("-inf"))
        """The tenant that came last, and the last other one, each with when that was."""
        self._lines: dict[str, Line] = {}
        """The tenants of which some wait, in the order in which they are looked at."""
        self._looking: asyncio.Task[None] | None = None

    async def begin(self, tenant: str, *, hurry: asyncio.Event | None = None) -> Work:
        """Wait until a tenant may begin with another one, or `hurry` is set."""
        self._note(tenant)
        if (tenant in self._lines or self._has_enough(tenant, 1)) and not (hurry and hurry.is_set()):
            return await self._wait(tenant, hurry)
        return self._work(tenant)

    async def _wait(self, tenant: str, hurry: asyncio.Event | None) -> Work:
        """Wait in line."""
        answer: asyncio.Future[Work] = asyncio.get_running_loop().create_future()
        self._lines.setdefault(tenant, Line(self._clock())).waiting.append(answer)
        if self._looking is None or self._looking.done():
            self._looking = asyncio.create_task(self._look())
        hurrying = hurry and asyncio.create_task(self._hurry(hurry, tenant, answer))
        try:
            return await answer
        except asyncio.CancelledError:
            if answer.cancelled():
                self._leave(tenant, answer)
            else:
                answer.result().end()
            raise
        finally:
            if hurrying:
                hurrying.cancel()

    async def _hurry(self, hurry: asyncio.Event, tenant: str, answer: asyncio.Future[Work]) -> None:
        """Let one begin at once where it is in a hurry."""
        await hurry.wait()
        if not answer.done():
            self._leave(tenant, answer)
            answer.set_result(self._work(tenant))

    def _leave(self, tenant: str, answer: asyncio.Future[Work]) -> None:
        """It waits no longer."""
        line = self._lines.get(tenant)
        if line is not None and answer in line.waiting:
            line.waiting.remove(answer)
            if not line.waiting:
                del self._lines[tenant]

    async def _look(self) -> None:
        """Let those begin that may, as long as any wait: one tenant each time the loop was measured."""
        while self._lines:
            quick = await _quick()
            if not self._lines:
                return
            tenant = next(iter(self._lines))
            line = self._lines[tenant] = self._lines.pop(tenant)  # behind the others, for the next time
            if quick or not self._has_enough(tenant) or self._clock() - line.since >= WAIT_SECONDS:
                self._let_begin(tenant)

    def _let_begin(self, tenant: str) -> None:
        """Let the first of a tenant begin that has not given up."""
        line = self._lines[tenant]
        line.since = self._clock()
        while line.waiting:
            answer = line.waiting[0]
            self._leave(tenant, answer)
            if not answer.done():
                answer.set_result(self._work(tenant))
                return

    def _work(self, tenant: str) -> Work:
        """One more is at work."""
        self._working[tenant] += 1
        return Work(lambda: self._end(tenant), lambda: self.go_on(tenant))

    def _end(self, tenant: str) -> None:
        """One less is; the next takes its place."""
        self._working[tenant] -= 1
        if not self._working[tenant]:
            del self._working[tenant]
        if tenant in self._lines and not self._has_enough(tenant):
            self._let_begin(tenant)

    async def go_on(self, tenant: str) -> None:
        """Let others run between two pieces of a tenant's work, while the loop is busy: for MOST_ROUNDS at most."""
        for _ in range(MOST_ROUNDS):
            if not self._has_enough(tenant) or await _round() <= BRIEF_SECONDS:
                return

    def _note(self, tenant: str) -> None:
        if tenant != self._last[0]:
            self._before = self._last
        self._last = tenant, self._clock()

    def _has_enough(self, tenant: str, coming: int = 0) -> bool:
        """Whether it is at others' expense if a tenant begins with more, where so many come besides."""
        working, line = self._working.get(tenant, 0), self._lines.get(tenant)
        if working < LEAST or working + (len(line.waiting) if line else 0) + coming <= MODEST:
            return False
        if len(self._working) > 1:
            return True
        _, at = self._before if self._last[0] == tenant else self._last
        return self._clock() - at < LATELY_SECONDS


async def _quick() -> bool:
    """Whether the loop is quick for a while."""
    lasted = 0.0
    while lasted < QUICK_SECONDS:
        took = await _round()
        if took > BRIEF_SECONDS:
            return False
        lasted += took
    return True


async def _round() -> float:
    """How long the loop takes for all that is ready."""
    began = perf_counter()
    await asyncio.sleep(0)
    return perf_counter() - began
