"""Everything that clients do, for a while, at a share of what a process can do and at the cap of its store: afterwards
the store is whole. `scripts/bench soak` measures memory and the loop meanwhile.
"""

from collections.abc import Callable
from typing import Any

import pytest
from redis.asyncio import Redis as AsyncRedis

from tests.support.lengths import lengths
from tests.support.service.everything import LONG, SAMPLES, SETTINGS, Everything
from tests.support.service.process import MODEL, ServiceProcess
from tests.support.service.scraped import scraped
from tests.support.store.verdict import faults
from tests.support.waiting import until

REST_SECONDS = 30.0


@pytest.mark.parametrize(("seconds", "settings"), lengths((10, SETTINGS), (900, LONG), seconds=1800, short_seconds=180))
async def test_a_while_of_everything_leaves_the_store_whole(
    start: Callable[..., ServiceProcess], seconds: float, settings: dict[str, Any]
) -> None:
    service = start(**settings)
    with service.redis() as redis:
        clients = Everything(service.url, service.process.pid, redis, seed=7)
        await clients.run(seconds, every=seconds / SAMPLES)
        socket = redis.connection_pool.connection_kwargs["path"]
    assert clients.missing == set()
    assert "Traceback" not in service.log

    def removed() -> float:
        return scraped(service.http()).value("harmonium_turns_removed_total", reason="responses")

    for _ in range(settings["max_responses"]):  # on a busy machine they have not reached the cap by now
        if removed():
            break
        service.client().responses.create(model=MODEL, input="hi")
    assert removed() > 0
    await until(lambda: scraped(service.http()).value("harmonium_jobs_running") == 0, REST_SECONDS)
    async with AsyncRedis(unix_socket_path=socket, protocol=2) as whole:
        assert await faults(whole, f"unix://{socket}", "harmonium") == []
    print(f"{dict(clients.done)}, {clients.gone} gone, {clients.samples[-1]}")
