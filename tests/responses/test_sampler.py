"""Sampling alone, as a worker does it: ids beside their events, every way to be stopped, and going on elsewhere."""

import asyncio
import gc
import weakref
from collections.abc import AsyncIterator, Sequence
from typing import cast

import msgspec
import pytest

from service.engine.port import EngineRefused, EngineUnavailable, Generation, ModelCard, Sampling
from service.harmony import tokens
from service.responses.drive import machine_of
from service.responses.output.machine import Ending, Machine
from service.responses.plan import Plan
from service.responses.run import Taken, error_of
from tests.responses.test_spec import spec
from tests.support.engine.scripted import Die, EndWithoutFinish, FinishWith, ScriptedEngine, Stall
from tests.support.responses import samples
from tests.support.responses.samples import NOW, harmony
from tests.support.responses.sampling import Sampler
from tests.support.waiting import until

CARD = ModelCard("scripted", NOW, 131_072)
LONG = 60.0
OPEN = harmony("<|channel|>final<|message|>Hello")
JOB = spec(max_tokens=200)


def sampler(
    *script: Sequence[int] | Stall | Die | EndWithoutFinish | FinishWith, seconds: float = LONG
) -> tuple[Sampler, ScriptedEngine, Machine]:
    """A sampler of a generation that goes by this script, with its engine and its machine."""
    engine, machine = ScriptedEngine(CARD, script), begun(JOB)
    return Sampler(engine, Generation("one", [1], Sampling(100)), machine, seconds=seconds), engine, machine


def begun(job: Plan) -> Machine:
    """The machine of a background response that a worker has begun with."""
    machine = machine_of(job)
    machine.queue()
    machine.start()
    return machine


async def all_of(sampling: Sampler) -> list[Taken]:
    return [step async for step in sampling.steps()]


# --- steps ---


async def test_each_step_has_the_ids_of_a_chunk_and_the_events_that_they_made() -> None:
    sampling, _, _ = sampler(OPEN[:2], OPEN[2:], [tokens.RETURN])
    steps = await all_of(sampling)
    machine = begun(JOB)

    assert [step.tokens for step in steps] == [OPEN[:2], OPEN[2:], [tokens.RETURN]]
    assert [step.events for step in steps] == [machine.feed(step.tokens) for step in steps]
    assert not steps[0].events
    assert sampling.ending is Ending.STOP


async def test_the_engine_is_aborted_once_the_response_may_have_no_more() -> None:
    job = spec(max_tokens=200, rules=msgspec.structs.replace(samples.RULES, parallel=1))
    engine = ScriptedEngine(CARD, [harmony("<|channel|>commentary to=functions.lookup<|message|>{}<|end|>"), Stall()])
    sampling = Sampler(engine, job.generation, begun(job), seconds=LONG)
    await all_of(sampling)

    assert (sampling.ending, list(engine.aborted)) == (Ending.STOP, [job.id])


# --- being stopped ---


async def stalled(sampling: Sampler) -> AsyncIterator[Taken]:
    """The steps, behind the first one; the engine has nothing more to give."""
    steps = sampling.steps()
    await anext(steps)
    return steps


async def test_a_steered_thought_is_sampled_to_its_end_and_no_further() -> None:
    thought = harmony("<|channel|>analysis<|message|>Hm")
    behind = harmony("m.<|end|><|start|>assistant<|channel|>final<|message|>Unheard")
    sampling, engine, machine = sampler(thought, behind, Stall())
    steps = await stalled(sampling)
    sampling.steer()
    rest = await collect(steps)

    assert [step.tokens for step in rest] == [behind[: behind.index(tokens.END) + 1]]
    assert (sampling.ending, len(engine.aborted)) == (Ending.STEERED, 1)
    assert machine.stretches.last == tokens.END


async def collect(steps: AsyncIterator[Taken]) -> list[Taken]:
    return [step async for step in steps]


@pytest.mark.parametrize("ending", [Ending.ABORT, Ending.TIMEOUT])
async def test_it_can_be_stopped_while_the_engine_says_nothing(ending: Ending) -> None:
    sampling, engine, machine = sampler(OPEN, Stall())
    steps = await stalled(sampling)
    asyncio.get_running_loop().call_soon(sampling.stop, ending)

    assert [step async for step in steps] == []
    assert not cast(asyncio.Task[None], asyncio.current_task()).cancelling()
    assert (sampling.ending, sampling.interrupted, sampling.stopped) == (ending, False, ending)
    assert (engine.running, list(engine.aborted)) == (0, ["one"])
    assert [type(event).__name__ for event in machine.feed(harmony(" there"))] == ["OutputTextDelta"]


async def test_it_stops_by_itself_when_its_time_is_over() -> None:
    sampling, engine, _ = sampler(OPEN, Stall(), seconds=0.01)
    await all_of(sampling)

    assert (sampling.ending, engine.running) == (Ending.TIMEOUT, 0)


async def test_nothing_holds_it_once_it_is_done_however_much_time_it_had() -> None:
    sampling, _, _ = sampler(OPEN)
    await all_of(sampling)
    held = weakref.ref(sampling)
    del sampling
    gc.collect()

    assert held() is None


async def test_a_cancelled_task_ends_it_and_is_told_of_afterwards() -> None:
    sampling, engine, machine = sampler(OPEN, Stall())
    task = asyncio.create_task(all_of(sampling))
    await until(lambda: machine.stretches.sampled)
    task.cancel()

    assert len(await task) == 1
    assert not task.cancelling()
    assert (sampling.ending, sampling.interrupted, list(engine.aborted)) == (Ending.ABORT, True, ["one"])


# --- an engine that fails ---


async def test_a_failure_of_the_engine_is_kept_and_what_was_sampled_too() -> None:
    failure = EngineUnavailable("it is gone")
    sampling, _, machine = sampler(OPEN, Die(failure))
    steps = await all_of(sampling)

    assert (sampling.ending, sampling.failure) == (Ending.ERROR, failure)
    assert (len(steps), machine.stretches.sampled) == (1, len(OPEN))


@pytest.mark.parametrize(
    ("ending", "failure", "words"),
    [
        (Ending.TIMEOUT, None, "longer than 90 s"),
        (Ending.ERROR, None, "stopped before the answer was complete"),
        (Ending.ERROR, EngineUnavailable("it is gone"), "failed: it is gone"),
        (Ending.ERROR, EngineRefused("too long"), "refused the request: too long"),
    ],
)
def test_an_ending_that_fails_says_why(ending: Ending, failure: EngineUnavailable | None, words: str) -> None:
    error = error_of(ending, failure, 90)

    assert error is not None
    assert (error.code, words in error.message) == ("server_error", True)


@pytest.mark.parametrize("ending", [Ending.STOP, Ending.LENGTH, Ending.ABORT])
def test_an_ending_that_does_not_fail_has_no_error(ending: Ending) -> None:
    assert error_of(ending, EngineUnavailable("later"), 90) is None


# --- going on elsewhere ---
