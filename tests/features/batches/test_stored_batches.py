"""Records of batches in a store: kept, listed and counted, each tenant's apart, and found while they are under way."""

import pytest
from redis.asyncio import Redis

from service.features.batches.shapes import BATCHES
from store.errors import StoreFull
from store.history.history import ConversationHistoryStore
from store.history.records import TenantRecords


@pytest.fixture
async def batches(store: ConversationHistoryStore) -> TenantRecords:
    return TenantRecords(store, BATCHES)


async def test_a_change_is_made_once_to_what_it_was_made_of(batches: TenantRecords) -> None:
    id = batches.new_id("acme")
    assert not await batches.keep("acme", id, b"1", b"0", under_way=True)
    assert await batches.keep("acme", id, b"1", under_way=True)
    assert await batches.keep("acme", id, b"2", b"1", under_way=True)
    assert await batches.keep("acme", id, b"2", b"1", under_way=True), "a retry"
    assert not await batches.keep("acme", id, b"3", b"1", under_way=False)
    assert await batches.get("acme", id) == b"2"
    assert await batches.get("zeta", id) is None


async def test_those_under_way_are_found_by_everybody_until_they_end(batches: TenantRecords) -> None:
    made = [("acme", batches.new_id("acme")), ("acme", batches.new_id("acme")), ("zeta", batches.new_id("zeta"))]
    for tenant, id in made:
        await batches.keep(tenant, id, b"1", under_way=True)
    assert sorted(await batches.under_way()) == sorted(made)
    await batches.keep(*made[0], b"2", b"1", under_way=False)
    assert sorted(await batches.under_way()) == sorted(made[1:])
    await batches.keep(*made[1], b"2", b"1", under_way=False)
    await batches.keep(*made[2], b"2", b"1", under_way=False)
    assert await batches.under_way() == []


async def test_a_tenant_has_a_bounded_number_and_fewer_under_way(batches: TenantRecords) -> None:
    opened = [batches.new_id("acme") for _ in range(BATCHES.most_open)]
    for id in opened:
        await batches.keep("acme", id, b"1", under_way=True)
    with pytest.raises(StoreFull):
        await batches.keep("acme", batches.new_id("acme"), b"1", under_way=True)
    assert await batches.keep("zeta", batches.new_id("zeta"), b"1", under_way=True)
    assert await batches.keep("acme", opened[0], b"2", b"1", under_way=False)
    for _ in range(BATCHES.most - BATCHES.most_open):
        await batches.keep("acme", batches.new_id("acme"), b"1", under_way=False)
    with pytest.raises(StoreFull):
        await batches.keep("acme", batches.new_id("acme"), b"1", under_way=True)
    await batches.drop("acme", opened[0])
    assert await batches.keep("acme", batches.new_id("acme"), b"1", under_way=True)
    assert len(await batches.all("acme")) == BATCHES.most


async def test_they_expire_a_month_after_the_last_change_and_none_under_way(
    batches: TenantRecords, redis: Redis, prefix: str
) -> None:
    ended, other = batches.new_id("acme"), batches.new_id("acme")
    await batches.keep("acme", ended, b"1", under_way=True)
    await batches.keep("acme", other, b"1", under_way=False)
    (key,) = [key async for key in redis.scan_iter(f"{prefix}:*batches:acme")]
    assert await redis.pttl(key) == -1, "nobody could end one under way that has expired, and it would count for ever"
    await batches.keep("acme", ended, b"2", b"1", under_way=False)
    assert BATCHES.kept_ms - 60_000 < await redis.pttl(key) <= BATCHES.kept_ms
