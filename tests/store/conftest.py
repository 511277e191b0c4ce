"""Real servers for the store's tests, a prefix of its own for each test, and a check that none leaves a mess.

Never flush a server here: all tests of a run share it, at the same time where xdist is used.
"""

import uuid
from collections.abc import AsyncIterator, Iterator

import pytest
from redis.asyncio import Redis

from store.history.caps import Caps
from store.history.history import ConversationHistoryStore
from store.jobs.jobs import Jobs
from store.jobs.model import JobLimits
from store.redis import connection
from store.redis.connection import connect
from tests.support.store.audit import complaints
from tests.support.store.lossy import LossyOperation
from tests.support.store.servers import server_of, sweep

PATIENCE = 15.0
"""How many seconds an operation may take where the test is not about that: machines may stand still for a while."""


EXACT = Caps(touch_seconds=0)
"""Every use is noted."""


@pytest.fixture(scope="session", params=["valkey", "redis"])
def server_url(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """Where a server listens that lasts for the whole run."""
    yield from server_of(request.param, tmp_path_factory.mktemp(request.param))


@pytest.fixture
def prefix() -> str:
    """A key prefix that no other test has."""
    return f"test-{uuid.uuid4().hex}"


@pytest.fixture
async def redis(server_url: str, prefix: str) -> AsyncIterator[Redis]:
    """A client of the server, for looking behind the store's back. The test's keys go with it."""
    client = connect(server_url)
    yield client
    await sweep(client, prefix)
    await client.aclose()


@pytest.fixture
def lost_replies(monkeypatch: pytest.MonkeyPatch) -> None:
    """Every store's every command is carried out twice, as its first reply is lost."""
    monkeypatch.setattr(connection, "Operation", LossyOperation)


@pytest.fixture(params=[pytest.param(0, id="uncached", marks=pytest.mark.full), pytest.param(1 << 20, id="cached")])
async def store(
    request: pytest.FixtureRequest, server_url: str, redis: Redis, prefix: str
) -> AsyncIterator[ConversationHistoryStore]:
    """A store with nothing in it. After the test all keys must belong to stored turns, and add up."""
    store = ConversationHistoryStore(
        connect(server_url), prefix=prefix, cache_bytes=request.param, timeout_seconds=PATIENCE, caps=EXACT
    )
    yield store
    await store.close()
    assert await complaints(redis, prefix) == []


@pytest.fixture
async def unaudited(server_url: str, redis: Redis, prefix: str) -> AsyncIterator[ConversationHistoryStore]:
    """A store with nothing in it, which a test may harm."""
    store = ConversationHistoryStore(connect(server_url), prefix=prefix, timeout_seconds=PATIENCE, caps=EXACT)
    yield store
    await store.close()


@pytest.fixture
async def history(
    unaudited: ConversationHistoryStore, redis: Redis, prefix: str
) -> AsyncIterator[ConversationHistoryStore]:
    """A store with nothing in it, without a read cache. After the test all keys must add up."""
    yield unaudited
    assert await complaints(redis, prefix) == []


@pytest.fixture
def jobs(history: ConversationHistoryStore) -> Jobs:
    """The jobs of that store, whose leases and logs end when a test says so."""
    return Jobs(history, JobLimits(lease_seconds=600.0, first_seconds=600.0))


@pytest.fixture(scope="module")
def cluster_url(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """Where three nodes listen."""
    yield from server_of("cluster", tmp_path_factory.mktemp("cluster"))


@pytest.fixture
def fake_url(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """Where fakeredis listens."""
    yield from server_of("fake", tmp_path_factory.mktemp("fake"))
