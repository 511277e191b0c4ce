"""Caps and jobs: what is under way is kept, with all that it continues, and counts like everything else."""

import random
from collections.abc import AsyncIterator, Callable

import pytest
from redis.asyncio import Redis

from store.errors import ChainTooLong, NotFound, StoreFull, TurnTooLarge
from store.history.caps import EVICT_BATCH, Caps
from store.history.history import ConversationHistoryStore
from store.jobs.jobs import Jobs
from store.jobs.log import Entry, EventLog
from store.jobs.model import JobLimits
from store.redis.connection import connect
from store.turn import Status, Turn
from tests.support.store.audit import complaints
from tests.support.store.counted import usage
from tests.support.store.sample import TENANT, grow, said, set_use
from tests.support.store.work import ACCEPTED, claim, do_all, finish, status, submit

LONG_AGO = 1.0
"""When something was used last that was used long ago, in µs since 1970."""

OpenJobs = Callable[..., Jobs]


@pytest.fixture
async def capped(server_url: str, redis: Redis, prefix: str) -> AsyncIterator[OpenJobs]:
    """Makes jobs of stores with caps over one prefix. After the test all keys must add up."""
    stores: list[ConversationHistoryStore] = []

    def make(**caps: float) -> Jobs:
        limits = Caps(**{"responses": 0, "bytes": 0, "idle_seconds": 0, "idle_grace_seconds": 0} | caps)
        stores.append(ConversationHistoryStore(connect(server_url), prefix=prefix, pin_seconds=60.0, caps=limits))
        return Jobs(stores[-1], JobLimits(lease_seconds=600.0, first_seconds=600.0))

    yield make
    for store in stores:
        await store.close()
    assert await complaints(redis, prefix) == []


async def known(jobs: Jobs, *ids: str) -> list[str]:
    """Those of `ids` that are known; nothing is touched."""
    found: list[str] = []
    for id in ids:
        try:
            await jobs.history.lineage(TENANT, id)
        except NotFound:
            continue
        found.append(id)
    return found


async def leave_unused(redis: Redis, prefix: str, root: str) -> None:
    """A tree was not used since long ago."""
    await set_use(redis, prefix, LONG_AGO, root)


async def test_what_is_under_way_and_what_it_continues_is_never_evicted(capped: OpenJobs) -> None:
    jobs = capped(responses=4)
    root, middle = await grow(jobs.history, "root", "middle")
    id = await submit(jobs, parent=middle)
    others = [(await grow(jobs.history, str(number)))[0] for number in range(4)]
    assert await known(jobs, root, middle, id, *others) == [root, middle, id, others[-1]]
    await finish(jobs, await claim(jobs))
    assert await said(jobs.history, id) == ["root", "middle", "done"]


async def test_jobs_count_among_responses_and_a_store_full_of_them_takes_no_more(capped: OpenJobs) -> None:
    jobs = capped(responses=2)
    (old,) = await grow(jobs.history, "old")
    first, second = await submit(jobs), await submit(jobs)
    assert await known(jobs, old, first, second) == [first, second]
    with pytest.raises(StoreFull):
        await submit(jobs)
    with pytest.raises(StoreFull):
        await grow(jobs.history, "new")
    await finish(jobs, await claim(jobs))
    await grow(jobs.history, "new")
    assert await known(jobs, first, second) == [second]


async def test_a_tree_with_a_job_is_never_taken_for_too_many_trees(capped: OpenJobs) -> None:
    jobs = capped(trees=2)
    root, leaf = await grow(jobs.history, "root", "leaf")
    id = await submit(jobs, parent=root)
    (other,) = await grow(jobs.history, "other")
    (third,) = await grow(jobs.history, "third")
    assert await known(jobs, root, leaf, id, other, third) == [root, leaf, id, third]
    await submit(jobs, parent=third)
    with pytest.raises(StoreFull):
        await submit(jobs)
    await finish(jobs, await claim(jobs))
    await submit(jobs)
    assert await known(jobs, root, leaf, id, third) == [third]


