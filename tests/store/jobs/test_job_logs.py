"""Event logs as jobs write them: each event once, all within one bound, and none for ever."""

import time

import msgspec
import pytest
from redis.asyncio import Redis

from store.errors import LogBehind, LogFull, NotContinuable, NotFound, StoreFull
from store.history.history import ConversationHistoryStore
from store.jobs.jobs import DROP_BATCH, Jobs
from store.jobs.log import Entry, EventLog
from store.jobs.model import JobLimits
from store.turn import Status
from tests.support.store.audit import dump
from tests.support.store.counted import usage
from tests.support.store.sample import TENANT, grow, turn
from tests.support.store.work import (
    ACCEPTED,
    claim,
    date_log,
    do_all,
    finish,
    queued,
    status,
    submit,
)

ENTRY_BYTES = 32
LOG_BYTES = len(b"accepted") + len(b"the end") + 2 * ENTRY_BYTES
"""What the log of a response that has ended takes."""


async def logged(history: ConversationHistoryStore, ids: list[str]) -> list[str]:
    """Those of `ids` whose events can be read."""
    return [id for id in ids if (await history.find(TENANT, id)).logged]


def now_ms() -> int:
    """What a server's clock says, or nearly so."""
    return time.time_ns() // 1_000_000


async def ended(jobs: Jobs, count: int) -> list[str]:
    """The ids of so many responses that have ended, oldest first, whose logs have two entries each."""
    ids = [await submit(jobs) for _ in range(count)]
    await do_all(jobs)
    for number, id in enumerate(ids):
        await date_log(jobs, id, now_ms() + number)
    return ids


async def test_a_log_has_what_was_written_once_each(history: ConversationHistoryStore, jobs: Jobs) -> None:
    id = await submit(jobs)
    job = await claim(jobs)
    for _ in range(2):
        await jobs.write(job.lease, Entry(2, b"begun"))
        await jobs.write(job.lease, Entry(9, b"more"))
    await finish(jobs, job, last=9)
    entries = [ACCEPTED, Entry(2, b"begun"), Entry(9, b"more"), Entry(19, b"the end")]
    assert await EventLog(history).read(TENANT, id, -1, 10) == entries
    assert await EventLog(history).read(TENANT, id, 2, 10) == entries[2:]


async def test_a_last_entry_that_is_behind_the_log_is_refused_and_changes_nothing(
    jobs: Jobs, redis: Redis, prefix: str
) -> None:
    id = await submit(jobs)
    job = await claim(jobs)
    await jobs.write(job.lease, Entry(9, b"more"))
    before = await dump(redis, prefix)
    with pytest.raises(ValueError, match="has event 9"):
        await jobs.finish(job.lease, turn(id), Entry(9, b"the end"))
    assert await dump(redis, prefix) == before


@pytest.mark.parametrize("after", [1, 12])
async def test_an_entry_that_does_not_begin_where_the_log_ends_is_refused_and_changes_nothing(
    jobs: Jobs, redis: Redis, prefix: str, after: int
) -> None:
    id = await submit(jobs)
    job = await claim(jobs)
    await jobs.write(job.lease, Entry(9, b"more"), after=1)
    before = await dump(redis, prefix)
    with pytest.raises(LogBehind, match="ends with event 9"):
        await jobs.write(job.lease, Entry(20, b"more"), after=after)
    with pytest.raises(LogBehind, match="ends with event 9"):
        await jobs.finish(job.lease, turn(id), Entry(20, b"the end"), after=after)
    assert await dump(redis, prefix) == before
    await jobs.finish(job.lease, turn(id), Entry(20, b"the end"), after=9)


async def test_a_snapshot_is_kept_until_the_next_one_or_the_end(jobs: Jobs, redis: Redis, prefix: str) -> None:
    id = await submit(jobs)
    assert await jobs.snapshot(TENANT, id) is None
    job = await claim(jobs)
    await jobs.write(job.lease, Entry(5, b"more"), snapshot=b'{"a": "long one"}')
    await jobs.write(job.lease, Entry(7, b"more"))
    assert await jobs.snapshot(TENANT, id) == (5, b'{"a": "long one"}')
    await jobs.write(job.lease, Entry(9, b"more"), snapshot=b"{}")
    assert await jobs.snapshot(TENANT, id) == (9, b"{}")
    await finish(jobs, job, last=9)
    assert await jobs.snapshot(TENANT, id) is None
    assert [key async for key in redis.scan_iter(f"{prefix}:*:snapshot:*")] == []


async def test_logs_of_what_has_ended_go_for_new_events_the_oldest_first(history: ConversationHistoryStore) -> None:
    small = Jobs(history, JobLimits(log_bytes=1000))
    ids = await ended(small, 3)
    await submit(small)
    job = await claim(small)
    await small.write(job.lease, Entry(5, b"x" * 700))
    assert await logged(history, ids) == ids[1:]
    await small.write(job.lease, Entry(6, b"x" * 100))
    assert await logged(history, ids) == ids[2:]
    with pytest.raises(LogFull):
        await small.write(job.lease, Entry(7, b"x" * 200))
    assert await logged(history, ids) == []
    await finish(small, job, last=6)


async def test_as_many_logs_go_as_an_event_needs(history: ConversationHistoryStore) -> None:
    wide = Jobs(history)
    ids = await ended(wide, 3 * DROP_BATCH)
    await submit(wide)
    job = await claim(wide)
    narrow = Jobs(history, JobLimits(log_bytes=(await wide.queue(0)).log_bytes))
    await narrow.write(job.lease, Entry(5, b"x" * ((len(ids) - 2) * LOG_BYTES - ENTRY_BYTES)))
    assert await logged(history, ids) == ids[-2:]
    assert (await wide.queue(0)).log_bytes <= narrow.limits.log_bytes


