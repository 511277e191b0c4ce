"""Kills, freezes, restarts, a store that dies and answers that are cancelled, all in any order at any moment."""

import asyncio
from collections.abc import Awaitable, Callable
from pathlib import Path

import httpx
import pytest

from tests.support.chaos.aftermath import Aftermath
from tests.support.chaos.fleet import Fleet, running
from tests.support.chaos.inside import answer, counted
from tests.support.chaos.storm import LEASE_SECONDS, SETTINGS, SETTLE_SECONDS, Storm, storm
from tests.support.waiting import until

EVENTS_A_NUMBER = 2
"""About how many events a number makes; trouble is spread by it."""

RETRIED = (500, 502, 503)

pytestmark = pytest.mark.timeout(300)


class Trouble:
    """Makes trouble, one thing at a time, as chance has it."""

    def __init__(self, fleet: Fleet, storm: Storm) -> None:
        self._fleet = fleet
        self._storm = storm
        self.cancelled: set[str] = set()
        """What an API said was cancelled."""
        self._kinds: list[Callable[[], Awaitable[None]]] = [
            *(self._kill, self._kill, self._kill_the_store, self._freeze, self._restart, self._cancel, self._cancel)
        ]
        self._next: list[Callable[[], Awaitable[None]]] = []

    async def make(self) -> None:
        """Do one thing, and see to it that everybody is there again; all kinds in turn, in another order each time."""
        self._next = self._next or self._fleet.chance.sample(self._kinds, len(self._kinds))
        await self._next.pop()()

    async def _kill(self) -> None:
        victim = self._fleet.chance.choice(self._fleet.members)
        self._fleet.kill(victim)
        self._fleet.launch(victim)

    async def _kill_the_store(self) -> None:
        self._fleet.kill(self._fleet.store)
        self._fleet.launch(self._fleet.store)
        await self._fleet.store.ready()

    async def _freeze(self) -> None:
        victim = self._fleet.chance.choice(self._fleet.members)
        self._fleet.freeze(victim)
        await asyncio.sleep(self._fleet.chance.uniform(0, 2 * LEASE_SECONDS))  # for so long it stands still
        self._fleet.wake(victim)

    async def _restart(self) -> None:
        await self._fleet.restart(self._fleet.chance.choice(self._fleet.members))

    async def _cancel(self) -> None:
        """Cancel what is under way, by whichever API answers."""
        id = self._fleet.chance.choice([each.id for each in self._storm.followers])
        if id is None:
            return
        self._fleet.note(f"cancel {id}")
        while True:
            url = self._fleet.chance.choice(self._fleet.apis).url
            try:
                async with httpx.AsyncClient(base_url=url, timeout=10, trust_env=False, verify=False) as http:
                    reply = await http.post(f"/v1/responses/{id}/cancel", headers={"content-type": "application/json"})
            except httpx.TransportError:
                await asyncio.sleep(0.05)
                continue
            if reply.status_code in RETRIED:
                await asyncio.sleep(0.05)
                continue
            assert reply.status_code in (200, 400), reply.text  # one that has ended can't be
            self.cancelled |= {id} if reply.status_code == 200 else set()
            return


async def survive(folder: Path, seed: int, *, responses: int, numbers: int, troubles: int, seconds: float) -> None:
    """A store that syncs each write can't forget what was cancelled; see docs/operating.md for one that doesn't."""
    async with (
        running(folder, seed, fsync="always", **SETTINGS) as fleet,
        storm(fleet, responses, numbers) as under_way,
    ):
        trouble = Trouble(fleet, under_way)
        for number in range(troubles):
            await under_way.seen_by_all(responses * numbers * EVENTS_A_NUMBER * number / troubles / 2)
            await trouble.make()
        await under_way.over(seconds)
        await check(fleet, under_way, trouble, counted(numbers))


async def check(fleet: Fleet, storm: Storm, trouble: Trouble, whole: str) -> None:
    """What was cancelled says the beginning of the answer, all else says all of it; and nothing else is left."""
    for each in storm.followers:
        assert each.response["status"] == ("cancelled" if each.id in trouble.cancelled else "completed"), each.id
    async with Aftermath(fleet.settings) as aftermath:
        await until(aftermath.ended, SETTLE_SECONDS, "jobs are left")
        ids = await aftermath.ids()
        await aftermath.check(ids)
        await aftermath.check_usage()
        for id in ids:
            response = await aftermath.response(id)
            said = answer(response) if len(response.output) > 1 else ""
            assert said == (whole[: len(said)] if id in trouble.cancelled else whole), id


async def test_nothing_is_lost_whatever_happens_next(tmp_path: Path) -> None:
    await survive(tmp_path, seed=8, responses=8, numbers=150, troubles=10, seconds=60)


@pytest.mark.full
@pytest.mark.timeout(1800)
@pytest.mark.parametrize("seed", range(30, 34))
async def test_nothing_is_lost_whatever_happens_for_minutes(tmp_path: Path, seed: int) -> None:
    await survive(tmp_path, seed=seed, responses=30, numbers=1000, troubles=60, seconds=300)
