"""fsck and jobs: every fault is found and repaired, what can be ended is ended after it, and no worker is disturbed."""

import asyncio
import random
from contextlib import suppress

import pytest
from redis.asyncio import Redis

from store.errors import LeaseLost, LogFull, NotCancellable, NotContinuable, NotFound, NotTerminal, QueueFull, StoreFull
from store.fsck.check import Fsck, Report
from store.fsck.faults import MEANINGS
from store.history.caps import Caps
from store.history.history import ConversationHistoryStore
from store.jobs.jobs import Jobs
from store.jobs.log import Entry, EventLog
from store.jobs.model import JobLimits, Priority
from store.redis.connection import connect
from store.turn import Status
from tests.store.fsck.test_fsck import check, known
from tests.support.store.audit import complaints, dump
from tests.support.store.breaks import BREAKS, Broken
from tests.support.store.breaks_jobs import JOB_BREAKS
from tests.support.store.sample import TENANT, grow
from tests.support.store.work import claim, do_all, fall_silent, finish, status, submit

CHECKS, TASKS = 2, 6
SHARDS, MANY = 4, 60
LONG_LOG = 300
"""More entries than fsck counts one by one."""


@pytest.fixture
def jobs(unaudited: ConversationHistoryStore) -> Jobs:
    return Jobs(unaudited, JobLimits(lease_seconds=600.0, first_seconds=600.0))


@pytest.fixture
async def broken(jobs: Jobs, redis: Redis, prefix: str) -> Broken:
    """A response in the background in every state: some below a root, and others that are roots themselves."""
    history = jobs.history
    ids = {"root": (await grow(history, "root"))[0]}
    ids["ended"] = await submit(jobs, parent=ids["root"])
    ids["plain"], ids["deleted"] = await submit(jobs, streams=False), await submit(jobs)
    await do_all(jobs)
    ids["child"] = (await grow(history, "child", parent=ids["deleted"]))[0]
    await history.forget(TENANT, ids["deleted"])
    ids["fleeting"] = await submit(jobs, fleeting=True)
    await finish(jobs, await claim(jobs))
    ids["running"], ids["resumed"] = await submit(jobs, parent=ids["root"]), await submit(jobs)
    running, resumed = (await jobs.claim(0, 2)).jobs
    await jobs.write(running.lease, Entry(5, b"more"), snapshot=b"{}")
    await jobs.write(running.lease, Entry(9, b"more"))
    await jobs.write(resumed.lease, Entry(4, b"more"))
    await jobs.hand_back(resumed.lease, failed=True)
    ids["cancelled"], ids["single"] = await submit(jobs), await submit(jobs)
    await jobs.cancel(TENANT, ids["cancelled"])
    ids["waiting"] = await submit(jobs, parent=ids["root"])
    ids["other"] = await submit(jobs, tenant="globex")
    return Broken(redis, prefix, ids)


async def end_all(jobs: Jobs, ids: dict[str, str]) -> None:
    """Whoever holds a lease loses it, and all that is left is ended."""
    for id in ids.values():
        await fall_silent(jobs, id)
    await do_all(jobs)


async def test_a_sound_store_with_jobs_is_sound_and_a_look_changes_nothing(broken: Broken, server_url: str) -> None:
    before = await dump(broken.redis, broken.prefix)
    report = await check(server_url, broken.prefix)
    assert (report.found, report.unjudged, report.unknown) == (0, [], 0), report
    await check(server_url, broken.prefix, repair=True)
    assert await dump(broken.redis, broken.prefix) == before


@pytest.mark.parametrize("name", JOB_BREAKS)
async def test_what_is_broken_of_jobs_is_found_and_repaired_and_the_rest_can_be_ended(
    broken: Broken, jobs: Jobs, server_url: str, name: str
) -> None:
    word, harm, lost = JOB_BREAKS[name]
    before = await known(jobs.history, broken.ids)
    await harm(broken)
    found = await check(server_url, broken.prefix)
    assert word in {fault.what for fault in found.faults}
    repaired = await check(server_url, broken.prefix, repair=True)
    assert (repaired.found, repaired.left) == (found.found, 0), repaired
    assert (await check(server_url, broken.prefix)).found == 0
    assert await complaints(broken.redis, broken.prefix) == []
    assert await known(jobs.history, broken.ids) == before - set(lost)
    await end_all(jobs, broken.ids)
    assert await complaints(broken.redis, broken.prefix) == []
    for each in before - set(lost) - {"root", "child"}:
        assert (await jobs.history.find(TENANT, broken.ids[each])).under_way is False


