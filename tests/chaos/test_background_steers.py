"""What was accepted to be said to a background response is said once or comes back, whoever dies, and wherever."""

import os
import signal
from typing import Any

import pytest

from service.api.response import Response, ResponseStatus
from service.background.control import steer
from service.settings.core import DEFAULT_TENANT
from service.settings.settings import Settings
from tests.support.chaos.aftermath import Aftermath
from tests.support.chaos.deaths import each_dies
from tests.support.chaos.inside import WatchedEngine, at_work, opened, queue, working
from tests.support.chaos.mortal import SAID, STEER, STEERED_STEPS
from tests.support.chaos.mortals import Mortals, mortals
from tests.support.chaos.watched import watched
from tests.support.waiting import until

TOKENS_PER_SECOND = 400
SLOW = 20
COUNT = "Count to 60."
SECONDS = 30.0

pytestmark = pytest.mark.timeout(120)


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
    return made


async def said_in(settings: Settings, response: Response) -> int:
    """How often a response has in its input what was said."""
    async with opened(settings) as service:
        ((_, items),) = await service.store.items(DEFAULT_TENANT, [response.id])
    return items.decode().count(SAID)


async def check_applied(settings: Settings, made: list[Response]) -> None:
    """What was said is the input of one response, which goes on from the one to which it was said."""
    assert [each.status for each in made] == [ResponseStatus.INCOMPLETE, ResponseStatus.COMPLETED]
    assert made[0].incomplete_details is not None
    assert made[0].incomplete_details.reason == "steered"
    assert [await said_in(settings, each) for each in made] == [0, 1]


async def die_at(program: Mortals, settings: Settings, step: str) -> None:
    """A response that is steered while it waits, where somebody dies at a step."""
    deed = "steer" if step.startswith("steer") else "work"
    async with Aftermath(settings) as aftermath:
        async with opened(settings) as service:
            id = await queue(service, COUNT)
            if deed == "work":
                await steer(service, DEFAULT_TENANT, id, STEER)
        await program.die(settings, step, deed, id)
        made = await settle(settings, aftermath, id)
        if step == "steering":
            assert [each.status for each in made] == [ResponseStatus.COMPLETED]
        else:
            await check_applied(settings, made)
        await aftermath.check_usage()


async def test_a_steer_is_said_once_wherever_somebody_dies(part: Any) -> None:
    await each_dies(STEERED_STEPS, die_at, part)


async def test_a_worker_that_dies_before_it_has_heard_of_a_steer_is_replaced_by_one_that_has(part: Any) -> None:
    settings = part("unheard", demo_tokens_per_second=SLOW)
    async with Aftermath(settings) as aftermath:
        async with mortals() as program, opened(settings) as service:
            id = await queue(service, COUNT)
            pid = await program.begin(settings)
            await until(lambda: aftermath.events(id), SECONDS, wanted=lambda found: len(found) > 10)
            os.kill(pid, signal.SIGSTOP)
            await steer(service, DEFAULT_TENANT, id, STEER)
            os.kill(pid, signal.SIGKILL)
        await check_applied(settings, await settle(settings, aftermath, id))


async def test_a_canceller_that_dies_gives_back_what_was_said(part: Any) -> None:
    settings = part("cancelled")
    async with Aftermath(settings) as aftermath:
        async with mortals() as program, opened(settings) as service:
            id = await queue(service, COUNT)
            accepted = await steer(service, DEFAULT_TENANT, id, STEER)
            await program.die(settings, "cancelled", "cancel", id)
        (made,) = await settle(settings, aftermath, id)
        assert made.status is ResponseStatus.CANCELLED
        assert made.harmonium
        (back,) = list(made.harmonium.failed_steers or [])
        assert (back.steer.id, bytes(back.steer.input or b"")) == (accepted.steer.id, b'"Be brief."')


async def test_what_is_said_while_the_successor_is_made_is_said_in_it_too(part: Any) -> None:
    settings = part("late")
    late = [b'{"input": "Late."}', b'{"input": "Later."}']

    async def at(step: str) -> None:
        if step == "told of steers" and late:
            await steer(service, DEFAULT_TENANT, id, late.pop(0))

    async with Aftermath(settings) as aftermath:
        async with opened(settings, WatchedEngine(TOKENS_PER_SECOND)) as service:
            id = await queue(service, COUNT)
            await steer(service, DEFAULT_TENANT, id, STEER)
            async with at_work(watched(service, at)):
                await until(lambda: aftermath.ended(id), SECONDS, "a job is stuck")
        made = await settle(settings, aftermath, id)
        await check_applied(settings, made)
        async with opened(settings) as other:
            ((_, items),) = await other.store.items(DEFAULT_TENANT, [made[1].id])
        said = [items.decode().index(words) for words in (SAID, "Late.", "Later.")]
        assert said == sorted(said)
