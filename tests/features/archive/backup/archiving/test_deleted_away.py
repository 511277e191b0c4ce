"""Turns in the archive alone are deleted there, without a need for room; and what is deleted between two archivings,
where the archive still has it alive: nobody is told of it, and no server forgets to tell the archive.
"""

import asyncio
from collections.abc import Awaitable, Callable

import pytest
from redis.asyncio import Redis

from store.backup.archiving.shards import begin_archive, end_archive, note_older
from store.backup.heads import Heads
from store.errors import ArchiveUnavailable, ConversationNotFound, NotFound, NotTerminal, StoreFull
from store.history.caps import Caps
from store.history.conversations import Conversations, by_hand
from store.history.delete import forget
from store.history.elsewhere import Outdated
from store.history.history import ConversationHistoryStore
from store.jobs.jobs import Jobs
from store.jobs.model import JobLimits
from store.keys import digits_of
from tests.support.archive.kept import Kept, Open, drop, lose
from tests.support.store.sample import TENANT, grow, said, turn
from tests.support.store.work import submit

FEW = 4

Delete = Callable[[ConversationHistoryStore, str], Awaitable[None]]

DELETIONS: dict[str, Delete] = {
    "deleted": lambda store, id: store.forget(TENANT, id),
    "erased": lambda store, id: store.forget(TENANT, id, erase=True),
    "with its tree": lambda store, id: store.forget_tree(TENANT, id),
}


@pytest.fixture
async def few(begin: Open) -> Kept:
    """A store with room for few turns, which reads through to its archive."""
    made = await begin(Caps(responses=FEW))
    made.store.elsewhere = made.turns
    return made


@pytest.fixture
async def away(few: Kept, redis: Redis, prefix: str) -> list[str]:
    """Three turns of a conversation that have left memory."""
    ids = await grow(few.store, "one", "two", "three")
    await few.archive_all()
    await lose(redis, prefix)
    return ids


async def in_memory(redis: Redis, prefix: str, id: str) -> bool:
    return bool(await redis.exists(f"{prefix}:{{00}}:t:{TENANT}:node:{digits_of(id)}"))


async def there(store: ConversationHistoryStore, *ids: str) -> list[bool]:
    found = await asyncio.gather(*(store.get(TENANT, id) for id in ids), return_exceptions=True)
    assert all(isinstance(each, bytes | NotFound) for each in found)
    return [isinstance(each, bytes) for each in found]


@pytest.mark.parametrize("how", DELETIONS)
async def test_a_deletion_needs_no_room(
    few: Kept, away: list[str], redis: Redis, prefix: str, how: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    _, two, three = away
    left = [False] * 3 if how == "with its tree" else [True, False, True]

    async def refuse(*_: object, **__: object) -> None:
        raise ArchiveUnavailable("its disk is full")

    with monkeypatch.context() as patched:
        patched.setattr(few.archive, "put", refuse)
        others = await grow(few.store, *map(str, range(FEW)))
        with pytest.raises(StoreFull):
            await grow(few.store, "one too many")
        await DELETIONS[how](few.store, two)
        with pytest.raises(NotFound):
            await DELETIONS[how](few.store, two)
        assert await there(few.store, *away) == left
        assert [await in_memory(redis, prefix, id) for id in away] == [False] * 3
        assert await there(few.store, *others) == [True] * FEW
    assert await few.archive_all() == 2
    await lose(redis, prefix)
    assert await there(few.store, *away) == left
    if how != "with its tree":
        assert await said(few.store, three) == ["one", *([] if how == "erased" else ["two"]), "three"]


async def test_a_tree_in_which_a_response_is_under_way_stays(few: Kept, away: list[str]) -> None:
    assert await few.turns.bring_back(TENANT, digits_of(away[0]))
    jobs = Jobs(few.store, JobLimits())
    await submit(jobs, parent=away[0])
    with pytest.raises(NotTerminal):
        await few.store.forget_tree(TENANT, away[2])
    assert await there(few.store, *away) == [True] * 3


@pytest.mark.parametrize("archives", [False, True])
async def test_what_is_on_its_way_back_when_it_is_erased_comes_without_that(
    few: Kept, away: list[str], archives: bool
) -> None:
    _, two, three = away
    await few.store.forget(TENANT, two)
    way = await few.turns.way(TENANT, digits_of(three))
    assert way is not None
    with pytest.raises(NotFound):
        await few.store.forget(TENANT, two, erase=True)
    if archives:
        await few.archive_all()
    with pytest.raises(Outdated):
        await few.turns._store(TENANT, way)
    assert await said(few.store, three) == ["one", "three"]


async def test_a_conversation_that_left_memory_is_deleted_and_its_turns_stay(
    few: Kept, redis: Redis, prefix: str
) -> None:
    conversations = Conversations(few.store)
    id = conversations.new_id()
    await conversations.create(TENANT, id, by_hand(conversations.first_turn_id(id), None, ()), b"{}")
    response = few.store.new_id(conversations.first_turn_id(id))
    await conversations.hold(TENANT, id, "hold", 60)
    await conversations.advance(TENANT, id, turn(response, conversations.first_turn_id(id)), hold="hold")
    await few.archive_all()
    await lose(redis, prefix)
    await conversations.delete(TENANT, id)
    for call in (conversations.get, conversations.delete):
        with pytest.raises(ConversationNotFound):
            await call(TENANT, id)
    assert not await in_memory(redis, prefix, response)
    assert await there(few.store, response) == [True]


async def test_what_the_archive_said_too_long_ago_deletes_nothing(few: Kept, away: list[str]) -> None:
    way = await few.turns.found(TENANT, digits_of(away[2]))
    assert way is not None
    long_ago = way.archived._replace(asked_ms=str(int(way.archived.asked_ms) - 61_000))
    keys, server = few.store.keyspace.turn(TENANT, away[2]), few.store.server
    with pytest.raises(Outdated):
        await server.run(forget, keys, token="token", idle_us=0, erase=False, archived=long_ago)
    assert await there(few.store, *away) == [True] * 3


@pytest.mark.parametrize("known", [False, True])
async def test_what_was_deleted_can_be_erased_later_also_where_the_archive_alone_has_it(
    archived: Kept, redis: Redis, prefix: str, known: bool
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


async def test_what_was_erased_from_a_turn_is_archived_whatever_came_below_it_first(
    archived: Kept, redis: Redis, prefix: str
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
    archived: Kept, redis: Redis, prefix: str
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
    assert await archived.told(one) is None
    assert await archived.told(two) == [one, two]
    await lose(redis, prefix)
    assert await archived.told(one) is None


async def leave(redis: Redis, prefix: str) -> None:
    """All turns leave memory, and all that is noted of deletions is known."""
    await drop(redis, prefix, *(f"archive-{name}" for name in ("away", "failed", "head", "id", "user")))
