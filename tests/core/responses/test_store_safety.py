"""Replicas that lag: a response that is there is told as it is, and says that it isn't safe; no other one is begun."""

from collections.abc import AsyncIterator
from functools import partial
from pathlib import Path

import httpx
import pytest

from service.process import Settings
from store.redis.confirm import Safety
from tests.core.web.test_health import stopped
from tests.support.service.inside import answer, scripted, serving
from tests.support.service.process import MODEL
from tests.support.service.streams import parsed
from tests.support.store.servers import PLAIN, in_step, server
from tests.support.store.servers import until as wait
from tests.support.waiting import until

REQUEST = {"model": MODEL, "input": "hi"}


class Safe:
    """A service that waits for a replica, which a test may stop."""

    def __init__(self, http: httpx.AsyncClient, replica_pid: int) -> None:
        self.http = http
        self.replica_pid = replica_pid

    async def post(self, **body: object) -> httpx.Response:
        return await self.http.post("/v1/responses", json={**REQUEST, **body})

    async def status(self, id: str) -> str:
        return (await self.http.get(f"/v1/responses/{id}")).json()["status"]


@pytest.fixture
async def safe(
    request: pytest.FixtureRequest, tmp_path: Path, settings: Settings, monkeypatch: pytest.MonkeyPatch
) -> AsyncIterator[Safe]:
    monkeypatch.setattr("service.process.Safety", partial(Safety, seconds=getattr(request, "param", 0.3)))
    with server(tmp_path, *PLAIN) as primary, server(tmp_path, *PLAIN) as replica:
        replica.ask("REPLICAOF", "127.0.0.1", primary.port)
        wait(lambda: in_step(replica), "the replica did not follow")
        update = {"redis_url": f"redis://{primary.address}", "store_replicas": 1}
        own = settings.model_copy(update=update | {"store_patience_seconds": 0.5})
        async with serving(own, scripted([answer("Hello.")])) as inside, inside.http() as http:
            yield Safe(http, replica.process.pid)


@pytest.mark.parametrize("safe", [10.0], indirect=True)
async def test_what_is_safe_says_nothing_of_it(safe: Safe) -> None:
    plain = (await safe.post()).json()
    assert (plain["status"], "durability" in plain) == ("completed", False)
    assert "durability" not in (await safe.post(stream=True)).text
    background = (await safe.post(background=True, stream=True)).text
    assert parsed(background)[-1]["type"] == "response.completed"
    assert (await safe.http.get("/ready")).json()["store"] == "ok"


@pytest.mark.parametrize("kind", ["plain", "stream", "background"])
async def test_a_response_that_replicas_lack_is_told_as_it_is_there_and_says_so(safe: Safe, kind: str) -> None:
    with stopped(safe.replica_pid):
        if kind == "stream":
            events = parsed((await safe.post(stream=True)).text)
            assert events[-1]["type"] == "response.completed"
            told = events[-1]["response"]
        else:
            told = (await safe.post(background=kind == "background")).json()
            assert told["status"] == ("queued" if kind == "background" else "completed")
        assert told["durability"] == "unconfirmed"
        await until(lambda: safe.status(told["id"]), wanted=lambda status: status == "completed")
        refusal = await safe.post(background=kind == "background")
        assert (refusal.status_code, refusal.json()["error"]["code"]) == (503, "service_unavailable")
        assert "replicas or its disk lag behind" in refusal.json()["error"]["message"]
        assert (await safe.http.get("/ready")).json()["store"] == "unconfirmed"
    await until(lambda: safe.http.get("/ready"), wanted=lambda ready: ready.json()["store"] == "ok")
    assert (await safe.post(previous_response_id=told["id"])).json()["status"] == "completed"
