"""A store that is killed at every step of a response in a conversation, and started again on its folder.

It syncs before it acknowledges, and is back before its clients have given up: so every response is there, once and in
order.
"""

from itertools import product
from pathlib import Path

import pytest

from service.responses.service import Service
from service.settings.core import DEFAULT_TENANT
from service.settings.settings import load_settings
from tests.support.chaos.aftermath import Aftermath
from tests.support.chaos.deaths import shaky_store
from tests.support.chaos.inside import WatchedEngine, at_work, counted, opened, queue, respond
from tests.support.chaos.watched import watched
from tests.support.service.inside import serving
from tests.support.service.listed import said
from tests.support.waiting import until

IN_THE_FOREGROUND = ("holding", "held", "read", "adding", "added")
IN_THE_BACKGROUND = ("submitting", "submitted", "claimed", "writing", "written", "finishing", "finished")
PATIENT = {"lease_seconds": 30.0, "store_timeout_seconds": 10.0, "worker": False}
"""Nobody gives up while a store starts on a busy machine."""

TOKENS_PER_SECOND = 250
"""So slowly that something is written before the end."""

ROUNDS, MANY_ROUNDS = 1, 12
SECONDS = 30.0
ANSWERED = ("assistant", counted(5))

pytestmark = pytest.mark.timeout(120)


async def response_in_foreground(service: Service, what: str, conversation: str) -> str:
    """Make a response of a conversation; its status."""
    return (await respond(service, what, conversation)).status


async def response_in_background(service: Service, what: str, conversation: str) -> str:
    """Queue a response of a conversation; its status, once it has ended."""
    id = await queue(service, what, conversation)
    found = await until(
        lambda: service.store.find(DEFAULT_TENANT, id), SECONDS, wanted=lambda found: not found.under_way
    )
    return found.status


async def kill_at_each_step(folder: Path, rounds: int) -> None:
    async with shaky_store(folder, "always", 7) as outages:
        settings, asked = load_settings(redis_url=outages.url, **PATIENT), list[str]()
        async with serving(settings) as inside, inside.client() as client:
            id = (await client.conversations.create()).id
        async with opened(settings, WatchedEngine(TOKENS_PER_SECOND)) as service:
            shaky = watched(service, outages.at)
            async with at_work(shaky):
                for _, amid, step in product(range(rounds), (False, True), (*IN_THE_FOREGROUND, *IN_THE_BACKGROUND)):
                    asked.append(f"{len(asked)}. Count to 5.")
                    outages.order(step, amid=amid)
                    answer = response_in_background if step in IN_THE_BACKGROUND else response_in_foreground
                    assert await answer(shaky, asked[-1], id) == "completed", (step, amid)
                    await outages.over()
        async with serving(settings) as inside, inside.client() as client:
            assert await said(client, id) == [turn for each in asked for turn in (("user", each), ANSWERED)]
        async with Aftermath(settings) as aftermath:
            assert await aftermath.left_over() == []
            assert await aftermath.complaints() == []
            await aftermath.check_usage()


async def test_a_store_that_is_killed_at_any_step_of_a_response_keeps_its_conversation(tmp_path: Path) -> None:
    await kill_at_each_step(tmp_path, ROUNDS)


@pytest.mark.full
@pytest.mark.timeout(1800)
async def test_a_store_that_is_killed_again_and_again_keeps_its_conversation(tmp_path: Path) -> None:
    await kill_at_each_step(tmp_path, MANY_ROUNDS)