async def test_a_snapshot_needs_room_for_what_it_is_larger_than_the_last_one(history: ConversationHistoryStore) -> None:
    small = Jobs(history, JobLimits(log_bytes=1000))
    await submit(small)
    job = await claim(small)
    await small.write(job.lease, Entry(5, b"x"), snapshot=b"x" * 700)
    await small.write(job.lease, Entry(6, b"x"), snapshot=b"x" * 710)
    with pytest.raises(LogFull):
        await small.write(job.lease, Entry(7, b"x"), snapshot=b"x" * 900)
    await small.write(job.lease, Entry(7, b"x"), snapshot=b"x")
    await finish(small, job, last=7)


async def test_a_job_whose_events_have_no_room_is_refused_once_all_old_ones_are_gone(
    history: ConversationHistoryStore,
) -> None:
    small = Jobs(history, JobLimits(log_bytes=4 * (ENTRY_BYTES + len(ACCEPTED.blob))))
    (old,) = await ended(small, 1)
    for _ in range(4):
        await submit(small)
        job = await claim(small)
    assert await logged(history, [old]) == []
    before = await usage(history)
    with pytest.raises(StoreFull):
        await submit(small)
    assert await usage(history) == before
    await small.hand_back(job.lease, failed=False)
    await finish(small, await claim(small))
    await submit(small)


async def test_logs_go_when_they_were_kept_for_long_enough(history: ConversationHistoryStore, jobs: Jobs) -> None:
    old, young = await ended(jobs, 2)
    waiting = await submit(jobs)
    await date_log(jobs, old)
    await jobs.expire_logs()
    assert await logged(history, [old, young, waiting]) == [young, waiting]
    assert await status(history, old) is Status.COMPLETED


async def test_more_logs_expire_than_one_call_takes(history: ConversationHistoryStore, jobs: Jobs) -> None:
    ids = await ended(jobs, 2 * DROP_BATCH + 1)
    for id in ids:
        await date_log(jobs, id)
    await jobs.expire_logs()
    assert await logged(history, ids) == []


async def test_a_plain_response_keeps_no_log_and_a_deleted_one_neither(
    history: ConversationHistoryStore, jobs: Jobs, redis: Redis, prefix: str
) -> None:
    await submit(jobs, streams=False)
    streamed = await submit(jobs)
    await do_all(jobs)
    await history.forget(TENANT, streamed)
    assert (await jobs.queue(0)).log_bytes == 0
    assert [key async for key in redis.scan_iter(f"{prefix}:*:log:*")] == []


async def test_a_log_goes_with_its_tree(history: ConversationHistoryStore, jobs: Jobs) -> None:
    (root,) = await grow(history, "root")
    await submit(jobs, parent=root)
    await do_all(jobs)
    assert (await jobs.queue(0)).log_bytes > 0
    await history.forget_tree(TENANT, root)
    assert (await jobs.queue(0)).log_bytes == 0


async def test_a_fleeting_response_can_not_be_continued_and_goes_with_its_log(
    history: ConversationHistoryStore, jobs: Jobs
) -> None:
    (root,) = await grow(history, "root")
    id = await submit(jobs, parent=root, fleeting=True, streams=False)
    await do_all(jobs)
    assert await status(history, id) is Status.COMPLETED
    with pytest.raises(NotContinuable):
        await history.chain(TENANT, id)
    await date_log(jobs, id)
    await jobs.expire_logs()
    with pytest.raises(NotFound):
        await history.find(TENANT, id)
    assert (await usage(history)).responses == 1


async def test_a_fleeting_response_that_goes_for_an_event_without_room_is_counted_no_more(
    history: ConversationHistoryStore,
) -> None:
    small = Jobs(history, JobLimits(log_bytes=500))
    await submit(small, fleeting=True)
    await do_all(small)
    await submit(small)
    job = await claim(small)
    with pytest.raises(LogFull):
        await small.write(job.lease, Entry(5, b"x" * 600))
    assert (await usage(history)).responses == 1


async def test_a_deleted_parent_goes_with_the_fleeting_response_that_alone_kept_it(
    history: ConversationHistoryStore, jobs: Jobs
) -> None:
    (root,) = await grow(history, "root")
    id = await submit(jobs, parent=root, fleeting=True)
    await history.forget(TENANT, root)
    await do_all(jobs)
    await date_log(jobs, id)
    await jobs.expire_logs()
    await history.sweep()
    used = await usage(history)
    assert (used.responses, used.tombstones, used.trees) == (0, 0, 0)


@pytest.mark.usefixtures("lost_replies")
async def test_logs_go_once_though_every_reply_is_lost(history: ConversationHistoryStore) -> None:
    small = Jobs(history, JobLimits(log_bytes=600))
    ids = await ended(small, 4)
    for id in ids[:2]:
        await date_log(small, id)
    await small.expire_logs()
    assert await logged(history, ids) == ids[2:]
    await submit(small)
    job = await claim(small)
    await small.write(job.lease, Entry(5, b"x" * 500))
    assert await logged(history, ids) == []
    assert (await small.queue(0)).log_bytes == 2 * ENTRY_BYTES + len(ACCEPTED.blob) + 500


async def test_the_first_and_the_last_entry_are_of_any_size(history: ConversationHistoryStore) -> None:
    small = Jobs(history, JobLimits(log_bytes=1000))
    id = history.new_id()
    await small.submit(TENANT, queued(id), b"one", Entry(1, b"x" * 900), streams=True)
    await finish(small, msgspec.structs.replace(await claim(small), last=1))
    assert await logged(history, [id]) == [id]
