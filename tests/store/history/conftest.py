"""A server of its own for tests that look at its memory."""

from collections.abc import AsyncIterator, Iterator

import pytest
from redis.asyncio import Redis

from store.redis.connection import connect
from tests.support.store.servers import server_of


@pytest.fixture(scope="module", params=["valkey", "redis"])
def own_url(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """Where a server listens that no other module uses."""
    yield from server_of(request.param, tmp_path_factory.mktemp(f"own-{request.param}"))


@pytest.fixture
async def own(own_url: str) -> AsyncIterator[Redis]:
    """A client of that server; the limit on its memory is gone after the test, and all but scripts is."""
    client = connect(own_url)
    yield client
    await client.config_set("maxmemory", "0")
    await client.flushall(asynchronous=False)
    await client.aclose()
