"""A store with an archive behind it."""

from collections.abc import AsyncIterator
from pathlib import Path

import pytest
from redis.asyncio import Redis

from store.history.caps import Caps
from tests.support.archive.stored import Archived, opened
from tests.support.store.audit import complaints


@pytest.fixture
async def archived(server_url: str, prefix: str, tmp_path: Path, redis: Redis) -> AsyncIterator[Archived]:
    """A store with an archive that takes what changed at once. After the test all in Redis adds up."""
    made = await opened(server_url, prefix, tmp_path, Caps())
    yield made
    assert await complaints(redis, prefix) == []
    await made.store.close()
    await made.archive.close()