async def test_a_tree_with_a_job_is_never_idle(capped: OpenJobs, redis: Redis, prefix: str) -> None:
    jobs = capped(idle_seconds=3600.0)
    (root,) = await grow(jobs.history, "root")
    id, (unused,) = await submit(jobs, parent=root), await grow(jobs.history, "unused")
    for tree in (root, unused):
        await leave_unused(redis, prefix, tree)
    assert await status(jobs.history, id) is Status.QUEUED
    await leave_unused(redis, prefix, root)
    await jobs.history.sweep()
    assert await known(jobs, root, id, unused) == [root, id]


async def test_a_sweep_goes_on_behind_many_trees_that_are_in_use(capped: OpenJobs, redis: Redis, prefix: str) -> None:
    jobs = capped(idle_seconds=3600.0)
    waiting = [await submit(jobs) for _ in range(EVICT_BATCH)]
    (unused,) = await grow(jobs.history, "unused")
    for tree in (*waiting, unused):
        await leave_unused(redis, prefix, tree)
    await jobs.history.sweep()
    assert (await usage(jobs.history)).responses == EVICT_BATCH


async def test_a_tree_may_be_idle_again_once_its_job_has_ended(capped: OpenJobs, redis: Redis, prefix: str) -> None:
    jobs = capped(idle_seconds=3600.0)
    (root,) = await grow(jobs.history, "root")
    id = await submit(jobs, parent=root)
    await leave_unused(redis, prefix, root)
    await finish(jobs, await claim(jobs))
    assert await said(jobs.history, id) == ["root", "done"]
    await leave_unused(redis, prefix, root)
    assert await known(jobs, root, id) == []
    await jobs.history.sweep()


async def test_a_chain_that_is_too_long_takes_no_job(capped: OpenJobs) -> None:
    jobs = capped(responses=2)
    ids = await grow(jobs.history, "one", "two")
    with pytest.raises(ChainTooLong):
        await submit(jobs, parent=ids[-1])


async def test_a_job_that_can_never_fit_is_refused_before_anything_goes(capped: OpenJobs) -> None:
    jobs = capped(bytes=60_000)
    ids = await grow(jobs.history, "one", "two")
    large = Turn(jobs.history.new_id(), None, Status.QUEUED, (), b"")
    with pytest.raises(TurnTooLarge):
        await jobs.submit(TENANT, large, random.randbytes(80_000), ACCEPTED)
    assert await known(jobs, *ids) == ids


async def test_what_a_worker_needs_counts_until_the_end(capped: OpenJobs) -> None:
    jobs = capped(bytes=1_000_000)
    await jobs.submit(
        TENANT, Turn(jobs.history.new_id(), None, Status.QUEUED, (), b""), random.randbytes(80_000), ACCEPTED
    )
    assert 80_000 < (await usage(jobs.history)).bytes < 120_000
    await do_all(jobs)
    assert (await usage(jobs.history)).bytes < 5_000


async def test_bytes_of_jobs_make_room_like_those_of_turns(capped: OpenJobs) -> None:
    jobs = capped(bytes=300_000)
    for number in range(30):
        turn = Turn(jobs.history.new_id(), None, Status.QUEUED, (), random.randbytes(300 * number))
        await jobs.submit(TENANT, turn, random.randbytes(20_000), ACCEPTED, streams=True)
        assert (await usage(jobs.history)).bytes <= 300_000
        done = Turn(turn.id, None, Status.COMPLETED, (), random.randbytes(30_000))
        await jobs.finish((await claim(jobs)).lease, done, Entry(9, b"the end"))
    assert (await usage(jobs.history)).responses > 3


async def test_the_events_of_an_evicted_response_go_with_it(capped: OpenJobs) -> None:
    jobs = capped(responses=1)
    id = await submit(jobs)
    await do_all(jobs)
    await grow(jobs.history, "new")
    assert await EventLog(jobs.history).read(TENANT, id, -1, 10) == []
    assert (await jobs.queue(0)).log_bytes == 0
