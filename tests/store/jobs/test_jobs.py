"""Jobs: a background response from its acceptance to its end, and what its holder may no longer do once it lost it."""

import asyncio

import pytest
from redis.asyncio import Redis

from store.errors import (
    LeaseLost,
    NotCancellable,
    NotContinuable,
    NotFound,
    NotTerminal,
)
from store.history.history import ConversationHistoryStore
from store.jobs.jobs import Jobs
from store.jobs.log import Entry, EventLog
from store.jobs.model import JobLimits
from store.jobs.outbox import Outbox
from store.turn import MOVES, TERMINAL, Status
from tests.support.store.audit import dump
from tests.support.store.counted import usage
from tests.support.store.sample import TENANT, grow, said, turn
from tests.support.store.work import (
    ACCEPTED,
    claim,
    claimed,
    do_all,
    fall_silent,
    finish,
    queued,
    status,
    step_back,
    submit,
)

SOON = 0.05
"""A lease that runs out by itself, in seconds."""


async def test_a_job_is_queued_then_in_progress_then_what_it_ended_with(
    history: ConversationHistoryStore, jobs: Jobs
) -> None:
    id = await submit(jobs)
    assert await status(history, id) is Status.QUEUED
    job = await claim(jobs)
    assert (job.lease.id, await jobs.spec(job.lease), job.last, job.tries) == (id, b"one", 1, 1)
    assert await status(history, id) is Status.IN_PROGRESS
    done = await finish(jobs, job)
    found = await history.find(TENANT, id)
    assert (found.status, found.response, found.under_way) == (Status.COMPLETED, done.response, False)
    assert await said(history, id) == ["done"]


async def test_what_is_under_way_is_neither_continued_nor_deleted(
    history: ConversationHistoryStore, jobs: Jobs
) -> None:
    (root,) = await grow(history, "root")
    id = await submit(jobs, parent=root)
    job = None
    for step in (None, lambda: claim(jobs), lambda: jobs.cancel(TENANT, id)):
        job = await step() if step else None
        for refusal, error in (
            (history.chain(TENANT, id), NotContinuable),
            (history.append(TENANT, turn(history.new_id(id), id)), NotContinuable),
            (history.forget(TENANT, id), NotTerminal),
            (history.forget_tree(TENANT, root), NotTerminal),
        ):
            with pytest.raises(error):
                await refusal
    assert job is not None
    await finish(jobs, job)
    await history.forget(TENANT, id)
    with pytest.raises(NotFound):
        await history.find(TENANT, id)


async def test_only_what_is_queued_is_submitted_and_only_what_has_ended_ends(jobs: Jobs) -> None:
    with pytest.raises(ValueError, match="is completed"):
        await jobs.submit(TENANT, turn(jobs.history.new_id()), b"one", ACCEPTED)
    await submit(jobs)
    job = await claim(jobs)
    with pytest.raises(ValueError, match="is in_progress"):
        await finish(jobs, job, status=Status.IN_PROGRESS)
    with pytest.raises(ValueError, match="can't end with"):
        await jobs.finish(job.lease, turn(jobs.history.new_id()), Entry(9, b"the end"))


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
    for refusal in (jobs.write(frozen.lease, Entry(5, b"late")), finish(jobs, frozen)):
        with pytest.raises(LeaseLost):
            await refusal
    assert (await jobs.renew([frozen.lease])).lost == [frozen.lease]
    await jobs.hand_back(frozen.lease, failed=True)
    assert await dump(redis, prefix) == before
    await finish(jobs, job)
    assert await said(history, id) == ["done"]


async def test_a_holder_that_was_late_and_was_not_missed_goes_on(jobs: Jobs) -> None:
    id = await submit(jobs)
    job = await claim(jobs)
    await fall_silent(jobs, id)
    await jobs.write(job.lease, Entry(5, b"late"))
    assert (await jobs.claim(0, 1)).jobs == []
    await fall_silent(jobs, id)
    assert (await jobs.renew([job.lease])).lost == []
    assert (await jobs.claim(0, 1)).jobs == []
    await fall_silent(jobs, id)
    await finish(jobs, job)


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
        await jobs.write(job.lease, Entry(5, b"late"))


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


