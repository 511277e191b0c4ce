"""What an older release stored, and stores beside us, is known, counted, evicted fairly and brought up to date."""

import asyncio
from collections.abc import AsyncIterator

import pytest
from redis.asyncio import Redis

from store.history.caps import Caps
from store.history.history import ConversationHistoryStore
from store.redis.connection import connect
from tests.store.history.test_shares import alive, roots
from tests.support.store.audit import INDEXED_BYTES, complaints, dump
from tests.support.store.counted import Usage, usage
from tests.support.store.former import forget_trees_of_tenants, make_former
from tests.support.store.sample import TENANT, grow, said, set_use, turn
from tests.support.store.verdict import checked

OTHER = "other"
SECONDS = 10.0


@pytest.fixture
async def store(server_url: str, prefix: str) -> AsyncIterator[ConversationHistoryStore]:
    """A store whose cap is soon reached."""
    made = ConversationHistoryStore(connect(server_url), prefix=prefix, caps=Caps(responses=20, idle_seconds=0))
    yield made
    await made.close()


async def filled(store: ConversationHistoryStore) -> tuple[list[str], list[str]]:
    """Two tenants' turns, which reach the cap: a fork, a tombstone that a run holds, and single turns."""
    theirs = await roots(store, OTHER, 4)
    mine = await grow(store, "root", "left")
    mine += await grow(store, "right", parent=mine[0])
    mine += await roots(store, TENANT, 12)
    (gone,) = await roots(store, TENANT, 1)
    await store.chain(TENANT, gone, pin=store.token())
    await store.forget(TENANT, gone)
    return mine + await roots(store, TENANT, 1), theirs


async def test_a_store_of_an_older_release_is_brought_up_to_date_by_a_sweep(
    store: ConversationHistoryStore, redis: Redis, prefix: str
) -> None:
    mine, theirs = await filled(store)
    before = [await usage(store, tenant) for tenant in (None, TENANT, OTHER)]
    await make_former(redis, prefix)
    (shared, *_) = before
    assert await usage(store) == shared._replace(bytes=shared.bytes - INDEXED_BYTES * shared.trees)
    await store.sweep()
    assert [await usage(store, tenant) for tenant in (None, TENANT, OTHER)] == before
    assert await complaints(redis, prefix) == []
    assert await alive(store, TENANT, mine) == mine
    assert await alive(store, OTHER, theirs) == theirs


async def test_nothing_is_moved_while_an_older_release_may_be_at_work(
    store: ConversationHistoryStore, redis: Redis, prefix: str
) -> None:
    await filled(store)
    await make_former(redis, prefix, ago_us=300_000_000)
    before = await redis.zrange(f"{prefix}:{{00}}:leaves", 0, -1, withscores=True)
    await store.sweep()
    assert await redis.zrange(f"{prefix}:{{00}}:leaves", 0, -1, withscores=True) == before


@pytest.mark.parametrize("ago_us", [300_000_000, 3_600_000_000])
async def test_what_an_older_release_stored_is_evicted_by_shares(
    store: ConversationHistoryStore, redis: Redis, prefix: str, ago_us: int
) -> None:
    mine, theirs = await filled(store)
    await make_former(redis, prefix, ago_us=ago_us)
    newer = await roots(store, OTHER, 2)
    assert await alive(store, OTHER, theirs + newer) == theirs + newer
    assert await alive(store, TENANT, mine) == [mine[0], *mine[3:]]
    assert (await usage(store)).responses == 20


async def test_what_was_used_since_is_not_taken_for_what_was_used_least(
    store: ConversationHistoryStore, redis: Redis, prefix: str
) -> None:
    mine, _ = await filled(store)
    await make_former(redis, prefix)
    for id in mine[1:3]:
        await store.get(TENANT, id)
    await roots(store, OTHER, 2)
    assert await alive(store, TENANT, mine) == [*mine[:3], *mine[5:]]


