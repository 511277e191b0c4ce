"""A process that dies at any step loses nothing and does nothing twice.

Each dies by SIGKILL: at one step of ten scenarios on a push, at all steps of all of them in the long form.
"""

import asyncio
from pathlib import Path

import pytest

from service.api.response import ResponseStatus
from tests.support.chaos.aftermath import Aftermath
from tests.support.chaos.deaths import Scenario, each_dies, staged
from tests.support.chaos.inside import answer, counted, opened, queue
from tests.support.chaos.mortal import POISON
from tests.support.chaos.mortals import dead
from tests.together.chaos.scenarios import (
    archiving,
    calls,
    conversations,
    counting,
    keyed,
    steered_over_sockets,
    steers,
    workers,
)

PUSHED = {
    "a worker": workers.SCENARIO,
    "a worker of what has hours": workers.WITHIN_HOURS,
    "amid a conversation": conversations.SCENARIO,
    "amid a steer": steers.SCENARIO,
    "amid a steer over a socket": steered_over_sockets.SCENARIO,
    "within limits": counting.WITHIN_LIMITS,
    "amid a keyed request": keyed.REQUESTS,
    "amid a call": calls.SERVERS,
    "amid code": calls.PYTHON,
    "amid archiving": archiving.SCENARIO,
}
"""Scenarios of which one row is played on each push."""

SCENARIOS: dict[str, Scenario] = PUSHED | {
    "amid a keyed call": keyed.AROUND_CALLS,
}

SHORT_LEASES = {"lease_seconds": 4.0, "store_timeout_seconds": 1.3}
"""Three of them have to run out."""

SOON_SECONDS = 0.05
"""In the long form some die at any moment so long after a step."""


@pytest.mark.timeout(300)
async def test_whoever_dies_loses_nothing(tmp_path: Path) -> None:
    async with staged(tmp_path) as stage:
        await each_dies(stage, [(each.die, each.pushed) for each in PUSHED.values()])


@pytest.mark.full
@pytest.mark.timeout(1800)
@pytest.mark.parametrize("scenario", SCENARIOS.values(), ids=SCENARIOS)
async def test_whoever_dies_at_any_step_loses_nothing(tmp_path: Path, scenario: Scenario) -> None:
    async with staged(tmp_path) as stage:
        rows = await scenario.all_rows(stage)
        assert scenario.pushed in rows
        await each_dies(stage, [(scenario.die, row) for row in rows])
        for _ in range(scenario.soon_turns):
            await each_dies(stage, [(scenario.die, row) for row in rows], soon=SOON_SECONDS)


@pytest.mark.timeout(120)
async def test_what_kills_every_worker_is_given_up_and_takes_nobody_with_it(tmp_path: Path) -> None:
    async with staged(tmp_path) as stage, Aftermath(shared := stage.settings(**SHORT_LEASES)) as aftermath:
        async with opened(shared) as service:
            poison = await queue(service, f"Is this {POISON}?")
            others = [await queue(service, "Count to 60.") for _ in range(4)]
        deaths = 0
        pid = await stage.program.begin(shared)
        while not await aftermath.ended(poison, *others):
            if dead(pid):
                deaths += 1
                pid = await stage.program.begin(shared)
            await asyncio.sleep(0.05)
        given_up = await aftermath.response(poison)
        assert (deaths, given_up.status) == (shared.max_attempts, ResponseStatus.FAILED)
        assert given_up.error is not None
        assert "3 workers in a row died" in given_up.error.message
        for id in others:
            response = await aftermath.response(id)
            assert (response.status, answer(response)) == (ResponseStatus.COMPLETED, counted(60)), response.error
        await aftermath.check([poison, *others])
        await aftermath.check_usage()
