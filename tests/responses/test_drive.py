"""A driver and its outlet: what waits for a client that lags, and what doesn't."""

import asyncio
import gc
import weakref

import msgspec
import pytest

from service.api.events import Event
from service.api.outcome import HostedCall, Outcome
from service.api.response import Response
from service.engine.port import ModelCard
from service.metrics.counters import make_metrics
from service.responses.drive import Driver, machine_of
from service.responses.output.machine import Machine
from service.responses.plan import Plan
from service.responses.run import Taken
from tests.responses.test_spec import spec
from tests.support.engine.scripted import ScriptedEngine, Stall
from tests.support.responses.samples import NOW, harmony
from tests.support.waiting import until

SAID = harmony("<|channel|>final<|message|>Hello")


class Lagging:
    """An outlet whose client reads nothing, and a store."""

    def __init__(self) -> None:
        self.events: list[str] = []
        self.waits = 0
        self.stored = False

    def put(self, taken: Taken) -> bool:
        self.events += [type(event).__name__ for event in taken.events]
        return False

    async def room(self) -> None:
        self.waits += 1
        await asyncio.Event().wait()

    async def settle(self) -> None:
        """See Outlet."""

    async def finish(self, plan: Plan, machine: Machine, response: Response) -> list[Event]:
        self.stored = True
        return machine.terminal(response)


class Reading(Lagging):
    """An outlet whose client reads at once."""

    def put(self, taken: Taken) -> bool:
        super().put(taken)
        return True


class Slow:
    """Tools that take their time to end."""

    def __init__(self) -> None:
        self.ends = False

    async def call(self, call: HostedCall) -> Outcome:
        raise AssertionError("no tool is called")

    async def aclose(self) -> None:
        self.ends = True
        await asyncio.Event().wait()


def driver(outlet: Lagging, tools: Slow | None = None) -> Driver:
    """A driver of a generation that comes to a halt."""
    plan = spec(max_tokens=100)
    plan = msgspec.structs.replace(plan, generation=msgspec.structs.replace(plan.generation, id="one"))
    engine = ScriptedEngine(ModelCard("scripted", NOW, 131_072), [SAID, Stall()])
    return Driver(
        plan=plan,
        machine=machine_of(plan),
        finish=outlet.finish,
        engine=engine,
        metrics=make_metrics(),
        mode="stream",
        since=0.0,
        seconds=60.0,
        clock=lambda: NOW,
        tools=tools,
    )


@pytest.mark.parametrize(("kind", "stopped"), [(Lagging, False), (Lagging, True), (Reading, True)])
async def test_a_task_that_is_cancelled_stores_its_turn_and_waits_for_no_client(
    kind: type[Lagging], stopped: bool
) -> None:
    outlet = kind()
    made = driver(outlet)
    task = asyncio.create_task(made.make(outlet))
    await until(lambda: outlet.waits if kind is Lagging else made.machine.stretches.sampled)
    if stopped:
        made.stop()
    task.cancel()
    async with asyncio.timeout(5):
        with pytest.raises(asyncio.CancelledError):
            await task

    assert (outlet.stored, outlet.waits, outlet.events[-1]) == (True, int(kind is Lagging), "ResponseFailed")


async def test_a_task_that_is_cancelled_while_its_tools_end_stores_its_turn() -> None:
    outlet, tools = Reading(), Slow()
    made = driver(outlet, tools)
    task = asyncio.create_task(made.make(outlet))
    await until(lambda: made.machine.stretches.sampled)
    made.stop()
    await until(lambda: tools.ends)
    task.cancel()
    async with asyncio.timeout(5):
        with pytest.raises(asyncio.CancelledError):
            await task

    assert outlet.stored


async def test_nothing_holds_a_driver_once_it_is_done_however_much_time_it_had() -> None:
    outlet = Reading()
    made = driver(outlet)
    machine, task = made.machine, asyncio.create_task(made.make(outlet))
    await until(lambda: machine.stretches.sampled)
    made.stop()
    await task
    held = weakref.ref(made)
    del made, task
    gc.collect()

    assert held() is None
