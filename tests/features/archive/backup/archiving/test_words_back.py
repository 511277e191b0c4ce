"""Words of turns that come back from the archive: a turn that was continued stays so, wherever its next turn is."""

import pytest
from redis.asyncio import Redis

from store.backup.upkeep.refilling import Refill, newest
from tests.features.chats.test_stored_words import DIGEST, found, say, words
from tests.support.archive.kept import Kept, lose
from tests.support.store.sample import TENANT


@pytest.fixture
async def chain(archived: Kept, redis: Redis, prefix: str) -> list[str]:
    """The ids of a chain of two turns with words, which are in the archive alone; the store asks that."""
    archived.store.elsewhere = archived.turns
    root = await say(archived.store)
    ids = [root, await say(archived.store, words(1), parent=root)]
    await archived.archive_all()
    await lose(redis, prefix)
    return ids


async def test_a_turn_that_comes_back_without_its_next_one_is_found_as_a_fork_alone(
    archived: Kept, chain: list[str]
) -> None:
    await archived.store.chain(TENANT, chain[0])
    assert await found(archived.store, words(1)) is None
    assert (await found(archived.store), await found(archived.store, forks=False)) == ((0, chain[0]), None)


async def test_the_last_turn_of_a_chain_that_comes_back_is_found(archived: Kept, chain: list[str]) -> None:
    await archived.store.chain(TENANT, chain[1])
    assert await found(archived.store, words(1), forks=False) == (0, chain[1])
    assert await found(archived.store, forks=False) is None


@pytest.mark.parametrize("refilled", [False, True])
async def test_a_turn_whose_next_one_was_deleted_is_no_last_one_when_it_comes_back(
    archived: Kept, chain: list[str], redis: Redis, prefix: str, refilled: bool
) -> None:
    await archived.store.forget(TENANT, chain[1])
    await archived.archive_all()
    await lose(redis, prefix)
    if refilled:
        trees = await newest(archived.archive, TENANT)
        assert [done async for done in Refill(archived.store, archived.archive, after_seconds=0).run(trees)][-1].whole
    else:
        await archived.store.chain(TENANT, chain[0])
    assert (await found(archived.store, DIGEST), await found(archived.store, forks=False)) == ((0, chain[0]), None)
