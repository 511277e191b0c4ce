"""A turn that the archive alone has is deleted there: nothing comes back for that, so nobody needs room to delete."""

import asyncio
from collections.abc import Awaitable, Callable

import pytest
from redis.asyncio import Redis

from store.errors import ArchiveUnavailable, ConversationNotFound, NotFound, NotTerminal, StoreFull
from store.history.caps import Caps
from store.history.conversations import Conversations, by_hand
from store.history.delete import forget, forget_tree
from store.history.elsewhere import Outdated
from store.history.history import ConversationHistoryStore
from store.jobs.jobs import Jobs
from store.jobs.model import JobLimits
from store.keys import digits_of
from tests.support.archive.stored import Archived, Open, lose
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
async def few(begin: Open) -> Archived:
    """A store with room for few turns, which reads through to its archive."""
    made = await begin(Caps(responses=FEW))
    made.store.elsewhere = made.turns
    return made


@pytest.fixture
async def away(few: Archived, redis: Redis, prefix: str) -> list[str]:
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
    few: Archived, away: list[str], redis: Redis, prefix: str, how: str, monkeypatch: pytest.MonkeyPatch
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


@pytest.mark.parametrize("how", DELETIONS)
async def test_of_two_who_delete_at_once_one_is_told_that_it_is_gone(few: Archived, away: list[str], how: str) -> None:
    outcomes = await asyncio.gather(*(DELETIONS[how](few.store, away[1]) for _ in range(4)), return_exceptions=True)
    assert sum(each is None for each in outcomes) == 1
    assert sum(isinstance(each, NotFound) for each in outcomes) == 3


@pytest.mark.parametrize("how", DELETIONS)
@pytest.mark.parametrize("archived_between", [False, True])
async def test_a_retry_is_told_the_same_as_before(
    few: Archived, away: list[str], how: str, archived_between: bool
) -> None:
    way = await few.turns.found(TENANT, digits_of(away[1]))
    assert way is not None
    keys, server, caps = few.store.keyspace.turn(TENANT, away[1]), few.store.server, few.store.caps

    async def attempt(token: str) -> None:
        if how == "with its tree":
            await server.run(forget_tree, keys, token=token, caps=caps, archived=way.archived)
        else:
            erase = how == "erased"
            await server.run(forget, keys, token=token, idle_us=0, erase=erase, archived=way.archived)

    await attempt("first")
    for _ in range(2):
        await attempt("first")
        with pytest.raises(NotFound):
            await attempt("second")
        if archived_between:
            await few.archive_all()


async def test_a_tree_of_which_a_branch_is_in_memory_goes_as_a_whole(
    few: Archived, away: list[str], redis: Redis, prefix: str
) -> None:
    one, _, three = away
    assert await few.turns.bring_back(TENANT, digits_of(one))
    (fork,) = await grow(few.store, "fork", parent=one)
    await few.store.forget_tree(TENANT, three)
    assert await there(few.store, *away, fork) == [False] * 4
    assert not await in_memory(redis, prefix, one)
    assert not await in_memory(redis, prefix, fork)
    await few.archive_all()
    await lose(redis, prefix)
    assert await there(few.store, *away, fork) == [False] * 4


async def test_a_tree_in_which_a_response_is_under_way_stays(few: Archived, away: list[str]) -> None:
    assert await few.turns.bring_back(TENANT, digits_of(away[0]))
    jobs = Jobs(few.store, JobLimits())
    await submit(jobs, parent=away[0])
    with pytest.raises(NotTerminal):
        await few.store.forget_tree(TENANT, away[2])
    assert await there(few.store, *away) == [True] * 3


@pytest.mark.parametrize("archives", [False, True])
async def test_what_is_on_its_way_back_when_it_is_erased_comes_without_that(
    few: Archived, away: list[str], archives: bool
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
    few: Archived, redis: Redis, prefix: str
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


async def test_a_server_that_lost_that_there_is_an_archive_notes_what_is_deleted(
    few: Archived, away: list[str], redis: Redis, prefix: str
) -> None:
    await redis.delete(f"{prefix}:{{00}}:archive")
    await few.store.forget(TENANT, away[2])
    assert await there(few.store, *away) == [True, True, False]
    assert await redis.exists(f"{prefix}:{{00}}:archive")


async def test_what_the_archive_said_too_long_ago_deletes_nothing(few: Archived, away: list[str]) -> None:
    way = await few.turns.found(TENANT, digits_of(away[2]))
    assert way is not None
    long_ago = way.archived._replace(asked_ms=str(int(way.archived.asked_ms) - 61_000))
    keys, server = few.store.keyspace.turn(TENANT, away[2]), few.store.server
    with pytest.raises(Outdated):
        await server.run(forget, keys, token="token", idle_us=0, erase=False, archived=long_ago)
    assert await there(few.store, *away) == [True] * 3
