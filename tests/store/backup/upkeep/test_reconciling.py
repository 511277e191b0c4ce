"""A server that went back in time: what was deleted since is deleted again, and nothing else."""

import pytest
from redis.asyncio import Redis

from store.backup.upkeep.erasing import clear, forget_all
from store.backup.upkeep.reconciling import Reconciled, Reconciler
from store.errors import NotFound
from store.history.omissions import ERASED
from tests.support.archive.back import gone_back, remembered
from tests.support.archive.kept import Kept, micros
from tests.support.store.audit import complaints
from tests.support.store.sample import TENANT, grow, said


async def reconciled(both: Kept) -> Reconciled:
    done: list[Reconciled] = []
    reconciler = Reconciler(both.store, both.archive, lambda number, some: done.append(some))
    assert await reconciler.shard(0)
    (some,) = done
    return some


async def test_a_turn_that_was_deleted_is_deleted_again_and_what_continues_it_keeps_its_messages(
    both: Kept, redis: Redis, prefix: str
) -> None:
    one, two, three = await grow(both.store, "one", "two", "three")
    (leaf,) = await grow(both.store, "leaf", parent=one)
    (other,) = await grow(both.store, "other")
    await both.archive_all()
    before = await remembered(redis, prefix)
    await both.store.forget(TENANT, two)
    await both.store.forget(TENANT, leaf)
    await both.archive_all()
    await gone_back(redis, prefix, before)
    assert await both.store.get(TENANT, two)
    done = await reconciled(both)
    assert (done.trees, done.deleted, done.under_way) == (2, 2, [])
    for id in (two, leaf):
        with pytest.raises(NotFound):
            await both.store.get(TENANT, id)
    assert await said(both.store, three) == ["one", "two", "three"]
    assert await both.store.get(TENANT, other)
    assert (await reconciled(both)).deleted == 0
    assert await complaints(redis, prefix) == []


async def test_what_was_erased_is_erased_again(both: Kept, redis: Redis, prefix: str) -> None:
    one, two = await grow(both.store, "one", "two")
    await both.store.forget(TENANT, one)
    await both.archive_all()
    before = await remembered(redis, prefix)
    with pytest.raises(NotFound):  # it was deleted, and is erased now
        await both.store.forget(TENANT, one, erase=True)
    await both.archive_all()
    await gone_back(redis, prefix, before)
    assert await said(both.store, two) == ["one", "two"]
    assert (await reconciled(both)).deleted == 1
    assert await said(both.store, two) == ["two"]
    assert (await reconciled(both)).deleted == 0


@pytest.mark.parametrize("root_deleted", [False, True])
async def test_a_tree_that_was_deleted_goes_whole(both: Kept, redis: Redis, prefix: str, root_deleted: bool) -> None:
    one, two = await grow(both.store, "one", "two")
    if root_deleted:
        await both.store.forget(TENANT, one)
    await both.archive_all()
    before = await remembered(redis, prefix)
    await both.store.forget_tree(TENANT, two)
    await both.archive_all()
    await gone_back(redis, prefix, before)
    assert (await reconciled(both)).deleted == 1
    with pytest.raises(NotFound):
        await both.store.get(TENANT, two)
    assert (await reconciled(both)).trees == 0


async def test_an_item_that_was_erased_is_erased_again(both: Kept, redis: Redis, prefix: str) -> None:
    one, two = await grow(both.store, "one", "two")
    await both.archive_all()
    before = await remembered(redis, prefix)
    await both.store.redact(TENANT, one, lambda said, told, items: ((ERASED,), told, b"[]"))
    now = await both.store.messages(TENANT, one)
    await both.archive_all()
    await gone_back(redis, prefix, before)
    assert await both.store.messages(TENANT, one) != now
    assert (await reconciled(both)).deleted == 1
    assert await both.store.messages(TENANT, one) == now
    assert await both.store.items(TENANT, [one]) == [(b'{"text":"one"}', b"[]")]
    assert await both.store.get(TENANT, two)
    assert (await reconciled(both)).deleted == 0


async def test_what_an_erased_tenant_had_goes_and_what_it_made_since_stays(
    both: Kept, redis: Redis, prefix: str
) -> None:
    (old,) = await grow(both.store, "old")
    await both.archive_all()
    before = await remembered(redis, prefix)
    at = micros()
    await both.marks.erase(TENANT, at)
    await forget_all(both.store, TENANT)
    await clear(both.archive, TENANT, at)
    await gone_back(redis, prefix, before)
    (new,) = await grow(both.store, "new")
    (behind,) = await grow(both.store, "behind", parent=old)
    assert (await reconciled(both)).deleted == 1
    with pytest.raises(NotFound):
        await both.store.get(TENANT, old)
    assert await both.store.get(TENANT, new)
    assert await said(both.store, behind) == ["behind"], "it goes on without the words from before"


async def test_what_is_under_way_stays_until_it_has_ended(both: Kept, redis: Redis, prefix: str) -> None:
    (one,) = await grow(both.store, "one")
    await both.archive_all()
    before = await remembered(redis, prefix)
    await both.store.forget(TENANT, one)
    await both.archive_all()
    await gone_back(redis, prefix, before)
    job = both.store.keyspace.turn(TENANT, one).key("job")
    await redis.hset(job, "claims", 1)
    reconciler = Reconciler(both.store, both.archive)
    assert not await reconciler.shard(0)
    assert not await reconciler.shard(0)
    await redis.delete(job)
    assert await reconciler.shard(0)
    with pytest.raises(NotFound):
        await both.store.get(TENANT, one)


async def test_a_tree_that_cannot_be_read_is_told_and_stays(both: Kept) -> None:
    (one,) = await grow(both.store, "one")
    await both.archive_all()
    (key,) = await both.keys()
    found = await both.archive.get(key)
    assert found is not None
    await both.archive.put(key, b"damaged", only_if=found.etag)
    assert (await reconciled(both)).unreadable == 1
    assert await both.store.get(TENANT, one)
