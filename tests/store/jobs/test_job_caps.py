"""Caps and jobs: all count like everything else, and no tenant's keep another's out of the queue."""

import random

import pytest
from redis.asyncio import Redis

from store.errors import QueueFull, TurnTooLarge
from store.history.caps import EVICT_BATCH
from store.history.history import ConversationHistoryStore
from store.jobs.jobs import Jobs
from store.jobs.log import LogEntry
from store.jobs.model import WINDOWS, JobLimits, Priority, Successor
from store.turn import Status
from tests.support.store.counted import usage
from tests.support.store.fixtures import OpenStore
from tests.support.store.sample import LONG_AGO, TENANT, alive, grow, said, set_use, turn
from tests.support.store.work import ACCEPTED, age, claim, finish, queued, submit

LOG_BYTES = 10_000
LARGE = LogEntry(1, b"x" * 1_200)
SMALL = LogEntry(1, b"x" * 100)


async def submit_large(
    jobs: Jobs, tenant: str = TENANT, entry: LogEntry = LARGE, priority: Priority = Priority.DEFAULT
) -> str:
    """A job whose first events are large."""
    id = jobs.history.new_id()
    await jobs.submit(tenant, queued(id), b"spec", entry, priority=priority)
    return id


async def fill(jobs: Jobs, entry: LogEntry = LARGE, priority: Priority = Priority.DEFAULT) -> None:
    """Submit more than there is room for."""
    for _ in range(LOG_BYTES // len(entry.blob)):
        await submit_large(jobs, entry=entry, priority=priority)


async def test_a_tenant_alone_may_have_the_whole_queue_and_another_finds_room_all_the_same(
    history: ConversationHistoryStore,
) -> None:
    jobs = Jobs(history, JobLimits(waiting=32))
    for _ in range(32):
        await submit(jobs)
    with pytest.raises(QueueFull):
        await submit(jobs)
    for _ in range(2):  # little: a sixteenth of the limit
        await submit(jobs, tenant="globex")
    with pytest.raises(QueueFull):
        await submit(jobs, tenant="globex")
    await submit(jobs, tenant="initech")
    await claim(jobs)
    with pytest.raises(QueueFull):
        await submit(jobs)


async def test_what_is_kept_beyond_the_limit_has_a_limit_too(history: ConversationHistoryStore) -> None:
    jobs = Jobs(history, JobLimits(waiting=32))
    for _ in range(32):
        await submit(jobs)
    for number in range(4):
        await submit(jobs, tenant=f"t{number}")
    with pytest.raises(QueueFull):
        await submit(jobs, tenant="t4")


@pytest.mark.parametrize("window", WINDOWS)
async def test_what_has_hours_leaves_half_of_the_places_to_what_waits_for_seconds(
    history: ConversationHistoryStore, window: Priority
) -> None:
    jobs = Jobs(history, JobLimits(waiting=32))
    late = [await submit(jobs, priority=window) for _ in range(16)]
    with pytest.raises(QueueFull, match="16 jobs that have hours wait already"):
        await submit(jobs, priority=window)
    await submit(jobs, tenant="globex", priority=window)  # a sixteenth of that half
    with pytest.raises(QueueFull):
        await submit(jobs, tenant="globex", priority=window)
    for _ in range(15):
        await submit(jobs, tenant="globex")
    with pytest.raises(QueueFull, match="32 jobs wait already"):
        await submit(jobs, tenant="globex")
    for id in late[:2]:
        await jobs.cancel(TENANT, id)
    await submit(jobs, priority=window)


async def test_the_logs_of_what_has_hours_leave_half_of_the_room_of_waiting_jobs_to_others(
    history: ConversationHistoryStore,
) -> None:
    jobs = Jobs(history, JobLimits(log_bytes=LOG_BYTES))
    with pytest.raises(QueueFull, match="jobs that have hours with 2500 bytes wait already"):
        await fill(jobs, priority=Priority.WITHIN_8H)
    for _ in range(2):
        await submit_large(jobs, "globex")
    for job in (await jobs.claim(0, 9)).jobs:
        await finish(jobs, job)
    with pytest.raises(QueueFull, match="hours"):
        await fill(jobs, priority=Priority.WITHIN_2H)


async def test_what_has_no_hours_any_more_gives_its_place_among_those_to_another(
    history: ConversationHistoryStore,
) -> None:
    jobs = Jobs(history, JobLimits(waiting=4, log_bytes=LOG_BYTES))
    ids = [await submit_large(jobs, priority=Priority.WITHIN_8H) for _ in range(2)]
    with pytest.raises(QueueFull, match="hours"):
        await submit(jobs, priority=Priority.WITHIN_8H)
    for id in ids:
        await age(jobs, id, 8 * 3600)
    await jobs.claim(0, 0)
    await submit_large(jobs, priority=Priority.WITHIN_8H)
    await submit_large(jobs, priority=Priority.WITHIN_8H)
    with pytest.raises(QueueFull, match="4 jobs wait"):
        await submit(jobs)


async def test_jobs_that_wait_leave_half_of_the_logs_to_those_that_run(history: ConversationHistoryStore) -> None:
    jobs = Jobs(history, JobLimits(log_bytes=LOG_BYTES))
    await submit_large(jobs, "globex", SMALL)
    job = await claim(jobs)
    with pytest.raises(QueueFull, match="5000 bytes"):
        await fill(jobs)
    assert (await jobs.queue(0)).log_bytes < LOG_BYTES / 2 + 200
    await jobs.write(job.lease, LogEntry(9, b"x" * (LOG_BYTES // 2 - 200)))
    await finish(jobs, job, last=9)


async def test_a_tenant_whose_jobs_fill_that_half_keeps_no_other_out(history: ConversationHistoryStore) -> None:
    jobs = Jobs(history, JobLimits(log_bytes=LOG_BYTES))
    with pytest.raises(QueueFull):
        await fill(jobs)
    with pytest.raises(QueueFull):
        await fill(jobs, SMALL)
    await submit_large(jobs, "globex", SMALL)


async def test_a_sweep_goes_on_behind_trees_with_jobs_and_takes_none_of_their_turns(
    capped: OpenStore, redis: Redis, prefix: str
) -> None:
    jobs = Jobs(capped(idle_seconds=3600.0))
    (root,), (unused,) = await grow(jobs.history, "root"), await grow(jobs.history, "unused")
    waiting = [await submit(jobs) for _ in range(EVICT_BATCH)]
    await submit(jobs, parent=root)
    await set_use(redis, prefix, LONG_AGO, root, *waiting, unused)
    await jobs.history.sweep()
    assert (await usage(jobs.history)).responses == EVICT_BATCH + 2
    assert await said(jobs.history, root) == ["root"]


async def test_a_job_that_can_never_fit_is_refused_before_anything_goes(capped: OpenStore) -> None:
    jobs = Jobs(capped(bytes=60_000))
    ids = await grow(jobs.history, "one", "two")
    with pytest.raises(TurnTooLarge):
        await jobs.submit(TENANT, queued(jobs.history.new_id()), random.randbytes(80_000), ACCEPTED)
    id = await submit(jobs, steerable=True)
    large = Successor(queued(jobs.history.new_id(id), id), random.randbytes(80_000), ACCEPTED)
    job = await claim(jobs)
    with pytest.raises(TurnTooLarge):
        await jobs.succeed(job.lease, turn(id, status=Status.INCOMPLETE), LogEntry(9, b"end"), large, steers=[])
    assert await alive(jobs.history, [*ids]) == ids
