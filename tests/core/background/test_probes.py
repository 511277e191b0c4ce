"""What a worker answers over HTTP: whether it is alive and ready, and what it counts; nothing of the API."""

from pathlib import Path

import httpx

from service.app import create_probe_app
from service.background.tasks import Background
from service.engine.port import EngineUnavailable
from service.process import close_service, load_settings, open_service
from store.embedded import EmbeddedServer
from tests.support.service.inside import answer, scripted
from tests.support.service.scraped import Scraped


async def test_a_worker_says_that_it_is_alive_whether_it_is_ready_and_what_it_counted(tmp_path: Path) -> None:
    engine = scripted(answer("hi"))
    with EmbeddedServer(tmp_path / "redis") as server:
        service = open_service(load_settings(redis_url=server.url, store_timeout_seconds=3.0), engine)
        app = httpx.ASGITransport(create_probe_app(service, Background(service, works=True)))
        async with httpx.AsyncClient(transport=app, base_url="http://localhost") as http:
            assert (await http.get("/health")).json() == {"status": "ok"}
            assert (await http.get("/ready")).json() == {"status": "ok", "store": "ok", "engine": "ok", "worker": "ok"}
            service.metrics.jobs_claimed.inc(3)
            found = Scraped((await http.get("/metrics")).text)
            assert found.value("harmonium_jobs_claimed_total") == 3
            assert found.value("harmonium_store_up") == 1
            assert found.value("harmonium_store_responses", shard="0") == 0

            engine.unready = EngineUnavailable("loading")
            server.stop()
            assert (await http.get("/health")).status_code == 200
            unready = await http.get("/ready")
            missing = {"store": "unavailable", "engine": "unavailable"}
            assert (unready.status_code, unready.json() | missing) == (503, unready.json())
            found = Scraped((await http.get("/metrics")).text)
            assert found.value("harmonium_store_up") == 0
            assert found.values("harmonium_store_responses") == []
        await close_service(service)
