"""Workers and APIs that are killed at any moment cost a pause, and no event and no token."""

from pathlib import Path

import pytest

from tests.support.chaos.fleet import Fleet, Process, running
from tests.support.chaos.storm import SETTINGS, Storm, storm

EVENTS_A_NUMBER = 2
"""About how many events a number makes; kills are spread by it."""

pytestmark = pytest.mark.timeout(300)


async def kill_at_random(fleet: Fleet, storm: Storm, kills: int, events: int) -> None:
    """Kill members and start them again, spread over so many events, with chance in between."""
    for number in range(kills):
        await storm.seen_by_all(events * (number + fleet.chance.random()) / kills)
        victim: Process = fleet.chance.choice([member for member in fleet.members if member.alive])
        fleet.kill(victim)
        fleet.launch(victim)


async def survive(folder: Path, seed: int, *, responses: int, numbers: int, kills: int, seconds: float) -> None:
    async with running(folder, seed, **SETTINGS) as fleet, storm(fleet, responses, numbers) as under_way:
        await kill_at_random(fleet, under_way, kills, responses * numbers * EVENTS_A_NUMBER)
        await under_way.over(seconds)
        await under_way.check()
        await under_way.check_usage()
        assert sum(each.connections for each in under_way.followers) > responses, fleet.history


async def test_workers_and_apis_that_are_killed_cost_no_event(tmp_path: Path) -> None:
    await survive(tmp_path, seed=1, responses=12, numbers=200, kills=6, seconds=60)


@pytest.mark.full
@pytest.mark.timeout(1800)
async def test_twenty_kills_under_fifty_responses_cost_no_event(tmp_path: Path) -> None:
    await survive(tmp_path, seed=20, responses=50, numbers=2000, kills=20, seconds=900)
