"""Workers that die at every step of an attempt: somebody else goes on soon, and what kills all of them is given up."""

import asyncio
import time
from typing import Any

import pytest

from service.api.response import ResponseStatus
from service.settings.settings import Settings
from tests.support.chaos.aftermath import Aftermath
from tests.support.chaos.deaths import each_dies
from tests.support.chaos.inside import WatchedEngine, answer, counted, opened, queue, working
from tests.support.chaos.mortal import POISON, STEPS
from tests.support.chaos.mortals import Mortals, dead, mortals
from tests.support.chaos.storm import STEADY
from tests.support.waiting import until

ANSWER_SECONDS = 3.0
"""What an answer takes beside, on cores that others share; alone it is half a second."""

TOKENS_PER_SECOND = 400
COUNTED = 60

pytestmark = pytest.mark.timeout(120)


async def die_and_be_replaced(mortals: Mortals, settings: Settings, step: str) -> None:
    """A response whose worker dies at a step, and then comes to its end by another."""
    async with Aftermath(settings) as aftermath:
        async with opened(settings) as service:
            id = await queue(service, f"Count to {COUNTED}.")
        await mortals.die(settings, step, "cancel" if step.startswith("cancel") else "work", id)
        died = time.monotonic()
        async with working(settings, WatchedEngine(TOKENS_PER_SECOND)):
            await until(lambda: aftermath.ended(id), 30, f"the job is stuck: its worker died {step}")
            seconds = time.monotonic() - died
        await aftermath.check([id])
        await aftermath.check_usage()
        response = await aftermath.response(id)
        if step == "cancelled":
            assert (response.status, response.output) == (ResponseStatus.CANCELLED, [])
        else:
            assert (response.status, answer(response)) == (ResponseStatus.COMPLETED, counted(COUNTED))
        assert seconds < 2 * STEADY["lease_seconds"] + ANSWER_SECONDS


async def test_a_worker_that_dies_at_any_step_is_replaced_within_two_leases(part: Any) -> None:
    await each_dies(STEPS, die_and_be_replaced, part)


async def test_what_kills_every_worker_is_given_up_and_takes_nobody_with_it(part: Any) -> None:
    shared = part("poison")
    async with mortals() as program, Aftermath(shared) as aftermath:
        async with opened(shared) as service:
            poison = await queue(service, f"Is this {POISON}?")
            others = [await queue(service, f"Count to {COUNTED}.") for _ in range(4)]
        deaths = 0
        pid = await program.begin(shared)
        while not await aftermath.ended(poison, *others):
            if dead(pid):
                deaths += 1
                pid = await program.begin(shared)
            await asyncio.sleep(0.05)
        given_up = await aftermath.response(poison)
        assert (deaths, given_up.status) == (shared.max_attempts, ResponseStatus.FAILED)
        assert given_up.error is not None
        assert "3 workers in a row died" in given_up.error.message
        for id in others:
            response = await aftermath.response(id)
            assert (response.status, answer(response)) == (ResponseStatus.COMPLETED, counted(COUNTED)), response.error
        await aftermath.check([poison, *others])
        await aftermath.check_usage()
