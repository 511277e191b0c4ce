"""Event logs: read from any event on, whole, in order, on every server."""

import asyncio
from collections.abc import AsyncIterator

import pytest
from hypothesis import given
from hypothesis import strategies as st
from redis.asyncio import Redis

from store.errors import NotFound, StoreUnavailable
from store.history.history import ConversationHistoryStore
from store.jobs.log import GONE, MOST_TAILS, PAGE_ENTRIES, Entry, EventLog, parse_message
from store.redis.connection import connect
from tests.support.store.sample import TENANT
from tests.support.store.told import names, write


@pytest.fixture
async def history(server_url: str, prefix: str) -> AsyncIterator[ConversationHistoryStore]:
    """A store for logs without turns, which an audit would complain of."""
    history = ConversationHistoryStore(connect(server_url), prefix=prefix)
    yield history
    await history.close()


@pytest.fixture
async def id(history: ConversationHistoryStore, redis: Redis) -> AsyncIterator[str]:
    """A response; its log goes after the test."""
    id = history.new_id()
    yield id
    await redis.unlink(names(history, id)[0])


@pytest.fixture
def log(history: ConversationHistoryStore) -> EventLog:
    return EventLog(history)


async def test_a_log_is_read_from_any_event_on(
    history: ConversationHistoryStore, log: EventLog, redis: Redis, id: str
) -> None:
    entries = [Entry(1, b"created, queued"), Entry(2, b"in progress"), Entry(9, b"seven more"), Entry(10, b"\x00\xff")]
    for entry in entries:
        await write(redis, history, id, entry.last, entry.blob)
    assert await log.read(TENANT, id, -1, 100) == entries
    assert await log.read(TENANT, id, 2, 100) == entries[2:]
    assert await log.read(TENANT, id, 9, 100) == entries[3:]
    assert await log.read(TENANT, id, 10, 100) == await log.read(TENANT, id, 1000, 100) == []
    assert await log.tail(TENANT, id) == entries[-1]


async def test_an_entry_is_whole_though_some_of_its_events_were_seen(
    history: ConversationHistoryStore, log: EventLog, redis: Redis, id: str
) -> None:
    await write(redis, history, id, 9, b"ten")
    for seen in (0, 5, 8):
        assert await log.read(TENANT, id, seen, 100) == [Entry(9, b"ten")]


async def test_a_log_of_many_pages_is_read_up_to_the_limit(
    history: ConversationHistoryStore, log: EventLog, redis: Redis, id: str
) -> None:
    key, _ = names(history, id)
    many = 2 * PAGE_ENTRIES + 3
    async with redis.pipeline(transaction=False) as several:
        for last in range(many):
            several.execute_command("XADD", key, f"{last + 1}-0", "b", b"%d" % last)
        await several.execute()
    for limit in (1, PAGE_ENTRIES, PAGE_ENTRIES + 1, 2 * PAGE_ENTRIES, many, many + 1):
        entries = await log.read(TENANT, id, -1, limit)
        assert [entry.last for entry in entries] == list(range(min(limit, many)))
        assert all(entry.blob == b"%d" % entry.last for entry in entries)


async def test_a_log_that_is_not_there_is_empty(log: EventLog, id: str) -> None:
    assert await log.read(TENANT, id, -1, 100) == []
    assert await log.tail(TENANT, id) is None


async def test_tails_that_nobody_hurries_for_are_read_together(
    history: ConversationHistoryStore, log: EventLog, redis: Redis, id: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    await write(redis, history, id, 4, b"five")
    begun, operation = list[None](), history.server.operation
    monkeypatch.setattr(history.server, "operation", lambda: (begun.append(None), operation())[1])
    asked = [log.tail_soon(TENANT, each) for each in (*(history.new_id() for _ in range(MOST_TAILS + 1)), id)]
    asked[0].cancel()
    assert await asyncio.gather(*asked[1:]) == [None] * MOST_TAILS + [Entry(4, b"five")]
    assert len(begun) == 2  # one more than go together


async def test_a_tail_that_cannot_be_read_is_no_reason_never_to_read_others(
    history: ConversationHistoryStore, log: EventLog, redis: Redis, id: str
) -> None:
    await write(redis, history, id, 4, b"five")
    broken = history.new_id()
    await redis.set(names(history, broken)[0], "no stream")
    refused = await asyncio.gather(*(log.tail_soon(TENANT, each) for each in (broken, id)), return_exceptions=True)
    assert [type(each) for each in refused] == [StoreUnavailable] * 2
    assert await log.tail_soon(TENANT, id) == Entry(4, b"five")
    await redis.unlink(names(history, broken)[0])


async def test_a_log_is_its_tenant_s_alone(
    history: ConversationHistoryStore, log: EventLog, redis: Redis, id: str
) -> None:
    await write(redis, history, id, 0, b"created")
    assert await log.tail(TENANT, id) == Entry(0, b"created")
    assert await log.tail("another", id) is None
    assert await log.read("another", id, -1, 100) == []
    assert log.channel("another", id) != log.channel(TENANT, id)


async def test_an_id_that_cannot_exist_has_no_log(log: EventLog) -> None:
    for ask in (log.tail(TENANT, "resp_x"), log.read(TENANT, "resp_x", -1, 1)):
        with pytest.raises(NotFound):
            await ask
    for ask in (log.channel, log.tail_soon):
        with pytest.raises(NotFound):
            ask(TENANT, "resp_x")


async def test_a_log_is_unavailable_when_the_server_is() -> None:
    history = ConversationHistoryStore(connect("unix:///nowhere.sock"), timeout_seconds=0.5)
    log, id = EventLog(history), history.new_id()
    for ask in (log.tail(TENANT, id), log.tail_soon(TENANT, id), log.read(TENANT, id, -1, 1)):
        with pytest.raises(StoreUnavailable):
            await ask
    await history.close()


@given(st.integers(0, 2**53), st.binary())
def test_a_message_of_a_channel_is_its_entry(last: int, blob: bytes) -> None:
    assert parse_message(b"%d %b" % (last + 1, blob)) == Entry(last, blob)


def test_a_message_of_a_channel_says_that_the_log_is_gone() -> None:
    assert parse_message(GONE) is None
