"""A store with an archive behind it."""

from collections.abc import AsyncIterator
from pathlib import Path

import pytest
from redis.asyncio import Redis

from store.history.caps import Caps
from store.history.history import ConversationHistoryStore
from store.redis.connection import connect
from tests.support.archive.stored import Archived, Open, opened
from tests.support.store.audit import complaints


@pytest.fixture
async def begin(server_url: str, prefix: str, tmp_path: Path, redis: Redis) -> AsyncIterator[Open]:
    """Opens a store that has an archive from then on, which takes what changed at once. After the test all in Redis
    adds up.
    """
    made: list[Archived] = []

    async def opening(caps: Caps | None = None, **sizes: int) -> Archived:
        made.append(await opened(server_url, prefix, tmp_path, caps or Caps(), **sizes))
        return made[-1]

    yield opening
    assert await complaints(redis, prefix) == []
    for each in made:
        await each.store.close()
        await each.archive.close()


@pytest.fixture
async def archived(begin: Open) -> Archived:
    """A store with an archive."""
    return await begin()


@pytest.fixture
async def before(server_url: str, prefix: str) -> AsyncIterator[ConversationHistoryStore]:
    """The same store, before it has an archive."""
    store = ConversationHistoryStore(connect(server_url), prefix=prefix, timeout_seconds=15)
    yield store
    await store.close()
