"""A store that is away when an answer ends: the answer waits for it, and is never begun where that is known before."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import httpx
import pytest

from service.harmony.tokens import RETURN
from service.process import Settings
from tests.core.web.test_health import stopped
from tests.support.engine.scripted import ScriptedEngine, Stall
from tests.support.service.inside import opened, scripted, serving
from tests.support.service.process import MODEL
from tests.support.service.streams import parsed
from tests.support.store.servers import PLAIN, Process, server
from tests.support.waiting import until

OUTAGE_SECONDS = 3.0
"""Several times the store's time limit here, and less than an answer waits."""

REQUEST = {"model": MODEL, "input": "hi"}


class Served:
    """A service whose engine says a word, and the rest once it may; and its Redis."""

    def __init__(self, redis: Process, http: httpx.AsyncClient, engine: ScriptedEngine, rest: asyncio.Event) -> None:
        self.redis = redis
        self.http = http
        self.engine = engine
        self.rest = rest

    async def begun(self, *bodies: dict[str, object]) -> list[asyncio.Task[httpx.Response]]:
        """Requests that the engine works on."""
        posts = [asyncio.create_task(self.http.post("/v1/responses", json={**REQUEST, **body})) for body in bodies]
        await until(lambda: self.engine.running == len(posts))
        return posts


@pytest.fixture
async def served(tmp_path: Path, settings: Settings) -> AsyncIterator[Served]:
    """A service with a Redis that a test may stop."""
    async with _served(tmp_path, settings) as made:
        yield made


@asynccontextmanager
async def _served(folder: Path, settings: Settings, **others: float) -> AsyncIterator[Served]:
    rest = asyncio.Event()
    engine = scripted([opened("Hello"), Stall(rest), [RETURN]])
    with server(folder, *PLAIN) as redis:
        url = f"redis://{redis.address}"
        update = {"redis_url": url, "store_timeout_seconds": 0.8, "lease_seconds": 3.0, "keepalive_seconds": 0.2}
        update |= others
        async with serving(settings.model_copy(update=update), engine) as inside, inside.http() as http:
            yield Served(redis, http, engine, rest)


async def test_an_answer_that_ends_while_the_store_is_away_waits_for_it_and_is_kept(served: Served) -> None:
    posts = await served.begun({}, {"stream": True})
    with stopped(served.redis.process.pid):
        served.rest.set()
        await asyncio.sleep(OUTAGE_SECONDS)
    plain, stream = await asyncio.gather(*posts)
    assert stream.text.count("event: keepalive") > 2
    for response in (plain.json(), parsed(stream.text)[-1]["response"]):
        assert response["status"] == "completed"
        found = await served.http.get(f"/v1/responses/{response['id']}")
        assert found.json()["status"] == "completed"
        again = {**REQUEST, "previous_response_id": response["id"]}
        assert (await served.http.post("/v1/responses", json=again)).status_code == 200


async def test_an_answer_that_waited_in_vain_is_shown_and_marked_and_not_stored_afterwards(
    tmp_path: Path, settings: Settings, caplog: pytest.LogCaptureFixture
) -> None:
    async with _served(tmp_path, settings, store_patience_seconds=0.5) as served:
        await waited_in_vain(served)
    failed = [each for each in caplog.records if each.__dict__.get("fields", {}).get("response_status") == "failed"]
    assert [(each.getMessage(), each.levelname) for each in failed] == [("request", "WARNING")] * 2


async def waited_in_vain(served: Served) -> None:
    """Two answers that are told as failed; neither is there once Redis goes on with what it was sent."""
    posts = await served.begun({}, {"stream": True})
    with stopped(served.redis.process.pid):
        served.rest.set()
        plain, stream = await asyncio.gather(*posts)
    events = parsed(stream.text)
    assert [event["type"] for event in events[-2:]] == ["error", "response.failed"]
    for response in (plain.json(), events[-1]["response"]):
        assert response["status"] == "failed"
        assert "could not be stored in time" in response["error"]["message"]
        assert response["output"][-1]["content"][0]["text"] == "Hello"
        assert response["usage"]["output_tokens"] > 0
        assert (await served.http.get(f"/v1/responses/{response['id']}")).status_code == 404


async def test_nothing_is_sampled_for_a_store_that_is_known_to_be_away(served: Served) -> None:
    served.rest.set()
    with stopped(served.redis.process.pid):
        assert (await served.http.get("/ready")).status_code == 503
        refusal = await served.http.post("/v1/responses", json=REQUEST)
        assert (refusal.status_code, refusal.json()["error"]["code"]) == (503, "service_unavailable")
        assert served.engine.generations == []
        unstored = await served.http.post("/v1/responses", json={**REQUEST, "store": False})
        assert unstored.json()["status"] == "completed"
    assert (await served.http.post("/v1/responses", json=REQUEST)).json()["status"] == "completed"
