"""Everything that clients do, for a while, at a share of what a process can do and at the cap of its store: afterwards
it has the memory that it had, its loop was never late, and the store is whole.
"""

from collections.abc import Callable

import pytest
from redis.asyncio import Redis as AsyncRedis

from tests.support.service.everything import (
    LONG,
    MOST_GROWTH,
    MOST_LAG_SECONDS,
    SAMPLES,
    SETTINGS,
    Everything,
    growth,
    lag_p99,
)
from tests.support.service.process import ServiceProcess
from tests.support.service.scraped import scraped
from tests.support.store.verdict import faults
from tests.support.waiting import until

REST_SECONDS = 30.0
LONG_SECONDS = 3600.0


async def soak(service: ServiceProcess, seconds: float) -> Everything:
    """The clients, after so many seconds, and what has to be so however long that was."""
    with service.redis() as redis:
        clients = Everything(service.url, service.process.pid, redis, seed=7)
        await clients.run(seconds, every=seconds / SAMPLES)
        socket = redis.connection_pool.connection_kwargs["path"]
    assert clients.missing == set()
    assert "Traceback" not in service.log
    counted = scraped(service.http())
    assert counted.value("harmonium_turns_removed_total", reason="responses") > 0
    await until(lambda: scraped(service.http()).value("harmonium_jobs_running") == 0, REST_SECONDS)
    async with AsyncRedis(unix_socket_path=socket, protocol=2) as whole:
        assert await faults(whole, f"unix://{socket}", "harmonium") == []
    print(f"{dict(clients.done)}, {clients.gone} gone, {clients.samples[-1]}")
    return clients


@pytest.mark.timeout(180)
async def test_a_while_of_everything_leaves_the_store_whole(start: Callable[..., ServiceProcess]) -> None:
    await soak(start(**SETTINGS), 20)


@pytest.mark.full
@pytest.mark.timeout(4500)
async def test_an_hour_of_everything_leaves_memory_and_loop_as_they_were(start: Callable[..., ServiceProcess]) -> None:
    service = start(**LONG)
    clients = await soak(service, LONG_SECONDS)
    assert growth(clients.samples, lambda sample: sample.process_bytes) <= MOST_GROWTH
    assert growth(clients.samples, lambda sample: sample.redis_bytes) <= MOST_GROWTH
    assert await lag_p99(service.url) <= MOST_LAG_SECONDS
