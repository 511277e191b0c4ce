"""What was accepted to be said to a background response is said once or comes back, whoever dies, and wherever."""

import asyncio
import os
import signal
from pathlib import Path
from typing import Any

import pytest

from service.api.response import Response, ResponseStatus
from service.background.control import steer
from service.settings.core import DEFAULT_TENANT
from service.settings.settings import Settings, load_settings
from store.embedded import EmbeddedServer
from tests.support.chaos.aftermath import Aftermath
from tests.support.chaos.inside import WatchedEngine, at_work, opened, queue, working
from tests.support.chaos.mortal import SAID, STEER, STEERED_STEPS
from tests.support.chaos.mortals import Mortals, dead, mortals
from tests.support.chaos.storm import STEADY
from tests.support.chaos.watched import watched
from tests.support.waiting import until

TOKENS_PER_SECOND = 400
SLOW = 20
COUNT = "Count to 60."
SECONDS = 30.0

pytestmark = pytest.mark.timeout(120)


@pytest.fixture
def settings(tmp_path: Path) -> Any:
    """Makes settings over one store, with an empty part of it for each prefix."""
    with EmbeddedServer(tmp_path / "store") as server:

        def make(prefix: str, speed: float = TOKENS_PER_SECOND) -> Settings:
            return load_settings(redis_url=server.url, key_prefix=prefix, **STEADY | {"demo_tokens_per_second": speed})

        yield make


async def ended(aftermath: Aftermath, id: str) -> bool:
    """Whether a response has ended, and all that goes on from it."""
    return not await aftermath.left_over() and id in await aftermath.ids()


async def settle(settings: Settings, aftermath: Aftermath, id: str) -> list[Response]:
    """The response and all that go on from it, once another worker has ended them; nothing else is there."""
    async with working(settings, WatchedEngine(TOKENS_PER_SECOND)):
        await until(lambda: ended(aftermath, id), SECONDS, "a job is stuck")
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
    aftermath = Aftermath(settings)
    try:
        async with opened(settings) as service:
            id = await queue(service, COUNT)
            deed = "steer" if step.startswith("steer") else "work"
            if deed == "work":
                await steer(service, DEFAULT_TENANT, id, STEER)
        pid = await program.begin(settings, step, deed, id)
        await until(lambda: dead(pid), SECONDS, f"nobody dies {step}")
        made = await settle(settings, aftermath, id)
        if step == "steering":
            assert [each.status for each in made] == [ResponseStatus.COMPLETED]
        else:
            await check_applied(settings, made)
        await aftermath.check_usage()
    finally:
        await aftermath.close()


async def test_a_steer_is_said_once_wherever_somebody_dies(settings: Any) -> None:
    async with mortals() as program, asyncio.TaskGroup() as group:
        for number, step in enumerate(STEERED_STEPS):
            group.create_task(die_at(program, settings(f"step-{number}"), step))


async def test_a_worker_that_dies_before_it_has_heard_of_a_steer_is_replaced_by_one_that_has(settings: Any) -> None:
    chosen = settings("unheard", SLOW)
    aftermath = Aftermath(chosen)
    try:
        async with mortals() as program, opened(chosen) as service:
            id = await queue(service, COUNT)
            pid = await program.begin(chosen)
            await until(lambda: aftermath.events(id), SECONDS, wanted=lambda found: len(found) > 10)
            os.kill(pid, signal.SIGSTOP)
            await steer(service, DEFAULT_TENANT, id, STEER)
            os.kill(pid, signal.SIGKILL)
        made = await settle(chosen, aftermath, id)
        await check_applied(chosen, made)
    finally:
        await aftermath.close()


async def test_a_canceller_that_dies_gives_back_what_was_said(settings: Any) -> None:
    chosen = settings("cancelled")
    aftermath = Aftermath(chosen)
    try:
        async with mortals() as program, opened(chosen) as service:
            id = await queue(service, COUNT)
            accepted = await steer(service, DEFAULT_TENANT, id, STEER)
            pid = await program.begin(chosen, "cancelled", "cancel", id)
            await until(lambda: dead(pid), SECONDS, "it doesn't die")
        (made,) = await settle(chosen, aftermath, id)
        assert made.status is ResponseStatus.CANCELLED
        assert made.harmonium
        (back,) = list(made.harmonium.failed_steers or [])
        assert (back.steer.id, bytes(back.steer.input or b"")) == (accepted.steer.id, b'"Be brief."')
    finally:
        await aftermath.close()


async def test_what_is_said_while_the_successor_is_made_is_said_in_it_too(settings: Any) -> None:
    chosen = settings("late")
    aftermath = Aftermath(chosen)
    late = [b'{"input": "Late."}', b'{"input": "Later."}']

    async def at(step: str) -> None:
        if step == "told of steers" and late:
            await steer(service, DEFAULT_TENANT, id, late.pop(0))

    try:
        async with opened(chosen, WatchedEngine(TOKENS_PER_SECOND)) as service:
            id = await queue(service, COUNT)
            await steer(service, DEFAULT_TENANT, id, STEER)
            async with at_work(watched(service, at)):
                await until(lambda: ended(aftermath, id), SECONDS, "a job is stuck")
        made = await settle(chosen, aftermath, id)
        await check_applied(chosen, made)
        async with opened(chosen) as other:
            ((_, items),) = await other.store.items(DEFAULT_TENANT, [made[1].id])
        said = [items.decode().index(words) for words in (SAID, "Late.", "Later.")]
        assert said == sorted(said)
    finally:
        await aftermath.close()
