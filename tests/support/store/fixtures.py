"""Real servers for the store's tests, a prefix of its own for each test, and a check that none leaves a mess.

Never flush a server here: all tests of a run share it, at the same time where xdist is used.
"""

import uuid
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import AsyncExitStack
from pathlib import Path
from typing import Any, cast

import pytest
from redis.asyncio import Redis

from store.history.caps import Caps
from store.history.conversations import Conversations
from store.history.history import ConversationHistoryStore
from store.jobs.jobs import Jobs
from store.jobs.model import JobLimits
from store.redis import connection
from store.redis.connection import connect
from store.redis.wire import Argument, Command
from tests.support.store.audit import complaints
from tests.support.store.servers import (
    PLAIN,
    Cluster,
    Process,
    Watched,
    cluster,
    in_step,
    sentinels,
    server,
    server_of,
    sweep,
    until,
)

PATIENCE = 15.0
"""How many seconds an operation may take where the test is not about that: machines may stand still for a while."""


EXACT = Caps(touch_seconds=0)
"""Every use is noted."""

OpenStore = Callable[..., ConversationHistoryStore]


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
    client = cast(Redis, connect(server_url))
    yield client
    await sweep(client, prefix)
    await client.aclose()


class LossyOperation(connection.Operation):
    """Carries out each command, loses the reply, and answers the repeat. An error reply is never lost."""

    async def row(self, *commands: Command, at: Argument | None = None, ahead: bool = False) -> list[Any]:
        await super().row(*commands, at=at, ahead=ahead)
        return await super().row(*commands, at=at, ahead=ahead)


@pytest.fixture
def lost_replies(monkeypatch: pytest.MonkeyPatch) -> None:
    """Every store's every command is carried out twice, as its first reply is lost."""
    monkeypatch.setattr(connection, "Operation", LossyOperation)


@pytest.fixture
async def open_store(server_url: str, prefix: str) -> AsyncIterator[OpenStore]:
    """Opens stores over the test's prefix, or another one; they are closed after it."""
    async with AsyncExitStack() as stack:

        def opened(own: str = prefix, **how: Any) -> ConversationHistoryStore:
            options: dict[str, Any] = {"timeout_seconds": PATIENCE} | how
            store = ConversationHistoryStore(connect(server_url), prefix=own, **options)
            stack.push_async_callback(store.close)
            return store

        yield opened


@pytest.fixture(params=[pytest.param(0, id="uncached", marks=pytest.mark.full), pytest.param(1 << 20, id="cached")])
async def store(
    request: pytest.FixtureRequest, open_store: OpenStore, redis: Redis, prefix: str
) -> AsyncIterator[ConversationHistoryStore]:
    """A store with nothing in it. After the test all keys must belong to stored turns, and add up."""
    yield open_store(cache_bytes=request.param, caps=EXACT)
    assert await complaints(redis, prefix) == []


@pytest.fixture
async def capped(open_store: OpenStore, redis: Redis, prefix: str) -> AsyncIterator[OpenStore]:
    """Makes stores with caps over one prefix. After the test all keys must belong to stored turns, and add up."""

    def make(*, pin_seconds: float = 60.0, cache_bytes: int = 0, **caps: float) -> ConversationHistoryStore:
        limits: dict[str, Any] = {"responses": 0, "bytes": 0, "idle_seconds": 0, "idle_grace_seconds": 0} | caps
        return open_store(pin_seconds=pin_seconds, cache_bytes=cache_bytes, caps=Caps(**limits))

    yield make
    assert await complaints(redis, prefix) == []


@pytest.fixture
def unaudited(open_store: OpenStore) -> ConversationHistoryStore:
    """A store with nothing in it, which a test may harm."""
    return open_store(caps=EXACT)


@pytest.fixture
async def history(
    unaudited: ConversationHistoryStore, redis: Redis, prefix: str
) -> AsyncIterator[ConversationHistoryStore]:
    """A store with nothing in it, without a read cache. After the test all keys must add up."""
    yield unaudited
    assert await complaints(redis, prefix) == []


@pytest.fixture
def conversations(history: ConversationHistoryStore) -> Conversations:
    """The conversations of that store."""
    return Conversations(history)


@pytest.fixture
def jobs(history: ConversationHistoryStore) -> Jobs:
    """The jobs of that store, whose leases and logs end when a test says so."""
    return Jobs(history, JobLimits(lease_seconds=600.0, first_seconds=600.0))


@pytest.fixture(scope="module")
def nodes(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    """A cluster of three nodes that stays as it is."""
    with cluster(tmp_path_factory.mktemp("cluster")) as made:
        yield made


@pytest.fixture(scope="module")
def cluster_url(nodes: Cluster) -> str:
    """Where its nodes listen."""
    return nodes.url


@pytest.fixture
def watched(tmp_path: Path) -> Iterator[Watched]:
    """A primary with a replica and a Sentinel, which a test may take away."""
    with sentinels(tmp_path) as made:
        yield made


@pytest.fixture
def primary_and_replica(tmp_path: Path) -> Iterator[tuple[Process, Process]]:
    """Two servers, in step."""
    with server(tmp_path, *PLAIN) as primary, server(tmp_path, *PLAIN) as replica:
        replica.ask("REPLICAOF", "127.0.0.1", primary.port)
        until(lambda: in_step(replica), "the replica did not follow")
        yield primary, replica


@pytest.fixture
def fake_url(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """Where fakeredis listens."""
    yield from server_of("fake", tmp_path_factory.mktemp("fake"))
