"""Caps and jobs: all count like everything else, and no tenant's keep another's out of the queue."""

import pytest

from store.errors import QueueFull
from store.history.history import ConversationHistoryStore
from store.jobs.jobs import Jobs
from store.jobs.log import Entry
from store.jobs.model import JobLimits
from tests.support.store.sample import TENANT
from tests.support.store.work import claim, finish, queued, submit

LOG_BYTES = 10_000
LARGE = Entry(1, b"x" * 1_200)
SMALL = Entry(1, b"x" * 100)


async def submit_large(jobs: Jobs, tenant: str = TENANT, entry: Entry = LARGE) -> str:
    """A job whose first events are large."""
    id = jobs.history.new_id()
    await jobs.submit(tenant, queued(id), b"spec", entry)
    return id


async def fill(jobs: Jobs, entry: Entry = LARGE) -> None:
    """Submit more than there is room for."""
    for _ in range(LOG_BYTES // len(entry.blob)):
        await submit_large(jobs, entry=entry)


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


async def test_jobs_that_wait_leave_half_of_the_logs_to_those_that_run(history: ConversationHistoryStore) -> None:
    jobs = Jobs(history, JobLimits(log_bytes=LOG_BYTES))
    await submit_large(jobs, "globex", SMALL)
    job = await claim(jobs)
    with pytest.raises(QueueFull, match="5000 bytes"):
        await fill(jobs)
    assert (await jobs.queue(0)).log_bytes < LOG_BYTES / 2 + 200
    await jobs.write(job.lease, Entry(9, b"x" * (LOG_BYTES // 2 - 200)))
    await finish(jobs, job, last=9)


async def test_a_tenant_whose_jobs_fill_that_half_keeps_no_other_out(history: ConversationHistoryStore) -> None:
    jobs = Jobs(history, JobLimits(log_bytes=LOG_BYTES))
    with pytest.raises(QueueFull):
        await fill(jobs)
    with pytest.raises(QueueFull):
        await fill(jobs, SMALL)
    await submit_large(jobs, "globex", SMALL)
