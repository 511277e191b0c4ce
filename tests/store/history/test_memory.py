"""A server out of memory: the least recently used turns go for a new one; all else works as ever."""

import asyncio
import random
import time
from collections.abc import AsyncIterator

import pytest
from redis.asyncio import Redis

from store.errors import NotFound, StoreFull
from store.history.history import ConversationHistoryStore
from store.jobs.jobs import Jobs
from store.jobs.log import EventLog, LogEntry
from store.jobs.model import JobLimits
from store.redis.connection import connect
from store.turn import Status, Turn
from tests.support.store.counted import Usage, usage
from tests.support.store.sample import TENANT, alive, grow, said, turn
from tests.support.store.work import claim, finish, status, submit
from tests.support.waiting import until

TURN_BYTES = 100_000
TURNS = 60
FAR_BYTES = 20 * TURN_BYTES
"""How much less memory than it uses the server may use where it lacks far more than a turn needs: a third of all."""

SMALL = 500
SMALL_BYTES = 2_000
SECONDS = 20.0


@pytest.fixture
async def full(own_url: str, own: Redis) -> AsyncIterator[ConversationHistoryStore]:
    store = ConversationHistoryStore(connect(own_url), timeout_seconds=15.0)
    yield store
    await store.close()


def large(id: str, size: int = TURN_BYTES) -> Turn:
    return Turn(id, None, Status.COMPLETED, (), random.randbytes(size))


async def fill(store: ConversationHistoryStore, own: Redis, short_bytes: int = TURN_BYTES) -> list[str]:
    """Large turns, and a server with so many bytes less than it uses; their ids."""
    ids = [store.new_id() for _ in range(TURNS)]
    for id in ids:
        await store.append(TENANT, large(id))
    await own.config_set("maxmemory", str((await own.info("memory"))["used_memory"] - short_bytes))
    return ids


async def refused(store: ConversationHistoryStore, size: int = TURN_BYTES) -> bool:
    try:
        await store.append(TENANT, large(store.new_id(), size))
    except StoreFull:
        return True
    return False


async def test_a_server_out_of_memory_that_can_free_none_refuses_a_turn(
    full: ConversationHistoryStore, own: Redis
) -> None:
    (root,) = await grow(full, "one")
    before = await usage(full)
    await own.config_set("maxmemory", "1")
    with pytest.raises(StoreFull):
        await full.append(TENANT, turn(full.new_id(root), root))
    assert await usage(full) == before


async def test_all_but_append_works_without_memory(full: ConversationHistoryStore, own: Redis) -> None:
    ids = await grow(full, "one", "two")
    await own.config_set("maxmemory", "1")
    assert await full.get(TENANT, ids[0]) == turn(ids[0], text="one").response
    assert await said(full, ids[1]) == ["one", "two"]
    chain = await full.chain(TENANT, ids[1], pin=full.token())
    assert await full.lineage(TENANT, ids[1]) == chain.ids
    await full.forget(TENANT, ids[1])
    with pytest.raises(NotFound):
        await full.get(TENANT, ids[1])
    await full.unpin(TENANT, ids[1], str(chain.pin))
    await full.forget(TENANT, ids[0])
    assert await usage(full) == Usage()


async def test_jobs_are_refused_without_memory_and_those_under_way_go_on_to_their_end(
    full: ConversationHistoryStore, own: Redis
) -> None:
    jobs, log = Jobs(full, JobLimits(log_seconds=0.0)), EventLog(full)
    one, two, three = [await submit(jobs) for _ in range(3)]
    await own.config_set("maxmemory", "1")
    with pytest.raises(StoreFull):
        await submit(jobs)
    job, handed_back = (await jobs.claim(0, 2)).jobs
    await jobs.write(job.lease, LogEntry(5, b"more"), snapshot=b"{}")
    assert (await jobs.renew([job.lease])).lost == []
    await jobs.hand_back(handed_back.lease, failed=True)
    cancelled = await jobs.cancel(TENANT, three)
    assert cancelled is not None
    for each in (job, await claim(jobs), cancelled):
        await finish(jobs, each, last=5, announced=True)
    assert [await status(full, id) for id in (one, two, three)] == ["completed", "completed", "cancelled"]
    assert len(await log.read(TENANT, one, -1, 10)) == 3
    await jobs.expire_logs()
    assert await log.read(TENANT, one, -1, 10) == []


