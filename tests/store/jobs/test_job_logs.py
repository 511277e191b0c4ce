"""Event logs as jobs write them: each event once, all within one bound, and none for ever."""

import time

import pytest
from redis.asyncio import Redis

from store.errors import LogBehind
from store.history.history import ConversationHistoryStore
from store.jobs.jobs import DROP_BATCH, Jobs
from store.jobs.log import LogEntry
from store.jobs.model import JobLimits
from tests.support.store.audit import dump
from tests.support.store.sample import TENANT, turn
from tests.support.store.work import claim, date_log, do_all, submit

ENTRY_BYTES = 32
LOG_BYTES = len(b"accepted") + len(b"the end") + 2 * ENTRY_BYTES
"""What the log of a response that has ended takes."""


async def logged(history: ConversationHistoryStore, ids: list[str]) -> list[str]:
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


async def test_a_last_entry_that_is_behind_the_log_is_refused_and_changes_nothing(
    jobs: Jobs, redis: Redis, prefix: str
) -> None:
    id = await submit(jobs)
    job = await claim(jobs)
    await jobs.write(job.lease, LogEntry(9, b"more"))
    before = await dump(redis, prefix)
    with pytest.raises(ValueError, match="has event 9"):
        await jobs.finish(job.lease, turn(id), LogEntry(9, b"the end"))
    assert await dump(redis, prefix) == before


@pytest.mark.parametrize("after", [1, 12])
async def test_an_entry_that_does_not_begin_where_the_log_ends_is_refused_and_changes_nothing(
    jobs: Jobs, redis: Redis, prefix: str, after: int
) -> None:
    id = await submit(jobs)
    job = await claim(jobs)
    await jobs.write(job.lease, LogEntry(9, b"more"), after=1)
    before = await dump(redis, prefix)
    with pytest.raises(LogBehind, match="ends with event 9"):
        await jobs.write(job.lease, LogEntry(20, b"more"), after=after)
    with pytest.raises(LogBehind, match="ends with event 9"):
        await jobs.finish(job.lease, turn(id), LogEntry(20, b"the end"), after=after)
    assert await dump(redis, prefix) == before
    await jobs.finish(job.lease, turn(id), LogEntry(20, b"the end"), after=9)


async def test_as_many_logs_go_as_an_event_needs(history: ConversationHistoryStore) -> None:
    wide = Jobs(history)
    ids = await ended(wide, 3 * DROP_BATCH)
    await submit(wide)
    job = await claim(wide)
    narrow = Jobs(history, JobLimits(log_bytes=(await wide.queue(0)).log_bytes))
    await narrow.write(job.lease, LogEntry(5, b"x" * ((len(ids) - 2) * LOG_BYTES - ENTRY_BYTES)))
    assert await logged(history, ids) == ids[-2:]
    assert (await wide.queue(0)).log_bytes <= narrow.limits.log_bytes
