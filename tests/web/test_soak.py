"""Everything that clients do, for a while, at a share of what a process can do and at the cap of its store: afterwards
it has the memory that it had, its loop was never late, and the store is whole.
"""

import json
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from redis import Redis
from redis.asyncio import Redis as AsyncRedis

from tests.support.service.everything import Everything, growth, lag_p99
from tests.support.service.process import ServiceProcess
from tests.support.service.scraped import scraped
from tests.support.store.verdict import faults
from tests.support.waiting import until

MIB = 1 << 20
SETTINGS: dict[str, Any] = {
    "max_responses": 300,
    "store_cache_bytes": 4 * MIB,
    "demo_tokens_per_second": 400,
    "archive_url": "none",
}
"""A cap that is met within the first seconds, so that each turn that is stored makes others leave."""

SHARE = 0.7
"""How much of a core the process may take."""

MOST_GROWTH = 1.03
MOST_LAG_SECONDS = 0.02
SAMPLES = 240
REST_SECONDS = 30.0
SAMPLES_FILE = "SOAK_SAMPLES"
"""The variable that names a file for what was seen, which `scripts/bench soak` draws."""


async def soak(service: ServiceProcess, seconds: float) -> Everything:
    """The clients, after so many seconds, and what has to be so however long that was."""
    with service.redis() as redis:
        clients = Everything(service.url, service.process.pid, lambda: used_bytes(redis), seed=7, share=SHARE)
        await clients.run(seconds, every=seconds / SAMPLES)
        keep(clients)
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


def keep(clients: Everything) -> None:
    """Write what was seen into the file that is named for it, if any is."""
    if path := os.environ.get(SAMPLES_FILE):
        Path(path).write_text(json.dumps([each._asdict() for each in clients.samples]))


def used_bytes(redis: Redis) -> int:
    """What a server holds."""
    told: Any = redis.info("memory")
    return int(told["used_memory"])


@pytest.mark.timeout(180)
async def test_a_while_of_everything_leaves_the_store_whole(start: Callable[..., ServiceProcess]) -> None:
    await soak(start(**SETTINGS), 20)


@pytest.mark.full
@pytest.mark.timeout(4500)
async def test_an_hour_of_everything_leaves_memory_and_the_loop_as_they_were(
    start: Callable[..., ServiceProcess],
) -> None:
    service = start(**SETTINGS)
    clients = await soak(service, float(os.environ.get("SOAK_SECONDS", "3600")))
    assert growth(clients.samples, lambda sample: sample.process_bytes) <= MOST_GROWTH
    assert growth(clients.samples, lambda sample: sample.redis_bytes) <= MOST_GROWTH
    assert await lag_p99(service.url) <= MOST_LAG_SECONDS
