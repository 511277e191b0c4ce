"""Reading through: what was asked for in vain is known for a while, unless it may come yet."""

import pytest
from redis.asyncio import Redis

from store.backup.archiving.archived_turns import HIT, MISS, ArchivedTurns
from store.keys import digits_of
from store.layout import shared_secret
from store.watcher import Watcher
from tests.support.archive.kept import Kept, Open, lose
from tests.support.store.sample import TENANT, turn


@pytest.fixture
async def archived(begin: Open) -> Kept:
    """A store that knows its ids, with an archive."""
    made = await begin()
    made.store.ids.prove_by(await shared_secret(made.store))
    return made


@pytest.fixture
def asked() -> list[str]:
    """What became of each question."""
    return []


@pytest.fixture
def turns(archived: Kept, asked: list[str]) -> ArchivedTurns:
    watcher = archived.store.server.watcher = Watcher()
    watcher.archive_asked = asked.append
    return ArchivedTurns(archived.store, archived.archive)


async def test_a_guess_is_looked_for_once(archived: Kept, turns: ArchivedTurns, asked: list[str]) -> None:
    digits = digits_of(archived.store.new_id())
    guessed = digits[:-1] + ("0" if digits[-1] != "0" else "1")
    for _ in range(3):
        assert await turns.find(TENANT, guessed) is None
        assert not await turns.bring_back(TENANT, guessed)
    assert asked == [MISS]


async def test_what_was_asked_for_before_it_ended_is_found_as_soon_as_it_is_archived(
    archived: Kept, turns: ArchivedTurns, asked: list[str], redis: Redis, prefix: str
) -> None:
    id = archived.store.new_id()
    assert await turns.find(TENANT, digits_of(id)) is None
    await archived.store.append(TENANT, turn(id))
    await archived.archive_all()
    await lose(redis, prefix)
    assert await turns.find(TENANT, digits_of(id)) is not None
    assert asked == [MISS, HIT]
