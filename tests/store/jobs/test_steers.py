"""What is said to a job while it is under way: whoever ends it knows all of it, and another one may go on from it."""

import asyncio

import pytest
from redis.asyncio import Redis

from store.errors import (
    ChainTooLong,
    Conflict,
    LeaseLost,
    LogBehind,
    NotFound,
    NotSteerable,
    QueueFull,
    Steered,
    SteersFull,
    StoreFull,
    TurnTooLarge,
)
from store.history.caps import Caps
from store.history.history import ConversationHistoryStore
from store.jobs.jobs import MAX_STEER_BYTES, MAX_STEERS, Jobs
from store.jobs.log import Entry, EventLog
from store.jobs.model import Job, JobLimits, Priority, Steer, Successor
from store.jobs.outbox import Outbox
from store.listening import Listening
from store.redis.connection import connect
from store.turn import Status
from tests.support.store.counted import usage
from tests.support.store.sample import TENANT, grow, said, turn
from tests.support.store.verdict import faults
from tests.support.store.work import ACCEPTED, claim, queued, status, submit, successor

ONE, TWO = Steer("steer_1", b"be brief"), Steer("steer_2", b"and kind")
END = Entry(9, b"the end")


async def steerable(jobs: Jobs, parent: str | None = None) -> str:
    """A job that can be steered; its id."""
    return await submit(jobs, parent=parent, priority=Priority.FLEX, steerable=True)


async def succeed(jobs: Jobs, job: Job, next_one: Successor, *steers: Steer, announced: bool = False) -> None:
    """End a job, with another one that goes on from it."""
    done = turn(job.lease.id, text="done", status=Status.INCOMPLETE)
    await jobs.succeed(job.lease, done, END, next_one, steers=steers, announced=announced)


async def test_what_is_said_waits_in_order_for_whoever_ends_the_job(jobs: Jobs) -> None:
    id = await steerable(jobs)
    await jobs.steer(TENANT, id, ONE)
    job = await claim(jobs)
    await jobs.steer(TENANT, id, TWO)
    await jobs.steer(TENANT, id, ONE)
    assert await jobs.steers(job.lease) == [ONE, TWO]
    assert (await jobs.renew([job.lease])) == ([], [job.lease])
    await jobs.hand_back(job.lease, failed=False)
    with pytest.raises(LeaseLost):
        await jobs.steers(job.lease)
    assert await jobs.steers((await claim(jobs)).lease) == [ONE, TWO]


async def test_a_job_doesn_t_end_before_its_holder_knows_what_was_said(jobs: Jobs) -> None:
    id = await steerable(jobs)
    job = await claim(jobs)
    await jobs.steer(TENANT, id, ONE)
    done = turn(id, text="done")
    for known in ((), (TWO,), (ONE, TWO)):
        with pytest.raises(Steered):
            await jobs.finish(job.lease, done, END, steers=known)
        with pytest.raises(Steered):
            await succeed(jobs, job, successor(jobs, id), *known)
    await jobs.finish(job.lease, done, END, steers=[ONE])
    await jobs.finish(job.lease, done, END, steers=[ONE])
    assert await said(jobs.history, id) == ["done"]


