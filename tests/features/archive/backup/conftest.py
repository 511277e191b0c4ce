"""The fixtures of all tests of backups: a file, a store to restore into, and the way there."""

from collections.abc import AsyncIterator
from pathlib import Path

import pytest
from redis.asyncio import Redis

from store.history.history import ConversationHistoryStore
from tests.support.store.backups import Moves
from tests.support.store.fixtures import OpenStore
from tests.support.store.verdict import faults


@pytest.fixture
def file(tmp_path: Path) -> Path:
    return tmp_path / "backup.hm"


@pytest.fixture
def moves(server_url: str, prefix: str, file: Path, second: ConversationHistoryStore) -> Moves:
    return Moves(server_url, prefix, file)


@pytest.fixture
async def second(
    open_store: OpenStore, server_url: str, prefix: str, redis: Redis
) -> AsyncIterator[ConversationHistoryStore]:
    """An empty store to restore into. After the test fsck finds nothing in it, and all its keys add up."""
    yield open_store(f"{prefix}-2")
    assert await faults(redis, server_url, f"{prefix}-2") == []
