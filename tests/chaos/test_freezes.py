"""A worker that stands still for longer than its lease, and then goes on as if nothing had been."""

import json
from pathlib import Path

import pytest

from tests.support.chaos.fleet import Member, running
from tests.support.chaos.storm import SETTINGS, SETTLE_SECONDS, storm
from tests.support.waiting import until

pytestmark = pytest.mark.timeout(300)


def outcomes(worker: Member) -> list[str]:
    """How a worker's attempts ended, as it logged them."""
    logged = [json.loads(line) for line in worker.log.splitlines() if line.startswith("{")]
    return [line["outcome"] for line in logged if line["message"] == "attempt"]


async def refused(worker: Member) -> None:
    """Wait until one more of its attempts was refused."""
    before = outcomes(worker).count("lost")
    await until(lambda: outcomes(worker).count("lost") > before, SETTLE_SECONDS, "it was not refused")


async def freeze(folder: Path, seed: int, *, responses: int, numbers: int, rounds: int) -> None:
    """All work is one worker's; it stands still until the other has gone on with all of it, and is then woken."""
    async with running(folder, seed, **SETTINGS) as fleet:
        holder, other = fleet.workers
        fleet.freeze(other)
        async with storm(fleet, responses, numbers) as under_way:
            await under_way.speaking()
            fleet.wake(other)
            for _ in range(rounds):
                fleet.freeze(holder)
                await under_way.speaking(fleet.chance.randint(5, 30))
                fleet.wake(holder)
                await refused(holder)
                holder, other = other, holder
            await under_way.over(300)
            await under_way.check()
        assert all(each.connections == 1 for each in under_way.followers)
        assert sum(outcomes(each).count("ended") for each in fleet.workers) == responses


async def test_a_worker_that_was_frozen_past_its_lease_writes_nothing_more(tmp_path: Path) -> None:
    await freeze(tmp_path, seed=2, responses=6, numbers=150, rounds=1)


@pytest.mark.full
@pytest.mark.timeout(1800)
async def test_workers_that_are_frozen_in_turn_write_nothing_twice(tmp_path: Path) -> None:
    await freeze(tmp_path, seed=21, responses=50, numbers=2000, rounds=5)
