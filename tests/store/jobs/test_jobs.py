"""Jobs: a background response from its acceptance to its end, and what its holder may no longer do once it lost it."""

import asyncio

import pytest
from redis.asyncio import Redis

from store.errors import LeaseLost
from store.history.history import ConversationHistoryStore
from store.jobs.jobs import Jobs
from store.jobs.log import LogEntry
from store.jobs.model import JobLimits
from store.jobs.outbox import Outbox
from store.turn import Status
from tests.support.store.audit import dump
from tests.support.store.sample import TENANT, said, turn
from tests.support.store.work import claim, claimed, fall_silent, finish, step_back, submit

SOON = 0.05


async def test_a_job_whose_holder_fell_silent_is_next_and_what_that_one_does_is_refused(
    history: ConversationHistoryStore, jobs: Jobs, redis: Redis, prefix: str
) -> None:
    id, _ = await submit(jobs), await submit(jobs, "two")
    frozen = await claim(jobs)
    await fall_silent(jobs, id)
    again = await jobs.claim(0, 1)
    (job,) = again.jobs
    assert (again.rescued, job.lease.id, job.epoch, job.tries) == (1, id, frozen.epoch + 1, 2)
    before = await dump(redis, prefix)
    for refusal in (jobs.write(frozen.lease, LogEntry(5, b"late")), finish(jobs, frozen)):
        with pytest.raises(LeaseLost):
            await refusal
    assert (await jobs.renew([frozen.lease])).lost == [frozen.lease]
    await jobs.hand_back(frozen.lease, failed=True)
    assert await dump(redis, prefix) == before
    await finish(jobs, job)
    assert await said(history, id) == ["done"]


async def test_a_lease_ends_by_the_server_s_clock(history: ConversationHistoryStore) -> None:
    brief = Jobs(history, JobLimits(lease_seconds=SOON))
    id = await submit(brief)
    await claim(brief)
    async with asyncio.timeout(100 * SOON):
        while not (found := (await brief.claim(0, 0)).rescued):  # noqa: ASYNC110 (what runs out wakes nobody)
            await asyncio.sleep(SOON / 10)
    assert (found, await claimed(brief, 1)) == (1, ["one"])
    await fall_silent(brief, id)


async def test_a_lease_of_the_dead_is_not_held_by_a_clock_that_was_stepped_back(jobs: Jobs) -> None:
    id = await submit(jobs)
    job = await claim(jobs)
    await step_back(jobs, id, 0.9 * jobs.limits.lease_seconds)
    assert (await jobs.claim(0, 1)).jobs == []
    await step_back(jobs, id, 0.2 * jobs.limits.lease_seconds)
    assert (await claim(jobs)).lease.id == id
    with pytest.raises(LeaseLost):
        await jobs.write(job.lease, LogEntry(5, b"late"))


async def test_a_holder_that_lives_keeps_its_lease_when_the_clock_is_stepped_back(jobs: Jobs) -> None:
    id = await submit(jobs)
    job = await claim(jobs)
    await step_back(jobs, id, 100 * jobs.limits.lease_seconds)
    await jobs.renew([job.lease])
    assert (await jobs.claim(0, 1)).jobs == []
    await finish(jobs, job)


async def test_a_worker_with_short_leases_takes_nothing_from_one_with_long_ones(jobs: Jobs) -> None:
    await submit(jobs)
    job = await claim(jobs)
    brief = Jobs(jobs.history, JobLimits(lease_seconds=jobs.limits.lease_seconds / 100))
    assert (await brief.claim(0, 1)).rescued == 0
    await finish(jobs, job)


async def test_an_end_is_announced_once_where_that_is_asked_for(history: ConversationHistoryStore, jobs: Jobs) -> None:
    quiet, told = await submit(jobs), await submit(jobs)
    await finish(jobs, await claim(jobs))
    job = await claim(jobs)
    for _ in range(2):
        await finish(jobs, job, status=Status.FAILED, announced=True)
    outbox = Outbox(history)
    webhooks = await outbox.take(outbox.shards[0], 10, 60_000)
    assert [(each.id, each.status) for each in webhooks] == [(told, "failed")]
    assert quiet != told


async def test_what_was_cancelled_ends_as_nothing_else(jobs: Jobs) -> None:
    id = await submit(jobs)
    job = await jobs.cancel(TENANT, id)
    assert job is not None
    assert await jobs.cancel(TENANT, id) is None, "one alone ends it"
    with pytest.raises(ValueError, match="is cancelled and can't become"):
        await jobs.finish(job.lease, turn(id), LogEntry(9, b"the end"))
    await finish(jobs, job)
