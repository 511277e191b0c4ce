"""Caps and jobs: all count like everything else, and no tenant's keep another's out of the queue."""

import random
from collections.abc import Callable

import pytest

from store.errors import QueueFull
from store.history.history import ConversationHistoryStore
from store.jobs.jobs import Jobs
from store.jobs.log import Entry
from store.jobs.model import JobLimits
from store.turn import Status, Turn
from tests.store.conftest import OpenStore
from tests.support.store.counted import usage
from tests.support.store.sample import TENANT
from tests.support.store.work import ACCEPTED, claim, finish, queued, submit

OpenJobs = Callable[..., Jobs]


@pytest.fixture
def jobs_within(capped: OpenStore) -> OpenJobs:
    """Makes jobs of stores with caps over one prefix."""
    return lambda **caps: Jobs(capped(**caps), JobLimits(lease_seconds=600.0, first_seconds=600.0))


async def test_bytes_of_jobs_make_room_like_those_of_turns(jobs_within: OpenJobs) -> None:
    jobs = jobs_within(bytes=300_000)
    for number in range(30):
        turn = Turn(jobs.history.new_id(), None, Status.QUEUED, (), random.randbytes(300 * number))
        await jobs.submit(TENANT, turn, random.randbytes(20_000), ACCEPTED, streams=True)
        assert (await usage(jobs.history)).bytes <= 300_000
        done = Turn(turn.id, None, Status.COMPLETED, (), random.randbytes(30_000))
        await jobs.finish((await claim(jobs)).lease, done, Entry(9, b"the end"))
    assert (await usage(jobs.history)).responses > 3


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


async def test_what_began_or_was_cancelled_no_longer_counts_as_waiting(history: ConversationHistoryStore) -> None:
    jobs = Jobs(history, JobLimits(log_bytes=LOG_BYTES))
    for _ in range(4):
        last = await submit_large(jobs)
    with pytest.raises(QueueFull):
        await submit_large(jobs)
    cancelled = await jobs.cancel(TENANT, last)
    assert cancelled is not None
    await submit_large(jobs)
    job = await claim(jobs)
    await submit_large(jobs)
    await jobs.hand_back(job.lease, failed=False)
    for _ in range(5):
        await finish(jobs, await claim(jobs))
    await finish(jobs, cancelled)
    for _ in range(4):
        await submit_large(jobs)
