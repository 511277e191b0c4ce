"""Steers of a background response while the one that goes on from it is made."""

from service.background.control import steer
from service.settings.core import DEFAULT_TENANT
from service.settings.settings import Settings
from tests.chaos.scenarios.steers import COUNT, SECONDS, check_applied, input_of, settle
from tests.support.chaos.aftermath import Aftermath
from tests.support.chaos.deaths import TOKENS_PER_SECOND
from tests.support.chaos.inside import WatchedEngine, at_work, opened, queue
from tests.support.chaos.mortal import SAID, STEER
from tests.support.chaos.watched import watched
from tests.support.waiting import until


async def test_what_is_said_while_the_successor_is_made_is_said_in_it_too(settings: Settings) -> None:
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
        said = await input_of(settings, made[1])
        places = [said.index(words) for words in (SAID, "Late.", "Later.")]
        assert places == sorted(places)
