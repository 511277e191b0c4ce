"""A store with an archive behind it."""

from collections.abc import AsyncIterator
from pathlib import Path

import pytest
from redis.asyncio import Redis

from store.history.caps import Caps
from store.history.history import ConversationHistoryStore
from tests.support.archive.kept import Kept, Open, opened
from tests.support.store.audit import complaints
from tests.support.store.fixtures import OpenStore


@pytest.fixture
async def begin(server_url: str, prefix: str, tmp_path: Path, redis: Redis) -> AsyncIterator[Open]:
    """Opens a store that has an archive from then on, which takes what changed at once. After the test all in Redis
    adds up.
    """
    made: list[Kept] = []

    async def opening(caps: Caps | None = None, **sizes: int) -> Kept:
        made.append(await opened(server_url, prefix, tmp_path, caps or Caps(), **sizes))
        return made[-1]

    yield opening
    assert await complaints(redis, prefix) == []
    for each in made:
        await each.store.close()
        await each.archive.close()


@pytest.fixture
async def archived(begin: Open) -> Kept:
    """A store with an archive."""
    return await begin()


@pytest.fixture
def before(open_store: OpenStore) -> ConversationHistoryStore:
    """The same store, before it has an archive."""
    return open_store()
