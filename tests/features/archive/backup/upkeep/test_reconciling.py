"""A server that went back in time: what was deleted since is deleted again, and nothing else."""

import pytest
from redis.asyncio import Redis

from store.backup.heads import Heads, Standing
from store.backup.upkeep.erasing import clear, forget_all
from store.backup.upkeep.reconciling import Reconciled, Reconciler
from store.errors import ConversationMoved, NotFound
from store.history.conversations import Conversations
from store.history.omissions import ERASED, omission, omitting
from store.keys import OMISSION_MARK
from tests.support.archive.back import gone_back, remembered
from tests.support.archive.kept import Kept, micros
from tests.support.store.audit import complaints
from tests.support.store.named import SECONDS, add, begun, tip_of, words
from tests.support.store.sample import TENANT, grow, said, turn


async def reconciled(both: Kept) -> Reconciled:
    done: list[Reconciled] = []
    reconciler = Reconciler(both.store, both.archive, lambda number, some: done.append(some))
    assert await reconciler.shard(0)
    (some,) = done
    return some


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


def heads_of(both: Kept) -> Heads:
    return Heads(both.store.server, both.store.keyspace, both.archive)


async def test_a_conversation_that_went_on_goes_on_there_and_not_where_it_stood(
    both: Kept, redis: Redis, prefix: str
) -> None:
    named = Conversations(both.store)
    grew, shown, same = [await begun(named, text="first") for _ in range(3)]
    await both.archive_all()
    before = await remembered(redis, prefix)
    assert await heads_of(both).standing(0) is Standing.EVEN
    await add(named, grew, "a", "b")
    await named.amend(TENANT, shown, b'{"metadata":{"a":"new"}}')
    await both.archive_all()
    await gone_back(redis, prefix, before)
    assert await heads_of(both).standing(0) is Standing.REDIS_IS_OLDER
    assert (await words(named, grew), await named.get(TENANT, shown)) == (["first"], b'{"metadata":{}}')
    await named.hold(TENANT, grew, "run", SECONDS)
    old = await tip_of(named, grew)
    done = await reconciled(both)
    assert (done.deleted, done.moved, done.under_way) == (0, 2, [])
    late = both.store.new_id(old)
    with pytest.raises(ConversationMoved):
        await named.advance(TENANT, grew, turn(late, old), hold="run")
    assert (await words(named, grew), await named.get(TENANT, shown)) == (
        ["first", "a", "b"],
        b'{"metadata":{"a":"new"}}',
    )
    assert await words(named, same) == ["first"]
    assert sorted(each.id for each in await named.listing(TENANT).some(9)) == sorted([grew, shown, same])
    assert (await reconciled(both)).moved == 0
    await heads_of(both).catch_up(0)
    await add(named, grew, "c")
    await both.archive_all()
    assert await both.told(grew) == [*(await named.lineage(TENANT, grew)), f"resp_{grew[5:]}"]
    assert await complaints(redis, prefix) == []


async def test_an_item_that_was_deleted_stays_so_though_the_conversation_went_further_without_that(
    both: Kept, redis: Redis, prefix: str
) -> None:
    named = Conversations(both.store)
    id = await begun(named, text="first")
    await both.archive_all()
    before = await remembered(redis, prefix)
    await named.hold(TENANT, id, "run", SECONDS)
    tip = await tip_of(named, id)
    note = omitting(tip, await both.store.messages(TENANT, tip), 0)
    await named.advance(TENANT, id, omission(named.new_turn_id(id, OMISSION_MARK), tip, note, b"{}"), hold="run")
    await both.archive_all()
    way = await named.lineage(TENANT, id)
    await gone_back(redis, prefix, before)
    await add(named, id, "a", "b", "c")
    assert (await reconciled(both)).moved == 1
    assert await named.lineage(TENANT, id) == way
    assert await complaints(redis, prefix) == []


async def test_what_a_conversation_got_since_its_archived_form_stays(both: Kept, redis: Redis, prefix: str) -> None:
    named = Conversations(both.store)
    grew, shown = [await begun(named, text="first") for _ in range(2)]
    await both.archive_all()
    await add(named, grew, "a")
    await named.amend(TENANT, shown, b"{}")
    assert (await reconciled(both)).moved == 0
    before = await remembered(redis, prefix)
    await named.amend(TENANT, grew, b"{}")
    await named.amend(TENANT, shown, b'{"later":1}')
    await both.archive_all()
    await gone_back(redis, prefix, before)
    await named.get(TENANT, shown)
    await named.get(TENANT, grew)  # to read is no change
    assert (await reconciled(both)).moved == 2
    assert (await named.get(TENANT, grew), await named.get(TENANT, shown)) == (b"{}", b'{"later":1}')
    assert await words(named, grew) == ["first", "a"]
    assert await complaints(redis, prefix) == []
