"""Workers that die at every step of an attempt: somebody else goes on soon."""

import time
from typing import NamedTuple

from service.api.response import ResponseStatus
from service.settings.core import DEFAULT_TENANT
from tests.support.chaos.aftermath import Aftermath
from tests.support.chaos.deaths import TOKENS_PER_SECOND, Scenario, Stage
from tests.support.chaos.inside import WatchedEngine, answer, counted, opened, queue, working
from tests.support.chaos.mortal import STEPS
from tests.support.chaos.storm import STEADY
from tests.support.store.work import age
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


class Hours(NamedTuple):
    """A step at which the worker of a response with hours dies, and when these were over: `never`, before it was
    `taken`, or once its worker had `died`.
    """

    step: str
    over: str


WINDOW_SECONDS = 8 * 3600.0


async def die_within_hours(stage: Stage, row: Hours) -> None:
    """A response that has hours comes to its end by another worker, and as one like others once they are over."""
    settings, engine = stage.settings(), WatchedEngine(TOKENS_PER_SECOND)
    async with Aftermath(settings) as aftermath, opened(settings) as service:
        id = await queue(service, f"Count to {COUNTED}.", window="8h")
        if row.over == "taken":
            await age(service.jobs, id, WINDOW_SECONDS, DEFAULT_TENANT)
        await stage.program.die(settings, row.step, "work", id)
        ended = row.step == "finished"
        if row.over == "died" and not ended:
            await age(service.jobs, id, WINDOW_SECONDS, DEFAULT_TENANT)
        async with working(settings, engine):
            await until(lambda: aftermath.ended(id), 30, f"the job is stuck: its worker died {row}")
        await aftermath.check([id])
        await aftermath.check_usage()
        response = await aftermath.response(id)
        assert (response.status, answer(response)) == (ResponseStatus.COMPLETED, counted(COUNTED))
        assert engine.priorities == ({} if ended else {id: 2 if row.over == "never" else 0})


WITHIN_HOURS = Scenario(
    die_within_hours,
    [Hours(step, over) for step in STEPS if not step.startswith("cancel") for over in ("never", "taken", "died")],
    pushed=Hours("claimed", "died"),
)
