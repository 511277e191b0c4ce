"""What a worker answers over HTTP: whether it is alive and ready, and what it counts; nothing of the API."""

from collections.abc import AsyncIterator
from pathlib import Path

import httpx
import pytest

from service.app import create_probe_app
from service.background.tasks import Background
from service.engine.port import EngineUnavailable
from service.process import close_service, open_service
from service.settings.settings import load_settings
from store.embedded import EmbeddedServer
from tests.support.service.inside import answer, scripted
from tests.support.service.scraped import Scraped


class Worker:
    """The parts of a worker that its probes ask, over a server that can be stopped."""

    def __init__(self, server: EmbeddedServer, **settings: object) -> None:
        self.server = server
        self.engine = scripted(answer("hi"))
        self.service = open_service(
            load_settings(redis_url=server.url, store_timeout_seconds=0.5, **settings), self.engine
        )
        self.app = create_probe_app(self.service, Background(self.service, works=True))

    async def get(self, path: str, key: str = "") -> httpx.Response:
        headers = {"authorization": f"Bearer {key}"} if key else {}
        transport = httpx.ASGITransport(self.app)
        async with httpx.AsyncClient(transport=transport, base_url="http://localhost", headers=headers) as http:
            return await http.get(path)


@pytest.fixture
async def worker(tmp_path: Path) -> AsyncIterator[Worker]:
    with EmbeddedServer(tmp_path / "redis") as server:
        found = Worker(server)
        yield found
        await close_service(found.service)


async def test_a_worker_says_that_it_is_alive_and_ready_and_what_it_counted(worker: Worker) -> None:
    assert (await worker.get("/health")).json() == {"status": "ok"}
    assert (await worker.get("/ready")).json() == {"status": "ok", "store": "ok", "engine": "ok", "worker": "ok"}
    worker.service.metrics.jobs_claimed.inc(3)
    found = Scraped((await worker.get("/metrics")).text)
    assert found.value("harmonium_jobs_claimed_total") == 3
    assert found.value("harmonium_store_up") == 1
    assert found.value("harmonium_store_responses", shard="0") == 0


async def test_a_worker_without_its_store_or_engine_is_alive_and_says_what_is_missing(worker: Worker) -> None:
    worker.engine.unready = EngineUnavailable("loading")
    worker.server.stop()
    assert (await worker.get("/health")).status_code == 200
    unready = await worker.get("/ready")
    assert (unready.status_code, unready.json()["store"], unready.json()["engine"]) == (
        503,
        "unavailable",
        "unavailable",
    )
    found = Scraped((await worker.get("/metrics")).text)
    assert found.value("harmonium_store_up") == 0
    assert found.values("harmonium_store_responses") == []
