"""An accepted steer of a background response is said once or comes back, whoever dies, and wherever."""

import os
import signal

from service.api.response import Response, ResponseStatus
from service.background.control import steer
from service.entrance import Entry
from service.process import Settings
from service.settings.core import DEFAULT_TENANT
from tests.support.chaos.aftermath import Aftermath
from tests.support.chaos.deaths import TOKENS_PER_SECOND, Scenario, Stage
from tests.support.chaos.inside import WatchedEngine, opened, queue, working
from tests.support.chaos.mortal import SAID, STEER, STEERED_STEPS
from tests.support.waiting import until

COUNT = "Count to 60."
SLOW = 20
SECONDS = 30.0


async def settle(settings: Settings, aftermath: Aftermath, id: str) -> list[Response]:
    """The response and all that go on from it, once another worker has ended them; nothing else is there."""
    async with working(settings, WatchedEngine(TOKENS_PER_SECOND)):
        await until(lambda: aftermath.ended(id), SECONDS, "a job is stuck")
    made = [await aftermath.response(id)]
    while made[-1].harmonium and (following := made[-1].harmonium.succeeded_by):
        made.append(await aftermath.response(str(following)))
        assert made[-1].previous_response_id == made[-2].id
    ids = [each.id for each in made]
    assert await aftermath.ids() == {*ids}
    await aftermath.check(ids)
    await aftermath.check_usage()
    return made


async def input_of(settings: Settings, response: Response) -> str:
    async with opened(settings) as service:
        ((_, items),) = await service.store.items(DEFAULT_TENANT, [response.id])
    return items.decode()


async def check_applied(settings: Settings, made: list[Response]) -> None:
    """Check that a steer is the input of one response, which goes on from the one to which it was said."""
    assert [each.status for each in made] == [ResponseStatus.INCOMPLETE, ResponseStatus.COMPLETED]
    assert made[0].incomplete_details is not None
    assert made[0].incomplete_details.reason == "steered"
    assert [(await input_of(settings, each)).count(SAID) for each in made] == [0, 1]


async def die(stage: Stage, step: str) -> None:
    """A response that is steered while it waits, where somebody dies at a step."""
    if step in OTHERS:
        await OTHERS[step](stage)
        return
    settings, deed = stage.settings(), "steer" if step.startswith("steer") else "work"
    async with Aftermath(settings) as aftermath:
        async with opened(settings) as service:
            id = await queue(service, COUNT)
            if deed == "work":
                await steer(service, Entry(DEFAULT_TENANT), id, STEER)
        await stage.program.die(settings, step, deed, id)
        made = await settle(settings, aftermath, id)
        if step == "steering":
            assert [each.status for each in made] == [ResponseStatus.COMPLETED]
        else:
            await check_applied(settings, made)


async def die_before_it_has_heard(stage: Stage) -> None:
    """A worker that dies before it has heard of a steer is replaced by one that has."""
    settings = stage.settings(demo_tokens_per_second=SLOW)
    async with Aftermath(settings) as aftermath:
        async with opened(settings) as service:
            id = await queue(service, COUNT)
            pid = await stage.program.begin(settings)
            await until(lambda: aftermath.events(id), SECONDS, wanted=lambda found: len(found) > 10)
            os.kill(pid, signal.SIGSTOP)
            await steer(service, Entry(DEFAULT_TENANT), id, STEER)
            os.kill(pid, signal.SIGKILL)
        await check_applied(settings, await settle(settings, aftermath, id))


async def die_cancelling(stage: Stage) -> None:
    """A canceller that dies gives back what was said."""
    settings = stage.settings()
    async with Aftermath(settings) as aftermath:
        async with opened(settings) as service:
            id = await queue(service, COUNT)
            accepted = await steer(service, Entry(DEFAULT_TENANT), id, STEER)
            await stage.program.die(settings, "cancelled", "cancel", id)
        (made,) = await settle(settings, aftermath, id)
        assert made.status is ResponseStatus.CANCELLED
        assert made.harmonium
        (back,) = list(made.harmonium.failed_steers or [])
        assert (back.steer.id, bytes(back.steer.input or b"")) == (accepted.steer.id, b'"Be brief."')


OTHERS = {"unheard": die_before_it_has_heard, "cancelled": die_cancelling}

SCENARIO = Scenario(die, (*STEERED_STEPS, *OTHERS), pushed="succeeding")
