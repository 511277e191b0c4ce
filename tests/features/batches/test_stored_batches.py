"""Records of batches in a store: kept, listed and counted, each tenant's apart, and found while they are under way."""

import pytest
from redis.asyncio import Redis

from store.errors import StoreFull
from store.history.batches import KEPT_MS, MOST, MOST_OPEN, StoredBatches
from store.history.history import ConversationHistoryStore


@pytest.fixture
async def batches(store: ConversationHistoryStore) -> StoredBatches:
    return StoredBatches(store)


async def test_a_change_is_made_once_to_what_it_was_made_of(batches: StoredBatches) -> None:
    id = batches.new_id("acme")
    assert not await batches.keep("acme", id, b"1", b"0", under_way=True)
    assert await batches.keep("acme", id, b"1", under_way=True)
    assert await batches.keep("acme", id, b"2", b"1", under_way=True)
    assert await batches.keep("acme", id, b"2", b"1", under_way=True), "a retry"
    assert not await batches.keep("acme", id, b"3", b"1", under_way=False)
    assert await batches.get("acme", id) == b"2"
    assert await batches.get("zeta", id) is None


async def test_those_under_way_are_found_by_everybody_until_they_end(batches: StoredBatches) -> None:
    made = [("acme", batches.new_id("acme")), ("acme", batches.new_id("acme")), ("zeta", batches.new_id("zeta"))]
    for tenant, id in made:
        await batches.keep(tenant, id, b"1", under_way=True)
    assert sorted(await batches.under_way()) == sorted(made)
    await batches.keep(*made[0], b"2", b"1", under_way=False)
    assert sorted(await batches.under_way()) == sorted(made[1:])
    await batches.keep(*made[1], b"2", b"1", under_way=False)
    await batches.keep(*made[2], b"2", b"1", under_way=False)
    assert await batches.under_way() == []


async def test_a_tenant_has_a_bounded_number_and_fewer_under_way(batches: StoredBatches) -> None:
    opened = [batches.new_id("acme") for _ in range(MOST_OPEN)]
    for id in opened:
        await batches.keep("acme", id, b"1", under_way=True)
    with pytest.raises(StoreFull):
        await batches.keep("acme", batches.new_id("acme"), b"1", under_way=True)
    assert await batches.keep("zeta", batches.new_id("zeta"), b"1", under_way=True)
    assert await batches.keep("acme", opened[0], b"2", b"1", under_way=False)
    for _ in range(MOST - MOST_OPEN):
        await batches.keep("acme", batches.new_id("acme"), b"1", under_way=False)
    with pytest.raises(StoreFull):
        await batches.keep("acme", batches.new_id("acme"), b"1", under_way=True)
    await batches.drop("acme", opened[0])
    assert await batches.keep("acme", batches.new_id("acme"), b"1", under_way=True)
    assert len(await batches.all("acme")) == MOST


async def test_they_expire_a_month_after_the_last_change(batches: StoredBatches, redis: Redis, prefix: str) -> None:
    await batches.keep("acme", batches.new_id("acme"), b"1", under_way=True)
    assert (
        KEPT_MS - 60_000
        < await redis.pttl(batches.history.keyspace.all_shards()[batches.shard("acme")].key_named("batches:acme"))
        <= KEPT_MS
    )
