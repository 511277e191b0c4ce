"""What is deleted between two archivings, where the archive still has it alive: nobody is told of it, nobody who
continues what is below it has to wait, and no server forgets to tell the archive.
"""

import pytest
from redis.asyncio import Redis

from store.backup.archiving.shards import begin_archive, end_archive, note_older
from store.backup.heads import Heads
from store.errors import NotFound
from store.keys import digits_of
from tests.support.archive.stored import Archived, lose
from tests.support.store.sample import TENANT, grow, said


@pytest.mark.parametrize("erase", [False, True])
async def test_what_is_below_a_turn_that_was_just_deleted_comes_back_at_once(
    archived: Archived, redis: Redis, prefix: str, erase: bool
) -> None:
    _, two, three = await grow(archived.store, "one", "two", "three")
    await archived.archive_all()
    await lose(redis, prefix)
    assert await archived.turns.bring_back(TENANT, digits_of(two))
    await archived.store.forget(TENANT, two, erase=erase)
    assert await archived.turns.bring_back(TENANT, digits_of(three))
    assert await said(archived.store, three) == ["one", *([] if erase else ["two"]), "three"]
    assert await archived.ids(two) is None
    await archived.archive_all()
    await lose(redis, prefix)
    assert await archived.ids(two) is None
    assert await archived.turns.bring_back(TENANT, digits_of(three))
    assert await said(archived.store, three) == ["one", *([] if erase else ["two"]), "three"]


@pytest.mark.parametrize("known", [False, True])
async def test_what_was_deleted_can_be_erased_later_also_where_the_archive_alone_has_it(
    archived: Archived, redis: Redis, prefix: str, known: bool
) -> None:
    store = archived.store
    store.elsewhere = archived.turns
    _, two, three = await grow(store, "one", "two", "three")
    if known:
        await store.forget(TENANT, two)
    await archived.archive_all()
    await leave(redis, prefix)
    if not known:  # the deletion is noted, and not archived yet
        await store.forget(TENANT, two)
    for _ in range(2):  # the second time there is nothing more to erase
        with pytest.raises(NotFound):
            await store.get(TENANT, two)
        with pytest.raises(NotFound):
            await store.forget(TENANT, two, erase=True)
        assert await said(store, three) == ["one", "three"]
        await archived.archive_all()
        await leave(redis, prefix)
    with pytest.raises(NotFound):
        await store.forget(TENANT, store.new_id(three), erase=True)


async def test_of_a_long_way_any_turn_may_have_been_deleted(archived: Archived, redis: Redis, prefix: str) -> None:
    ids = await grow(archived.store, *(f"turn {at}" for at in range(300)))
    await archived.archive_all()
    await lose(redis, prefix)
    assert await archived.turns.bring_back(TENANT, digits_of(ids[290]))
    for at in (290, 140, 3):
        await archived.store.forget(TENANT, ids[at], erase=True)
    assert await archived.turns.bring_back(TENANT, digits_of(ids[-1]))
    left = [f"turn {at}" for at in range(300) if at not in (290, 140, 3)]
    assert await said(archived.store, ids[-1]) == left


async def test_what_was_erased_from_a_turn_is_archived_whatever_came_below_it_first(
    archived: Archived, redis: Redis, prefix: str
) -> None:
    (one,) = await grow(archived.store, "one")
    await archived.archive_all()
    two, three = await grow(archived.store, "two", "three", parent=one)
    await archived.store.redact(TENANT, one, lambda messages, response, items: ((), b'{"text":""}', b"[]"))
    await archived.archive_all()
    await lose(redis, prefix)
    for id in (one, two, three):
        way = await archived.turns.way(TENANT, digits_of(id))
        assert way is not None
        assert [turn.items for turn in way.turns] == [b"[]", b'["two"]', b'["three"]'][: len(way.turns)]
        assert way.turns[0].messages == ()


async def test_what_was_deleted_without_an_archive_is_told_to_it_as_long_as_it_is_known(
    archived: Archived, redis: Redis, prefix: str
) -> None:
    one, two = await grow(archived.store, "one", "two")
    await archived.archive_all()
    await end_archive(archived.store.server, archived.store.keyspace)
    await archived.store.forget(TENANT, one)
    await begin_archive(archived.store.server, archived.store.keyspace, 0)
    await Heads(archived.store.server, archived.store.keyspace, archived.archive).catch_up(0)
    while await note_older(archived.store.server, archived.store.keyspace):
        pass
    await archived.archive_all()
    assert await archived.ids(one) is None
    assert await archived.ids(two) == [one, two]
    await lose(redis, prefix)
    assert await archived.ids(one) is None


async def test_a_server_that_lost_even_that_there_is_an_archive_notes_what_is_deleted_next(
    archived: Archived, redis: Redis, prefix: str
) -> None:
    one, two = await grow(archived.store, "one", "two")
    await archived.archive_all()
    await lose(redis, prefix)
    await redis.delete(f"{prefix}:{{00}}:archive")
    assert await archived.turns.bring_back(TENANT, digits_of(two))
    await archived.store.forget(TENANT, two)
    assert await archived.ids(two) is None
    await redis.set(f"{prefix}:{{00}}:archive", "0")
    await redis.zadd(f"{prefix}:{{00}}:unarchived", {f"{TENANT}/{digits_of(one)}": 0}, xx=True)
    assert await archived.archive_all() == 1
    await lose(redis, prefix)
    assert await archived.ids(two) is None
    assert await archived.ids(one) == [one]


async def leave(redis: Redis, prefix: str) -> None:
    """All turns leave memory, and all that is noted of deletions is known."""
    keys = [key async for key in redis.scan_iter(f"{prefix}:*") if b"}:archive" not in key]
    await redis.delete(*keys)