def test_every_fault_is_caused_by_some_test() -> None:
    assert {word for word, _, _ in (*BREAKS.values(), *JOB_BREAKS.values())} == set(MEANINGS)


async def test_a_repair_takes_no_job_from_whoever_works_on_it(broken: Broken, jobs: Jobs, server_url: str) -> None:
    id = await submit(jobs, priority=Priority.PRIORITY)
    job = await claim(jobs)
    while job.lease.id != id:
        job = await claim(jobs)
    for name in ("a job that is gone", "no queue", "a tree with a job too many", "wrong bytes of all events"):
        await JOB_BREAKS[name][1](broken)
    assert (await check(server_url, broken.prefix, repair=True)).left == 0
    await jobs.write(job.lease, Entry(9, b"more"))
    await finish(jobs, job, last=9)


async def test_a_job_that_is_made_anew_goes_on_from_its_log_and_its_former_holder_is_refused(
    broken: Broken, jobs: Jobs, server_url: str
) -> None:
    id = await submit(jobs, priority=Priority.PRIORITY)
    (former,) = [job for job in (await jobs.claim(0, 9)).jobs if job.lease.id == id]
    await jobs.write(former.lease, Entry(7, b"more"))
    broken.ids["lost"] = id
    await broken.redis.delete(broken.key("job", "lost"))
    await check(server_url, broken.prefix, repair=True)
    with pytest.raises(LeaseLost):
        await jobs.write(former.lease, Entry(8, b"late"))
    (job,) = [job for job in (await jobs.claim(0, 9)).jobs if job.lease.id == id]
    assert (job.last, await jobs.spec(job.lease), job.status) == (7, b"one", Status.IN_PROGRESS)
    await finish(jobs, job)
    assert [entry.last for entry in await EventLog(jobs.history).read(TENANT, id, -1, 9)] == [1, 7, 17]


@pytest.mark.parametrize(("bytes_noted", "sound"), [(None, True), (1, False), (10**9, False)])
async def test_a_long_log_is_compared_with_the_memory_that_it_takes(
    jobs: Jobs, redis: Redis, prefix: str, server_url: str, bytes_noted: int | None, sound: bool
) -> None:
    id = await submit(jobs)
    job = await claim(jobs)
    for number in range(LONG_LOG):
        await jobs.write(job.lease, Entry(2 + number, b"more"))
    if bytes_noted:
        broken = Broken(redis, prefix, {"long": id})
        await redis.hset(broken.key("job", "long"), "log_bytes", bytes_noted)
    report = await check(server_url, prefix)
    assert ("events" in {fault.what for fault in report.faults}) != sound
    assert (await check(server_url, prefix, repair=True)).left == 0
    assert await complaints(redis, prefix) == []


@pytest.mark.usefixtures("lost_replies")
async def test_a_repair_of_jobs_whose_every_reply_is_lost_once_comes_to_the_same(
    broken: Broken, server_url: str
) -> None:
    for name in (
        "a job that is gone",
        "a spec that is empty",
        "no queue",
        "a tree with a job too few",
        "a job in two queues",
    ):
        await JOB_BREAKS[name][1](broken)
    report = await check(server_url, broken.prefix, repair=True)
    assert (report.left, await complaints(broken.redis, broken.prefix)) == (0, [])


