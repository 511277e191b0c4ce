"""Containers in a store: kept, listed, counted and deleted, each tenant's apart."""

import pytest
from redis.asyncio import Redis

from service.features.python.containers import CONTAINERS
from store.errors import StoreFull
from store.history.history import ConversationHistoryStore
from store.history.records import TenantRecords


@pytest.fixture
async def containers(store: ConversationHistoryStore) -> TenantRecords:
    return TenantRecords(store, CONTAINERS)


async def test_what_was_deleted_or_never_made_is_not_changed(containers: TenantRecords) -> None:
    id = containers.new_id("acme")
    assert not await containers.keep("acme", id, b"1", b"0")
    assert await containers.keep("acme", id, b"1")
    assert await containers.drop("acme", id)

    assert not await containers.keep("acme", id, b"2", b"1")
    assert not await containers.drop("acme", id)
    assert await containers.get("acme", id) is None


async def test_a_change_is_made_once_to_what_it_was_made_of(containers: TenantRecords) -> None:
    id = containers.new_id("acme")
    assert await containers.keep("acme", id, b"1")
    assert await containers.keep("acme", id, b"2", b"1")
    assert await containers.keep("acme", id, b"2", b"1"), "a retry"

    assert not await containers.keep("acme", id, b"3", b"1")
    assert not await containers.keep("acme", id, b"3")
    assert await containers.get("acme", id) == b"2"


async def test_a_tenant_has_a_bounded_number(containers: TenantRecords) -> None:
    ids = [containers.new_id("acme") for _ in range(CONTAINERS.most)]
    for id in ids:
        await containers.keep("acme", id, b"1")

    with pytest.raises(StoreFull):
        await containers.keep("acme", containers.new_id("acme"), b"1")
    assert await containers.keep("acme", ids[0], b"2", b"1")
    await containers.drop("acme", ids[0])
    assert await containers.keep("acme", containers.new_id("acme"), b"1")
    assert await containers.keep("zeta", containers.new_id("zeta"), b"1")


async def test_they_expire_a_day_after_the_last_change(containers: TenantRecords, redis: Redis, prefix: str) -> None:
    await containers.keep("acme", containers.new_id("acme"), b"1")
    (key,) = [key async for key in redis.scan_iter(f"{prefix}:*containers:acme")]

    assert CONTAINERS.kept_ms - 60_000 < await redis.pttl(key) <= CONTAINERS.kept_ms