async def test_what_an_older_release_stored_can_be_used_continued_and_deleted(
    store: ConversationHistoryStore, redis: Redis, prefix: str, server_url: str
) -> None:
    mine, theirs = await filled(store)
    await make_former(redis, prefix)
    await store.forget(TENANT, mine[1])
    await store.forget_tree(OTHER, theirs[0])
    child = store.new_id(mine[2])
    await store.append(TENANT, turn(child, mine[2], text="child"))
    assert await said(store, child) == ["root", "right", "child"]
    assert (await checked(server_url, prefix, 1))[0] == []
    await store.sweep()
    assert await complaints(redis, prefix) == []


async def test_fsck_finds_nothing_wrong_with_what_an_older_release_stored(
    store: ConversationHistoryStore, redis: Redis, prefix: str, server_url: str
) -> None:
    await filled(store)
    await make_former(redis, prefix, ago_us=0)
    before = await dump(redis, prefix)
    assert (await checked(server_url, prefix, 1))[0] == []
    assert await dump(redis, prefix) == before


async def test_thousands_of_leaves_and_hundreds_of_tenants_are_moved_some_at_a_time(
    redis: Redis, prefix: str, server_url: str
) -> None:
    plenty = ConversationHistoryStore(connect(server_url), prefix=prefix)
    for number in range(300):
        await roots(plenty, f"tenant-{number}", 3)
    await make_former(redis, prefix)
    await roots(plenty, TENANT, 1)
    await plenty.sweep()
    assert await complaints(redis, prefix) == []
    await make_former(redis, prefix)
    store = ConversationHistoryStore(connect(server_url), prefix=prefix, caps=Caps(responses=901, idle_seconds=0))
    await roots(store, TENANT, 1)
    assert (await usage(store)).responses == 901
    await plenty.close()
    await store.close()


async def test_the_last_counter_of_an_older_release_is_moved_too(
    store: ConversationHistoryStore, redis: Redis, prefix: str
) -> None:
    await roots(store, OTHER, 3)
    await redis.hset(f"{prefix}:{{00}}:usage", f"bytes/{TENANT}", 5)
    await store.sweep()
    assert not await redis.hexists(f"{prefix}:{{00}}:usage", f"bytes/{TENANT}")
    assert await redis.zscore(f"{prefix}:{{00}}:usage:bytes", TENANT) == 5


async def test_a_sweep_ends_and_caps_hold_whatever_another_release_counts(
    store: ConversationHistoryStore, redis: Redis, prefix: str
) -> None:
    await filled(store)
    await make_former(redis, prefix, ago_us=0)
    unknown = {"pages": 5, "words": 7}
    await redis.hset(f"{prefix}:{{00}}:usage", mapping=unknown)
    await roots(store, OTHER, 2)
    assert (await usage(store)).responses == 20
    async with asyncio.timeout(SECONDS):
        await store.sweep()
    assert await redis.hmget(f"{prefix}:{{00}}:usage", *unknown) == [b"5", b"7"]


async def test_an_entry_of_what_an_older_release_has_removed_is_passed_over(
    store: ConversationHistoryStore, redis: Redis, prefix: str
) -> None:
    mine = await roots(store, TENANT, 20)
    digits = [id.removeprefix("resp_") for id in mine]
    node = f"{prefix}:{{00}}:t:{TENANT}:node:"
    await redis.hset(node + digits[0], "children", 1)  # continued by an older release, which knows no other order
    late = int(await redis.zscore(f"{prefix}:{{00}}:trees", f"{TENANT}/{digits[-1]}") or 0)
    await redis.hset(node + digits[1], "touched", late)  # used by it
    await redis.zadd(f"{prefix}:{{00}}:leaves:{TENANT}", {"0" * 48: 1})  # removed by it
    await redis.hincrby(f"{prefix}:{{00}}:usage", "bytes", 195)
    await roots(store, TENANT, 1)
    assert await alive(store, TENANT, mine) == [*mine[:2], *mine[3:]]
    members = await redis.zrange(f"{prefix}:{{00}}:leaves:{TENANT}", 0, -1)
    assert not {b"0" * 48, digits[0].encode()}.intersection(members)