async def test_who_cancels_is_told_for_how_long_it_has_been_under_way(jobs: Jobs, redis: Redis) -> None:
    id, waiting = await submit(jobs), await submit(jobs)
    await claim(jobs)
    for each in (id, waiting):
        (key,) = await redis.keys(f"*:job:{each.removeprefix('resp_')}")
        await redis.hincrby(key, "submitted", -10_000)
    (key,) = await redis.keys(f"*:job:{id.removeprefix('resp_')}")
    await redis.hincrby(key, "started", -4_000)
    begun, not_begun = await jobs.cancel(TENANT, id), await jobs.cancel(TENANT, waiting)
    assert begun is not None
    assert not_begun is not None
    assert (int(begun.run_seconds), int(begun.age_seconds)) == (4, 10)
    assert (not_begun.run_seconds, int(not_begun.age_seconds)) == (0, 10)


async def test_what_has_ended_or_was_never_in_the_background_is_not_cancelled(
    history: ConversationHistoryStore, jobs: Jobs
) -> None:
    (foreground,) = await grow(history, "one")
    with pytest.raises(NotCancellable) as refused:
        await jobs.cancel(TENANT, foreground)
    assert refused.value.status is None
    id = await submit(jobs)
    await finish(jobs, await claim(jobs))
    with pytest.raises(NotCancellable) as refused:
        await jobs.cancel(TENANT, id)
    assert refused.value.status == "completed"
    with pytest.raises(NotFound):
        await jobs.cancel("globex", id)


@pytest.mark.parametrize("cancelled", [False, True])
async def test_a_job_ends_only_as_the_table_of_states_permits(
    jobs: Jobs, redis: Redis, prefix: str, cancelled: bool
) -> None:
    id = await submit(jobs)
    job = await claim(jobs)
    if cancelled:
        taken = await jobs.cancel(TENANT, id)
        assert taken is not None
        job = taken
    finished = {after for after, move in MOVES[Status.IN_PROGRESS].items() if move.script == "finish"}
    before = await dump(redis, prefix)
    for ending in TERMINAL - ({Status.CANCELLED} if cancelled else finished):
        with pytest.raises(ValueError, match="can't become"):
            await jobs.finish(job.lease, turn(id, status=ending), Entry(99, b"the end"))
    assert await dump(redis, prefix) == before


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


async def test_to_ask_for_a_job_under_way_writes_nothing(
    history: ConversationHistoryStore, jobs: Jobs, redis: Redis, prefix: str
) -> None:
    (root,) = await grow(history, "root")
    id = await submit(jobs, parent=root)
    before = await dump(redis, prefix)
    assert (await history.find(TENANT, id)).under_way
    assert await dump(redis, prefix) == before
    await do_all(jobs)
    before = await dump(redis, prefix)
    assert not (await history.find(TENANT, id)).under_way
    assert await dump(redis, prefix) != before


async def test_a_look_says_where_a_job_stands(history: ConversationHistoryStore, jobs: Jobs) -> None:
    plain, streamed = await submit(jobs, streams=False), await submit(jobs)
    found = [await history.find(TENANT, id) for id in (plain, streamed)]
    assert [(each.background, each.under_way, each.logged) for each in found] == [
        ("plain", True, True),
        ("stream", True, True),
    ]
    assert found[0].response == queued(plain).response
    await do_all(jobs)
    found = [await history.find(TENANT, id) for id in (plain, streamed)]
    assert [(each.background, each.under_way, each.logged) for each in found] == [
        ("plain", False, False),
        ("stream", False, True),
    ]


@pytest.mark.usefixtures("lost_replies")
async def test_no_lost_reply_changes_anything_in_a_job_s_life(history: ConversationHistoryStore, jobs: Jobs) -> None:
    (root,) = await grow(history, "root")
    pin = (await history.chain(TENANT, root, pin=history.token())).pin
    ids = [await submit(jobs, "one", parent=root, pin=pin), await submit(jobs, "two"), await submit(jobs, "three")]
    one, two = (await jobs.claim(0, 2)).jobs
    assert [(job.lease.id, job.epoch, job.tries) for job in (one, two)] == [(ids[0], 1, 1), (ids[1], 1, 1)]
    await jobs.write(one.lease, Entry(5, b"more"), snapshot=b"{}")
    assert (await jobs.renew([one.lease, two.lease])).lost == []
    await jobs.hand_back(two.lease, failed=False)
    cancelled = await jobs.cancel(TENANT, ids[2])
    assert cancelled is not None
    assert cancelled.epoch == 1
    for job in (one, await claim(jobs), cancelled):
        await finish(jobs, job, last=5, announced=True)
    assert await EventLog(history).read(TENANT, ids[0], -1, 9) == [ACCEPTED, Entry(5, b"more"), Entry(15, b"the end")]
    assert [await status(history, id) for id in ids] == [Status.COMPLETED, Status.COMPLETED, Status.CANCELLED]
    assert (await usage(history)).responses == 4
    assert (await jobs.queue(0)).pending == 3