async def test_a_store_that_is_busy_with_jobs_is_never_blamed(server_url: str, redis: Redis, prefix: str) -> None:
    limits = JobLimits(lease_seconds=600.0, first_seconds=600.0, waiting=30, log_bytes=20_000)
    history = ConversationHistoryStore(connect(server_url), prefix=prefix, caps=Caps(responses=60, trees=30))
    jobs, known = Jobs(history, limits), list[str]()
    tasks = [asyncio.create_task(_work(jobs, random.Random(seed), known)) for seed in range(TASKS)]
    fsck = Fsck(connect(server_url), prefix=prefix)
    reports = [step for _ in range(CHECKS) async for step in fsck.run() if isinstance(step, Report)]
    assert [task for task in tasks if task.done()] == []
    for task in tasks:
        task.cancel()
    await asyncio.gather(*tasks, return_exceptions=True)
    assert [report.faults for report in reports] == [{}] * CHECKS
    assert len(known) > 100
    (last,) = [step async for step in fsck.run(repair=True) if isinstance(step, Report)]
    assert (last.found, last.unjudged) == (0, [])
    assert await complaints(redis, prefix) == []
    await fsck.close()
    await history.close()


async def _work(jobs: Jobs, chance: random.Random, known: list[str]) -> None:
    """Submit, claim, write, end, cancel and forget, without end; whatever is refused meanwhile is no surprise."""
    while True:
        for deed in (_add, _do_some, _cancel_or_forget):
            with suppress(NotFound, NotContinuable, NotCancellable, NotTerminal, StoreFull, QueueFull, LeaseLost):
                await deed(jobs, chance, known)


async def _add(jobs: Jobs, chance: random.Random, known: list[str]) -> None:
    parent = chance.choice(known[-20:]) if known and chance.random() < 0.6 else None
    known.append(
        await submit(
            jobs, parent=parent, streams=chance.random() < 0.8, fleeting=parent is None and chance.random() < 0.2
        )
    )


async def _do_some(jobs: Jobs, chance: random.Random, known: list[str]) -> None:
    for job in (await jobs.claim(0, 2)).jobs:
        last = job.last
        with suppress(LogFull):
            await jobs.write(job.lease, Entry(last + 3, b"x" * chance.randrange(900)), snapshot=b"x" * 50)
            last += 3
        if chance.random() < 0.1:
            await jobs.hand_back(job.lease, failed=chance.random() < 0.5)
        else:
            await finish(jobs, job, last=last, status=chance.choice([Status.COMPLETED, Status.FAILED]))


async def _cancel_or_forget(jobs: Jobs, chance: random.Random, known: list[str]) -> None:
    id = chance.choice(known[-30:])
    if chance.random() < 0.2:
        await jobs.cancel(TENANT, id)
    elif chance.random() < 0.2:
        await fall_silent(jobs, id)
    elif chance.random() < 0.2:
        await jobs.history.forget(TENANT, id)


async def test_a_job_without_a_spec_is_given_to_a_worker_that_can_only_end_it(
    broken: Broken, jobs: Jobs, server_url: str
) -> None:
    await JOB_BREAKS["a spec that is gone"][1](broken)
    await check(server_url, broken.prefix, repair=True)
    (job,) = [job for job in (await jobs.claim(0, 9)).jobs if job.lease.id == broken.ids["waiting"]]
    assert await jobs.spec(job.lease) == b"\0"  # which no worker can read, so it ends the job as failed
    await finish(jobs, job, status=Status.FAILED)
    assert await status(jobs.history, job.lease.id) is Status.FAILED


async def test_a_job_whose_response_can_not_be_read_is_unknown_with_its_events(
    broken: Broken, jobs: Jobs, server_url: str
) -> None:
    await JOB_BREAKS["a response of a job that is gone"][1](broken)
    await check(server_url, broken.prefix, repair=True)
    names = ("waiting", "resumed", "cancelled", "ended")
    found = [await status(jobs.history, broken.ids[name]) for name in names]
    assert found == [Status.QUEUED, Status.IN_PROGRESS, Status.CANCELLED, Status.COMPLETED]
    with pytest.raises(NotFound):
        await status(jobs.history, broken.ids["running"])
    assert await EventLog(jobs.history).read(TENANT, broken.ids["running"], -1, 9) == []
