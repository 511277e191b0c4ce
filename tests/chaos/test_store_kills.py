"""A Redis that is killed in the middle of it all, and started again on its folder."""

import asyncio
from pathlib import Path

import pytest

from tests.support.chaos.fleet import running
from tests.support.chaos.storm import SETTINGS, storm

MOST_SECONDS_AWAY = 3.0

pytestmark = pytest.mark.timeout(300)


async def kill_the_store(folder: Path, seed: int, *, responses: int, numbers: int, kills: int) -> None:
    async with running(folder, seed, **SETTINGS) as fleet, storm(fleet, responses, numbers) as under_way:
        for _ in range(kills):
            await under_way.speaking(fleet.chance.randint(20, 60))
            fleet.kill(fleet.store)
            await asyncio.sleep(fleet.chance.uniform(0, MOST_SECONDS_AWAY))  # for so long it is away
            fleet.launch(fleet.store)
            await fleet.store.ready()
        await under_way.over(300)
        await under_way.check()
        await under_way.check_usage()
        assert all(each.connections == 1 for each in under_way.followers)


async def test_a_store_that_is_killed_and_comes_back_costs_a_pause(tmp_path: Path) -> None:
    await kill_the_store(tmp_path, seed=3, responses=6, numbers=150, kills=2)


@pytest.mark.full
@pytest.mark.timeout(1800)
async def test_a_store_that_is_killed_ten_times_costs_ten_pauses(tmp_path: Path) -> None:
    await kill_the_store(tmp_path, seed=22, responses=50, numbers=2000, kills=10)
