"""Caps and jobs: what is under way is kept, with all that it continues, and counts like everything else."""

import random
from collections.abc import Callable

import pytest
from redis.asyncio import Redis

from store.errors import StoreFull, TurnTooLarge
from store.history.caps import EVICT_BATCH
from store.history.history import ConversationHistoryStore
from store.jobs.jobs import Jobs
from store.jobs.log import Entry
from store.jobs.model import JobLimits
from store.turn import Status, Turn
from tests.support.store.counted import usage
from tests.support.store.sample import LONG_AGO, TENANT, alive, grow, said, set_use
from tests.support.store.work import ACCEPTED, claim, do_all, finish, status, submit

OpenJobs = Callable[..., Jobs]


@pytest.fixture
def jobs_within(capped: Callable[..., ConversationHistoryStore]) -> OpenJobs:
    """Makes jobs of stores with caps over one prefix."""
    return lambda **caps: Jobs(capped(**caps), JobLimits(lease_seconds=600.0, first_seconds=600.0))


async def test_what_is_under_way_and_what_it_continues_is_never_evicted(jobs_within: OpenJobs) -> None:
    jobs = jobs_within(responses=4)
    root, middle = await grow(jobs.history, "root", "middle")
    id = await submit(jobs, parent=middle)
    others = [(await grow(jobs.history, str(number)))[0] for number in range(4)]
    assert await alive(jobs.history, [root, middle, id, *others]) == [root, middle, id, others[-1]]
    await finish(jobs, await claim(jobs))
    assert await said(jobs.history, id) == ["root", "middle", "done"]


async def test_jobs_count_among_responses_and_a_store_full_of_them_takes_no_more(jobs_within: OpenJobs) -> None:
    jobs = jobs_within(responses=2)
    (old,) = await grow(jobs.history, "old")
    first, second = await submit(jobs), await submit(jobs)
    assert await alive(jobs.history, [old, first, second]) == [first, second]
    with pytest.raises(StoreFull):
        await submit(jobs)
    with pytest.raises(StoreFull):
        await grow(jobs.history, "new")
    await finish(jobs, await claim(jobs))
    await grow(jobs.history, "new")
    assert await alive(jobs.history, [first, second]) == [second]


async def test_a_tree_with_a_job_is_never_idle(jobs_within: OpenJobs, redis: Redis, prefix: str) -> None:
    jobs = jobs_within(idle_seconds=3600.0)
    (root,) = await grow(jobs.history, "root")
    id, (unused,) = await submit(jobs, parent=root), await grow(jobs.history, "unused")
    for tree in (root, unused):
        await set_use(redis, prefix, LONG_AGO, tree)
    assert await status(jobs.history, id) is Status.QUEUED
    await set_use(redis, prefix, LONG_AGO, root)
    await jobs.history.sweep()
    assert await alive(jobs.history, [root, id, unused]) == [root, id]


async def test_a_sweep_goes_on_behind_many_trees_that_are_in_use(
    jobs_within: OpenJobs, redis: Redis, prefix: str
) -> None:
    jobs = jobs_within(idle_seconds=3600.0)
    waiting = [await submit(jobs) for _ in range(EVICT_BATCH)]
    (unused,) = await grow(jobs.history, "unused")
    for tree in (*waiting, unused):
        await set_use(redis, prefix, LONG_AGO, tree)
    await jobs.history.sweep()
    assert (await usage(jobs.history)).responses == EVICT_BATCH


async def test_a_job_that_can_never_fit_is_refused_before_anything_goes(jobs_within: OpenJobs) -> None:
    jobs = jobs_within(bytes=60_000)
    ids = await grow(jobs.history, "one", "two")
    large = Turn(jobs.history.new_id(), None, Status.QUEUED, (), b"")
    with pytest.raises(TurnTooLarge):
        await jobs.submit(TENANT, large, random.randbytes(80_000), ACCEPTED)
    assert await alive(jobs.history, [*ids]) == ids


async def test_what_a_worker_needs_counts_until_the_end(jobs_within: OpenJobs) -> None:
    jobs = jobs_within(bytes=1_000_000)
    await jobs.submit(
        TENANT, Turn(jobs.history.new_id(), None, Status.QUEUED, (), b""), random.randbytes(80_000), ACCEPTED
    )
    assert 80_000 < (await usage(jobs.history)).bytes < 120_000
    await do_all(jobs)
    assert (await usage(jobs.history)).bytes < 5_000


async def test_bytes_of_jobs_make_room_like_those_of_turns(jobs_within: OpenJobs) -> None:
    jobs = jobs_within(bytes=300_000)
    for number in range(30):
        turn = Turn(jobs.history.new_id(), None, Status.QUEUED, (), random.randbytes(300 * number))
        await jobs.submit(TENANT, turn, random.randbytes(20_000), ACCEPTED, streams=True)
        assert (await usage(jobs.history)).bytes <= 300_000
        done = Turn(turn.id, None, Status.COMPLETED, (), random.randbytes(30_000))
        await jobs.finish((await claim(jobs)).lease, done, Entry(9, b"the end"))
    assert (await usage(jobs.history)).responses > 3