async def test_one_ends_and_another_begins_at_the_same_moment(history: ConversationHistoryStore, jobs: Jobs) -> None:
    (root,) = await grow(history, "root")
    id = await steerable(jobs, root)
    job = await claim(jobs)
    await jobs.steer(TENANT, id, ONE)
    next_one = successor(jobs, id)
    await succeed(jobs, job, next_one, ONE, announced=True)
    await succeed(jobs, job, next_one, ONE, announced=True)
    assert await status(history, id) is Status.INCOMPLETE
    assert [entry.blob for entry in await EventLog(history).read(TENANT, id, -1, 9)] == [ACCEPTED.blob, END.blob]
    assert [each.id for each in await Outbox(history).take(history.keyspace.all_shards()[0], 9, 1000)] == [id]
    following = await claim(jobs)
    assert (following.lease.id, following.priority) == (next_one.turn.id, Priority.FLEX)
    assert await jobs.spec(following.lease) == b"next"
    assert await jobs.steers(following.lease) == []
    await jobs.steer(TENANT, next_one.turn.id, TWO)
    await jobs.finish(following.lease, turn(next_one.turn.id, text="last"), Entry(3, b"x"), steers=[TWO])
    await succeed(jobs, job, next_one, ONE)
    assert await said(history, next_one.turn.id) == ["root", "done", "last"]
    with pytest.raises(Conflict):
        await succeed(jobs, job, Successor(queued(next_one.turn.id, id, "other"), b"", END), ONE)


async def test_what_is_refused_changes_nothing(server_url: str, prefix: str) -> None:
    history = ConversationHistoryStore(connect(server_url), prefix=prefix, max_depth=2)
    jobs = Jobs(history, JobLimits(lease_seconds=600.0, first_seconds=600.0, waiting=1))
    try:
        (root,) = await grow(history, "root")
        deep = await steerable(jobs, root)
        job = await claim(jobs)
        await jobs.steer(TENANT, deep, ONE)
        with pytest.raises(ChainTooLong):
            await succeed(jobs, job, successor(jobs, deep), ONE)
        done = turn(deep, root, text="done", status=Status.INCOMPLETE)
        with pytest.raises(LogBehind):
            await jobs.succeed(job.lease, done, END, successor(jobs, deep), steers=[ONE], after=5)
        with pytest.raises(ValueError, match="can't become"):
            await jobs.finish(job.lease, turn(deep, root, status=Status.CANCELLED), END, steers=[ONE])
        for wrong in (turn(deep, root, status=Status.FAILED), turn(root)):
            with pytest.raises(ValueError, match=r"can't"):
                await jobs.succeed(job.lease, wrong, END, successor(jobs, deep), steers=[ONE])
        await submit(jobs)
        await submit(jobs, tenant="other")
        with pytest.raises(QueueFull):
            await succeed(jobs, job, successor(jobs, deep), ONE)
        assert await status(history, deep) is Status.IN_PROGRESS
        await jobs.finish(job.lease, done, END, steers=[ONE])
    finally:
        await history.close()


async def test_where_there_is_no_room_for_another_one_neither_is_done(server_url: str, prefix: str) -> None:
    history = ConversationHistoryStore(connect(server_url), prefix=prefix, caps=Caps(responses=3))
    jobs = Jobs(history, JobLimits(lease_seconds=600.0, first_seconds=600.0))
    try:
        (evicted,) = await grow(history, "used least")
        id = await steerable(jobs)
        job = await claim(jobs)
        await submit(jobs, "another")
        await claim(jobs)
        await jobs.steer(TENANT, id, ONE)
        await succeed(jobs, job, successor(jobs, id), ONE)
        with pytest.raises(NotFound):
            await history.find(TENANT, evicted)
        following = await claim(jobs)
        await jobs.steer(TENANT, following.lease.id, TWO)
        with pytest.raises(StoreFull):
            await succeed(jobs, following, successor(jobs, following.lease.id), TWO)
        assert await status(history, following.lease.id) is Status.IN_PROGRESS
        await jobs.finish(following.lease, turn(following.lease.id, id), END, steers=[TWO])
    finally:
        await history.close()


async def test_one_that_could_never_be_stored_evicts_nothing(server_url: str, prefix: str) -> None:
    history = ConversationHistoryStore(connect(server_url), prefix=prefix, caps=Caps(bytes=40_000))
    jobs = Jobs(history, JobLimits(lease_seconds=600.0, first_seconds=600.0))
    try:
        (kept,) = await grow(history, "used least")
        id = await steerable(jobs)
        job = await claim(jobs)
        await jobs.steer(TENANT, id, ONE)
        large = Successor(queued(history.new_id(id), id), bytes(60_000), ACCEPTED)
        with pytest.raises(TurnTooLarge):
            await succeed(jobs, job, large, ONE)
        assert await said(history, kept) == ["used least"]
    finally:
        await history.close()


