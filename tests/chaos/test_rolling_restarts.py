"""Every process is replaced, one after another, and nobody notices but for a pause."""

from pathlib import Path
from typing import Any

import pytest

from tests.support.chaos.fleet import running
from tests.support.chaos.storm import SETTINGS, storm

LONG_LEASES: dict[str, Any] = SETTINGS | {"lease_seconds": 60.0, "max_attempts": 1}
"""Whoever has to wait for the end of a lease waits for too long here, and an attempt that counts is the last."""

PAUSE_SECONDS = 5.0
"""The longest that a follower may wait. It is well below 1 s where the cores aren't busy with the starts of others."""

pytestmark = pytest.mark.timeout(300)


async def roll(folder: Path, seed: int, *, responses: int, numbers: int, rounds: int) -> None:
    async with running(folder, seed, **LONG_LEASES) as fleet, storm(fleet, responses, numbers) as under_way:
        for _ in range(rounds):
            for member in fleet.chance.sample(fleet.members, len(fleet.members)):
                await under_way.speaking(10)
                assert await fleet.restart(member) == 0, member.log
        await under_way.over(300)
        await under_way.check()
        longest = max(each.longest_pause for each in under_way.followers)
        assert longest < PAUSE_SECONDS, fleet.history


async def test_restarting_every_process_loses_nothing_and_hardly_any_time(tmp_path: Path) -> None:
    await roll(tmp_path, seed=4, responses=5, numbers=250, rounds=1)


@pytest.mark.full
@pytest.mark.timeout(1800)
async def test_restarting_every_process_again_and_again_loses_nothing(tmp_path: Path) -> None:
    await roll(tmp_path, seed=23, responses=50, numbers=2000, rounds=3)
