"""What is said to a job while it is under way: whoever ends it knows all of it, and another one may go on from it."""

import pytest

from store.errors import ChainTooLong, Conflict, LeaseLost, LogBehind, QueueFull, Steered
from store.history.history import ConversationHistoryStore
from store.jobs.jobs import Jobs
from store.jobs.log import EventLog, LogEntry
from store.jobs.model import Job, JobLimits, Priority, Steer, Successor
from store.jobs.outbox import Outbox
from store.turn import Status
from tests.support.store.fixtures import OpenStore
from tests.support.store.sample import TENANT, grow, said, turn
from tests.support.store.work import ACCEPTED, claim, queued, status, submit, successor

ONE, TWO = Steer("steer_1", b"be brief"), Steer("steer_2", b"and kind")
END = LogEntry(9, b"the end")


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


async def test_who_lost_the_lease_begins_no_successor(jobs: Jobs) -> None:
    id = await steerable(jobs)
    await jobs.steer(TENANT, id, ONE)
    lost = await claim(jobs)
    await jobs.hand_back(lost.lease, failed=False)
    job = await claim(jobs)
    with pytest.raises(LeaseLost):
        await succeed(jobs, lost, successor(jobs, id), ONE)
    await succeed(jobs, job, successor(jobs, id), ONE)
    assert (await jobs.queue(0)).running == 0


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
    await jobs.finish(following.lease, turn(next_one.turn.id, text="last"), LogEntry(3, b"x"), steers=[TWO])
    await succeed(jobs, job, next_one, ONE)
    assert await said(history, next_one.turn.id) == ["root", "done", "last"]
    with pytest.raises(Conflict):
        await succeed(jobs, job, Successor(queued(next_one.turn.id, id, "other"), b"", END), ONE)


async def test_what_is_refused_changes_nothing(open_store: OpenStore) -> None:
    history = open_store(max_depth=2)
    jobs = Jobs(history, JobLimits(lease_seconds=600.0, first_seconds=600.0, waiting=1))
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