async def test_no_more_is_said_than_there_is_room_for(jobs: Jobs) -> None:
    id, other = await steerable(jobs), await steerable(jobs)
    for number in range(MAX_STEERS):
        await jobs.steer(TENANT, id, Steer(f"steer_{number:02}", b"more"))
    with pytest.raises(SteersFull):
        await jobs.steer(TENANT, id, Steer("steer_99", b"more"))
    await jobs.steer(TENANT, id, Steer("steer_03", b"more"))
    await jobs.steer(TENANT, other, Steer("steer_1", bytes(MAX_STEER_BYTES)))
    with pytest.raises(SteersFull):
        await jobs.steer(TENANT, other, Steer("steer_2", b"m"))


async def test_what_is_said_is_counted_until_the_end(
    history: ConversationHistoryStore, jobs: Jobs, redis: Redis, server_url: str, prefix: str
) -> None:
    id = await steerable(jobs)
    before = (await usage(history)).bytes
    await jobs.steer(TENANT, id, Steer("steer_1", bytes(100_000)))
    assert 100_000 < (await usage(history)).bytes - before < 150_000
    assert await faults(redis, server_url, prefix) == []
    job = await claim(jobs)
    await jobs.finish(job.lease, turn(id), END, steers=[Steer("steer_1", b"")])
    assert (await usage(history)).bytes < before


async def test_nothing_is_said_to_what_has_ended_or_was_not_made_for_it(
    history: ConversationHistoryStore, jobs: Jobs
) -> None:
    (foreground,) = await grow(history, "hello")
    plain, ended, cancelled = await submit(jobs), await steerable(jobs), await steerable(jobs)
    for job in (await jobs.claim(0, 9)).jobs:
        if job.lease.id == ended:
            await jobs.steer(TENANT, ended, ONE)
            await jobs.finish(job.lease, turn(ended), END, steers=[ONE])
    await jobs.cancel(TENANT, cancelled)
    for id, how in ((foreground, "completed"), (ended, "completed"), (cancelled, "cancelled"), (plain, None)):
        with pytest.raises(NotSteerable) as refusal:
            await jobs.steer(TENANT, id, TWO)
        assert refusal.value.status == how
    await jobs.steer(TENANT, ended, ONE)
    for tenant, id in (("other", ended), (TENANT, history.new_id())):
        with pytest.raises(NotFound):
            await jobs.steer(tenant, id, ONE)


async def test_workers_are_told_of_what_is_said_to_what_they_make(jobs: Jobs, server_url: str) -> None:
    client = connect(server_url)
    listening = Listening(client, timeout_seconds=2.0)
    try:
        async with listening.channel(jobs.control(0)) as control, asyncio.timeout(10):
            id = await steerable(jobs)
            await claim(jobs)
            await jobs.steer(TENANT, id, ONE)
            heard: list[bytes] = []
            while f"steered {TENANT}/{id[5:]}".encode() not in heard:
                heard += await control.messages(1.0) or []
    finally:
        await listening.close()
        await client.aclose()


async def test_what_is_under_way_continues_what_was_deleted_meanwhile(
    history: ConversationHistoryStore, jobs: Jobs
) -> None:
    (root,) = await grow(history, "root")
    id = await steerable(jobs, root)
    await history.forget(TENANT, root)
    chain = await history.chain(TENANT, id, above=True)
    assert chain.ids == (root,)
    assert [message.tokens.rstrip(b"\0") for message in chain.messages()] == [b"root"]
    assert (await history.chain(TENANT, await steerable(jobs), above=True)).ids == ()