async def test_an_older_release_finds_what_it_counts_by(
    store: ConversationHistoryStore, redis: Redis, prefix: str
) -> None:
    """It adds LEAF_BYTES for each place that it knows, and TREE_BYTES for each tree, to the shard's bytes."""
    await filled(store)
    before = await usage(store)
    await make_former(redis, prefix)
    mixed = [await usage(store)]
    await roots(store, OTHER, 1)
    mixed.append(await usage(store))
    assert mixed[0] == before._replace(bytes=before.bytes - INDEXED_BYTES * before.trees)
    assert mixed[1] != Usage()


async def test_trees_of_an_older_release_are_given_to_their_tenants_by_a_sweep(
    redis: Redis, prefix: str, server_url: str
) -> None:
    plenty = ConversationHistoryStore(connect(server_url), prefix=prefix)
    mine, theirs = await roots(plenty, TENANT, 1_100), await roots(plenty, OTHER, 3)
    for id in mine[:700:7]:
        await plenty.get(TENANT, id)  # so that their order isn't that of their ids
    assert await complaints(redis, prefix) == []
    before = await dump(redis, prefix)
    await forget_trees_of_tenants(redis, prefix)
    assert len(await complaints(redis, prefix)) > 0
    await plenty.get(TENANT, mine[0])
    await plenty.get(OTHER, theirs[0])
    assert not [key async for key in redis.scan_iter(f"{prefix}:{{00}}:trees:*")]  # nothing is counted by the way
    await plenty.append(OTHER, turn(plenty.new_id(theirs[1]), theirs[1], text="child"))
    await plenty.sweep()
    assert await complaints(redis, prefix) == []
    assert (await checked(server_url, prefix, 1))[0] == []
    assert len((await dump(redis, prefix))[f"{prefix}:{{00}}:trees:{TENANT}"]) == len(mine)
    assert before.keys() <= (await dump(redis, prefix)).keys()
    await plenty.close()


async def test_what_an_older_release_adds_and_uses_beside_ours_is_found_by_later_sweeps(
    store: ConversationHistoryStore, redis: Redis, prefix: str, server_url: str
) -> None:
    mine = await roots(store, TENANT, 5)
    await store.sweep()
    shard = f"{prefix}:{{00}}"
    late = int(await redis.get(f"{shard}:clock") or 0)
    used, added = (id.removeprefix("resp_") for id in mine[:2])
    await redis.zadd(f"{shard}:trees", {f"{TENANT}/{used}": late})  # as it does, which knows no other order
    await redis.zrem(f"{shard}:trees:{TENANT}", added)
    await redis.hincrby(f"{shard}:usage", "bytes", -INDEXED_BYTES)
    await redis.zincrby(f"{shard}:usage:bytes", -INDEXED_BYTES, TENANT)
    assert [fault.what for fault in (await checked(server_url, prefix, 1))[0]] == ["index", "index"]
    await store.sweep()
    assert await complaints(redis, prefix) == []


async def test_a_sweep_ends_where_more_trees_than_a_call_compares_were_used_at_the_same_moment(
    redis: Redis, prefix: str, server_url: str
) -> None:
    plenty = ConversationHistoryStore(connect(server_url), prefix=prefix)
    mine = await roots(plenty, TENANT, 700)
    await set_use(redis, prefix, 1_700_000_000_000_000, *mine[:650])
    await forget_trees_of_tenants(redis, prefix)
    async with asyncio.timeout(SECONDS):
        await plenty.sweep()
    indexed = (await dump(redis, prefix))[f"{prefix}:{{00}}:trees:{TENANT}"]
    assert len(indexed) >= 550  # the others wait for another use
    await plenty.close()
