"""Samples a response step by step, as a test asks for them."""

import asyncio
from collections import deque
from collections.abc import AsyncGenerator
from functools import cache

from service.api.events import Event
from service.engine.port import Engine, Generation
from service.metrics.counters import Metrics, make_metrics
from service.responses.drive import Driver, UseUp
from service.responses.output.machine import Ending, Machine
from service.responses.output.rules import Rules
from service.responses.plan import Plan
from service.responses.run import Taken
from service.tools.port import Runner
from tests.support.responses import samples

DUE = Taken([])
"""The step before a call: all before it has to be kept."""


@cache
def metrics() -> Metrics:
    """Metrics that nobody reads."""
    return make_metrics()


class Sampler:
    """A driver whose steps are taken one by one: it goes on once the next one is asked for."""

    def __init__(
        self,
        engine: Engine,
        initial: Generation,
        machine: Machine,
        tools: Runner | None = None,
        *,
        use_up: UseUp | None = None,
        seconds: float,
    ) -> None:
        plan = Plan(
            base=samples.created(), generation=initial, parent=None, stored=False, messages=(), items=b"", rules=Rules()
        )
        self._driver = Driver(
            plan=plan,
            machine=machine,
            finish=_never,
            engine=engine,
            metrics=metrics(),
            mode="background",
            since=0,
            seconds=seconds,
            clock=lambda: samples.NOW,
            tools=tools,
            use_up=use_up,
        )
        self.stop = self._driver.stop
        self._steps = deque[Taken]()
        self._changed, self._wanted = asyncio.Event(), asyncio.Event()

    @property
    def ending(self) -> Ending:
        return self._driver.run.ending

    async def steps(self) -> AsyncGenerator[Taken, None]:
        """The steps. Closing aborts."""
        task = asyncio.create_task(self._driver.sample(self))
        task.add_done_callback(lambda _: self._changed.set())
        try:
            while True:
                try:
                    await self._changed.wait()
                except asyncio.CancelledError:
                    task.cancel()
                    asyncio.current_task().uncancel()  # type: ignore[union-attr]
                    continue
                self._changed.clear()
                while self._steps:
                    yield self._steps.popleft()
                if task.done():
                    task.result()
                    return
                self._wanted.set()
        finally:
            task.cancel()
            await asyncio.wait([task])

    def put(self, taken: Taken) -> bool:
        self._steps.append(taken)
        self._changed.set()
        return False

    async def room(self) -> None:
        await self._wanted.wait()
        self._wanted.clear()

    async def settle(self) -> None:
        self.put(DUE)
        await self.room()


async def _never(*_: object) -> list[Event]:
    raise AssertionError("it is never ended")
