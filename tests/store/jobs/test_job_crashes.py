"""What becomes of jobs when processes are killed: those that work on them, and the server under load.

No job is stuck, none that was acknowledged is lost, and whoever goes on with one goes on from the last event that was
acknowledged: no event is missing in a log, and none is there twice.
"""

import asyncio
import random
import time

from store.errors import NotFound
from store.jobs.jobs import Jobs
from store.jobs.log import EventLog
from store.turn import Found, Status
from tests.support.store.crashes import Crashes, Store
from tests.support.store.programs.killed_jobs import LIMITS, Said, carry_on, ended
from tests.support.store.sample import TENANT
from tests.support.store.verdict import faults


class TestJobs(Crashes[Said]):
    """Of jobs, before and after others have ended them."""

    program, told = "killed_jobs", Said

    async def check_killed(self, store: Store, told: Said) -> None:
        assert (await Jobs(store.history).queue(0)).running > 0

    async def check(self, store: Store, told: Said, *, since: float | None = None) -> set[str]:
        assert await faults(store.redis, store.url, store.prefix) == []
        until_then = time.time() if since is None else since
        there = {id: found for id in told.parents if (found := await look(store, id))}
        lacking = told.submitted.keys() - there.keys()
        assert {id for id in lacking if told.submitted[id] < until_then} == set()
        for id, (status, at) in told.statuses.items():
            assert at >= until_then or (there[id].status, there[id].under_way) == (status, False)
        for id, at in told.revoked.items():
            assert at >= until_then or there[id].status is Status.CANCELLED
        jobs = Jobs(store.history, LIMITS)
        await end_all(jobs)
        for id in there:
            await check_end(jobs, id)
        assert await faults(store.redis, store.url, store.prefix) == []
        return lacking


async def look(store: Store, id: str) -> Found | None:
    try:
        return await store.history.find(TENANT, id)
    except NotFound:
        return None


async def end_all(jobs: Jobs) -> None:
    """End all that waits, or is held by somebody who is dead."""
    chance = random.Random(0)
    async with asyncio.timeout(20 * LIMITS.lease_seconds):
        while (queue := await jobs.queue(0)).running or any(queue.waiting):
            for job in (await jobs.claim(0, 20)).jobs:
                await carry_on(jobs, job, chance)
            await asyncio.sleep(LIMITS.lease_seconds / 20)


async def check_end(jobs: Jobs, id: str) -> None:
    """A response has ended, and its log has every event once."""
    found = await jobs.history.find(TENANT, id)
    assert not found.under_way
    log = await EventLog(jobs.history).read(TENANT, id, -1, 1_000)
    spans = [tuple(map(int, each.blob.split(b"-"))) for each in log]
    assert [first for first, _ in spans] == [0, *[last + 1 for _, last in spans]][: len(spans)]
    assert [last for _, last in spans] == [each.last for each in log]
    assert (found.background == "stream") == bool(log)
    assert not log or found.response == ended(id, None, found.status, log[-1].last).response
