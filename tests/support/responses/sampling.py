"""Samples a response step by step, as a test asks for them; by a script, or by workers that die."""

import asyncio
from collections import deque
from collections.abc import AsyncGenerator, Callable, Sequence
from contextlib import aclosing
from functools import cache
from typing import Any

from service.api.events import Event
from service.api.response import Response
from service.engine.port import Engine, Generation, ModelCard
from service.harmony import tokens
from service.metrics.counters import Metrics, make_metrics
from service.responses.drive import Driver, UseUp
from service.responses.output.machine import Ending, Machine
from service.responses.output.next_step import ending_of
from service.responses.output.rules import Rules
from service.responses.plan import Plan
from service.responses.run import Taken
from service.steps import in_one_go
from service.tools.port import Runner
from tests.support.engine.scripted import ScriptedEngine, ScriptSource
from tests.support.oracles.event_grammar import check_stream
from tests.support.responses import samples
from tests.support.responses.samples import NOW, as_json, harmony

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
            clock=lambda: NOW,
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


def playing(*scripts: ScriptSource) -> ScriptedEngine:
    """An engine that goes by these scripts."""
    return ScriptedEngine(ModelCard("scripted", NOW, 131_072), *scripts)


async def made(
    machine: Machine,
    whole: Generation,
    *script: str | list[int],
    tools: Runner | None = None,
    use_up: UseUp | None = None,
) -> tuple[Machine, Response, list[Generation]]:
    """The machine, which may have begun, and its response by a script, checked; and what the engine was asked."""
    engine = playing(*([ids if isinstance(ids, list) else harmony(ids)] for ids in script))
    new = machine.next_number == 0
    told = machine.begin() if new else []
    sampling = Sampler(engine, whole, machine, tools, use_up=use_up, seconds=60)
    async for step in sampling.steps():
        told += step.events
    told += machine.end(sampling.ending)
    response = machine.result(sampling.ending, now=NOW)
    told += machine.terminal(response)
    if new:
        check_stream([as_json(event) for event in told])
    return machine, response, engine.generations


async def survived(
    new: Callable[[], Machine], engine: Engine, whole: Generation, deaths: Sequence[int]
) -> tuple[list[Any], Any]:
    """The events and the end of a response whose workers die after so many steps; each of the next ones replays what is
    known.
    """
    machine, journal, ending = new(), b"", Ending.ERROR
    events = machine.begin()
    for steps in [*deaths, None]:
        machine = new()
        machine.begin()
        in_one_go(machine.replay(journal))
        over = ending_of(machine, whole.sampling.max_tokens)
        if over is not None:
            ending = over
            break
        sampling = Sampler(engine, whole, machine, seconds=60)
        async with aclosing(sampling.steps()) as running:
            count = 0
            while count != steps and (step := await anext(running, None)) is not None:
                events += step.events
                journal += tokens.pack(step.tokens)
                count += 1
        ending = sampling.ending
    events += machine.end(ending)
    return [as_json(event) for event in events], as_json(machine.result(ending, now=NOW))
