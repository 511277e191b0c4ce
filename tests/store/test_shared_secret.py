"""The secret: one for all who share a store, made once, whoever asks first."""

import asyncio

import pytest
from redis.asyncio import Redis

from store.errors import StoreUnavailable
from store.fsck.check import Fsck, Report
from store.history.history import ConversationHistoryStore
from store.keys import SECRET_BYTES
from store.layout import shared_secret
from store.redis.connection import connect


async def test_all_who_ask_at_once_get_the_same_one(server_url: str, prefix: str) -> None:
    stores = [ConversationHistoryStore(connect(server_url), prefix=prefix, shards=4) for _ in range(5)]
    found = await asyncio.gather(*(shared_secret(store) for store in stores * 4))
    for store in stores:
        await store.close()
    assert len(set(found)) == 1
    assert len(found[0]) == SECRET_BYTES


async def test_it_stays_as_it_is_and_is_in_the_first_shard(
    store: ConversationHistoryStore, redis: Redis, prefix: str
) -> None:
    first = await shared_secret(store, entropy=lambda size: b"1" * size)
    assert await shared_secret(store, entropy=lambda size: b"2" * size) == first == b"1" * SECRET_BYTES
    assert await redis.get(f"{prefix}:{{00}}:secret") == first
    assert await redis.pttl(f"{prefix}:{{00}}:secret") == -1


async def test_stores_with_different_prefixes_have_different_ones(server_url: str, prefix: str) -> None:
    stores = [ConversationHistoryStore(connect(server_url), prefix=f"{prefix}{each}") for each in "ab"]
    one, two = [await shared_secret(store) for store in stores]
    for store in stores:
        await store.close()
    assert one != two


@pytest.mark.parametrize("damage", [b"", b"short", b"x" * (SECRET_BYTES + 1)])
async def test_what_is_no_secret_is_never_used_as_one(
    store: ConversationHistoryStore, redis: Redis, prefix: str, damage: bytes
) -> None:
    await redis.set(f"{prefix}:{{00}}:secret", damage)
    with pytest.raises(StoreUnavailable, match=f"has {len(damage)} bytes and should have {SECRET_BYTES}"):
        await shared_secret(store)
    assert await redis.get(f"{prefix}:{{00}}:secret") == damage
    await redis.delete(f"{prefix}:{{00}}:secret")


async def test_a_repair_takes_a_broken_one_away_and_never_a_whole_one(
    store: ConversationHistoryStore, redis: Redis, prefix: str, server_url: str
) -> None:
    whole = await shared_secret(store)
    assert await found_by_a_repair(server_url, prefix) == []
    assert await shared_secret(store) == whole
    await redis.set(f"{prefix}:{{00}}:secret", whole[:-1])
    assert await found_by_a_repair(server_url, prefix) == ["secret"]
    assert await redis.exists(f"{prefix}:{{00}}:secret") == 0


async def found_by_a_repair(server_url: str, prefix: str) -> list[str]:
    """What fsck finds in a store, and repairs."""
    fsck = Fsck(connect(server_url), prefix=prefix)
    report = [step async for step in fsck.run(repair=True)][-1]
    await fsck.close()
    assert isinstance(report, Report)
    assert report.left == report.unknown == 0
    return [fault.what for fault in report.faults]
