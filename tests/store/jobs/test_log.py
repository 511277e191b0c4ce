"""Event logs: read from any event on, whole, in order, on every server."""

import asyncio
from collections.abc import AsyncIterator

import pytest
from hypothesis import given
from hypothesis import strategies as st
from redis.asyncio import Redis

from store.history.history import ConversationHistoryStore
from store.jobs.log import GONE, MOST_TAILS, PAGE_ENTRIES, EventLog, LogEntry, parse_message
from tests.support.store.sample import TENANT
from tests.support.store.work import log_names, write_log


@pytest.fixture
def history(unaudited: ConversationHistoryStore) -> ConversationHistoryStore:
    """A store for logs without turns, which an audit would complain of."""
    return unaudited


@pytest.fixture
async def id(history: ConversationHistoryStore, redis: Redis) -> AsyncIterator[str]:
    """A response; its log goes after the test."""
    id = history.new_id()
    yield id
    await redis.unlink(log_names(history, id)[0])


@pytest.fixture
def log(history: ConversationHistoryStore) -> EventLog:
    return EventLog(history)


async def test_a_log_is_read_from_any_event_on(
    history: ConversationHistoryStore, log: EventLog, redis: Redis, id: str
) -> None:
    entries = [
        LogEntry(1, b"created, queued"),
        LogEntry(2, b"in progress"),
        LogEntry(9, b"seven more"),
        LogEntry(10, b"\x00\xff"),
    ]
    for entry in entries:
        await write_log(redis, history, id, entry.last, entry.blob)
    assert await log.read(TENANT, id, -1, 100) == entries
    assert await log.read(TENANT, id, 2, 100) == entries[2:]
    assert await log.read(TENANT, id, 9, 100) == entries[3:]
    assert await log.read(TENANT, id, 10, 100) == await log.read(TENANT, id, 1000, 100) == []
    assert await log.tail(TENANT, id) == entries[-1]


async def test_a_log_of_many_pages_is_read_up_to_the_limit(
    history: ConversationHistoryStore, log: EventLog, redis: Redis, id: str
) -> None:
    key, _ = log_names(history, id)
    many = 2 * PAGE_ENTRIES + 3
    async with redis.pipeline(transaction=False) as several:
        for last in range(many):
            several.execute_command("XADD", key, f"{last + 1}-0", "b", b"%d" % last)
        await several.execute()
    for limit in (1, PAGE_ENTRIES, PAGE_ENTRIES + 1, 2 * PAGE_ENTRIES, many, many + 1):
        entries = await log.read(TENANT, id, -1, limit)
        assert [entry.last for entry in entries] == list(range(min(limit, many)))
        assert all(entry.blob == b"%d" % entry.last for entry in entries)


async def test_tails_that_nobody_hurries_for_are_read_together(
    history: ConversationHistoryStore, log: EventLog, redis: Redis, id: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    await write_log(redis, history, id, 4, b"five")
    begun, operation = list[None](), history.server.operation
    monkeypatch.setattr(history.server, "operation", lambda: (begun.append(None), operation())[1])
    asked = [log.tail_soon(TENANT, each) for each in (*(history.new_id() for _ in range(MOST_TAILS + 1)), id)]
    asked[0].cancel()
    assert await asyncio.gather(*asked[1:]) == [None] * MOST_TAILS + [LogEntry(4, b"five")]
    assert len(begun) == 2  # one more than go together


async def test_a_log_is_its_tenant_s_alone(
    history: ConversationHistoryStore, log: EventLog, redis: Redis, id: str
) -> None:
    await write_log(redis, history, id, 0, b"created")
    assert await log.tail(TENANT, id) == LogEntry(0, b"created")
    assert await log.tail("another", id) is None
    assert await log.read("another", id, -1, 100) == []
    assert log.channel("another", id) != log.channel(TENANT, id)


@given(st.integers(0, 2**53), st.binary())
def test_a_message_of_a_channel_is_its_entry(last: int, blob: bytes) -> None:
    assert parse_message(b"%d %b" % (last + 1, blob)) == LogEntry(last, blob)


def test_a_message_of_a_channel_says_that_the_log_is_gone() -> None:
    assert parse_message(GONE) is None
