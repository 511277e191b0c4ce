"""Containers in a store: kept, listed, counted and deleted, each tenant's apart."""

import pytest
from redis.asyncio import Redis

from store.errors import StoreFull
from store.history.containers import KEPT_MS, MOST, StoredContainers
from store.history.history import ConversationHistoryStore


@pytest.fixture
async def containers(store: ConversationHistoryStore) -> StoredContainers:
    return StoredContainers(store)


async def test_what_was_deleted_or_never_made_is_not_changed(containers: StoredContainers) -> None:
    id = containers.new_id("acme")
    assert not await containers.keep("acme", id, b"1", b"0")
    assert await containers.keep("acme", id, b"1")
    assert await containers.drop("acme", id)

    assert not await containers.keep("acme", id, b"2", b"1")
    assert not await containers.drop("acme", id)
    assert await containers.get("acme", id) is None


async def test_a_change_is_made_once_to_what_it_was_made_of(containers: StoredContainers) -> None:
    id = containers.new_id("acme")
    assert await containers.keep("acme", id, b"1")
    assert await containers.keep("acme", id, b"2", b"1")
    assert await containers.keep("acme", id, b"2", b"1"), "a retry"

    assert not await containers.keep("acme", id, b"3", b"1")
    assert not await containers.keep("acme", id, b"3")
    assert await containers.get("acme", id) == b"2"


async def test_a_tenant_has_a_bounded_number(containers: StoredContainers) -> None:
    ids = [containers.new_id("acme") for _ in range(MOST)]
    for id in ids:
        await containers.keep("acme", id, b"1")

    with pytest.raises(StoreFull):
        await containers.keep("acme", containers.new_id("acme"), b"1")
    assert await containers.keep("acme", ids[0], b"2", b"1")
    await containers.drop("acme", ids[0])
    assert await containers.keep("acme", containers.new_id("acme"), b"1")
    assert await containers.keep("zeta", containers.new_id("zeta"), b"1")


async def test_they_expire_a_day_after_the_last_change(containers: StoredContainers, redis: Redis, prefix: str) -> None:
    await containers.keep("acme", containers.new_id("acme"), b"1")
    (key,) = [key async for key in redis.scan_iter(f"{prefix}:*containers:acme")]

    assert KEPT_MS - 60_000 < await redis.pttl(key) <= KEPT_MS
