"""Workers that die at every step of an attempt: somebody else goes on soon."""

import time

from service.api.response import ResponseStatus
from tests.support.chaos.aftermath import Aftermath
from tests.support.chaos.deaths import TOKENS_PER_SECOND, Scenario, Stage
from tests.support.chaos.inside import WatchedEngine, answer, counted, opened, queue, working
from tests.support.chaos.mortal import STEPS
from tests.support.chaos.storm import STEADY
from tests.support.waiting import until

ANSWER_SECONDS = 3.0
"""The time that an answer takes beside that, on cores that others share; alone it is half a second."""

COUNTED = 60


async def die(stage: Stage, step: str) -> None:
    """A response whose worker dies at a step, and then comes to its end by another within two leases."""
    settings = stage.settings()
    async with Aftermath(settings) as aftermath:
        async with opened(settings) as service:
            id = await queue(service, f"Count to {COUNTED}.")
        await stage.program.die(settings, step, "cancel" if step.startswith("cancel") else "work", id)
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


SCENARIO = Scenario(die, STEPS, pushed="written again")