async def test_what_was_used_least_goes_for_a_new_turn(full: ConversationHistoryStore, own: Redis) -> None:
    ids = await fill(full, own)
    await full.get(TENANT, ids[0])
    new = large(full.new_id())
    await full.append(TENANT, new)
    assert await full.get(TENANT, new.id) == new.response
    assert await full.get(TENANT, ids[0])
    known = await alive(full, ids)
    assert known == [ids[0], *ids[-len(known) + 1 :]]
    assert TURNS - 4 <= len(known) < TURNS  # as many as were too many, and no more


async def test_a_moment_in_which_a_server_has_next_to_no_memory_costs_hardly_a_turn(
    full: ConversationHistoryStore, own: Redis
) -> None:
    for _ in range(SMALL):
        assert not await refused(full, SMALL_BYTES)
    assert (await own.info("memory"))["used_memory"] > 2 << 20
    await own.config_set("maxmemory", "1mb")
    assert all(await asyncio.gather(*(refused(full, SMALL_BYTES) for _ in range(40))))
    assert (await usage(full)).responses > SMALL - 20  # a few for all, and not a few for each
    await own.config_set("maxmemory", "0")
    assert not await refused(full, SMALL_BYTES)


async def test_a_server_that_lacks_far_more_than_a_turn_needs_gets_it_moment_by_moment(
    full: ConversationHistoryStore, own: Redis
) -> None:
    await fill(full, own, 8 * TURN_BYTES)
    began = time.monotonic()
    assert await refused(full)
    moments = time.monotonic() - began  # a busy machine may take several
    assert (await usage(full)).responses >= TURNS - 2 - moments
    await until(lambda: refused(full), SECONDS, wanted=lambda is_refused: not is_refused)
    assert TURNS - 20 < (await usage(full)).responses < TURNS - 3  # each try takes memory besides, as long as it lasts


async def test_a_server_out_of_memory_takes_nothing_that_a_run_needs(
    full: ConversationHistoryStore, own: Redis
) -> None:
    ids = await fill(full, own)
    pins = [(await full.chain(TENANT, id, pin=full.token())).pin for id in ids]
    with pytest.raises(StoreFull):
        await full.append(TENANT, large(full.new_id()))
    assert (await usage(full)).responses == TURNS
    for id, pin in zip(ids, pins, strict=True):
        await full.unpin(TENANT, id, str(pin))
    await full.append(TENANT, large(full.new_id()))


async def test_event_logs_cost_no_conversation_beyond_a_part_of_the_memory(
    full: ConversationHistoryStore, own: Redis
) -> None:
    """Those of what has ended go first, and those under way will: a turn has to wait for that."""
    jobs = Jobs(full, JobLimits(lease_seconds=600.0))
    ended, under_way = await submit(jobs), await submit(jobs)
    for job, entries in zip((await jobs.claim(0, 2)).jobs, (10, 80), strict=True):
        for number in range(entries):
            await jobs.write(job.lease, LogEntry(5 + number, random.randbytes(TURN_BYTES)))
        if job.lease.id == ended:
            await finish(jobs, job, last=4 + entries)
        else:
            held = job
    ids = await fill(full, own, FAR_BYTES)
    with pytest.raises(StoreFull):
        await full.append(TENANT, large(full.new_id()))
    assert await own.exists(full.keyspace.turn(TENANT, ended).key("log")) == 0
    assert [await status(full, id) for id in ids] == ["completed"] * TURNS
    assert await status(full, under_way) == "in_progress"

    await finish(jobs, held, last=84)
    await until(lambda: refused(full), SECONDS, wanted=lambda is_refused: not is_refused)
    assert [await status(full, id) for id in ids] == ["completed"] * TURNS
