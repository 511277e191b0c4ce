"""Whatever becomes of a request, its parent is not left pinned: it could not be evicted until the pin ran out."""

import contextlib
from typing import Any

import pytest

from service.engine.port import EngineUnavailable
from service.process import Settings
from service.settings.core import DEFAULT_TENANT
from store.redis.connection import connect
from tests.support.engine.scripted import Die
from tests.support.service.background import changed
from tests.support.service.inside import Inside, answer, scripted, serving
from tests.support.service.process import MODEL

CREATE = "/v1/responses"

REQUESTS: dict[str, tuple[str, dict[str, Any], int]] = {
    "plain": (CREATE, {}, 200),
    "plain, not stored": (CREATE, {"store": False}, 200),
    "a stream": (CREATE, {"stream": True}, 200),
    "a stream, not stored": (CREATE, {"stream": True, "store": False}, 200),
    "in the background": (CREATE, {"background": True}, 200),
    "refused": (CREATE, {"input": [{"type": "nonsense"}]}, 400),
    "a count": ("/v1/responses/input_tokens", {}, 200),
    "a compaction": ("/v1/responses/compact", {}, 200),
}


async def pins(settings: Settings, inside: Inside, id: str) -> int:
    """How many runs hold a response."""
    key = inside.store.keyspace.turn(DEFAULT_TENANT, id).key("pins")
    async with contextlib.aclosing(connect(settings.redis_url)) as redis:
        return int(await redis.zcard(key))


async def asked(inside: Inside, path: str = CREATE, **body: Any) -> Any:
    """The answer to a request, as it came."""
    async with inside.http() as http:
        return await http.post(path, json={"model": MODEL, "input": "Hello", **body})


@pytest.mark.parametrize("name", REQUESTS)
async def test_a_request_that_was_answered_has_released_its_parent(settings: Settings, name: str) -> None:
    path, body, status = REQUESTS[name]
    async with serving(settings, scripted([answer("Yes.")])) as inside:
        parent = (await asked(inside)).json()["id"]
        found = await asked(inside, path, previous_response_id=parent, **body)
        assert (found.status_code, await pins(settings, inside, parent)) == (status, 0), found.text


async def test_a_failure_of_the_engine_releases_the_parent(settings: Settings) -> None:
    engine = scripted([answer("Yes.")], [Die(EngineUnavailable("gone"))])
    async with serving(settings, engine) as inside:
        parent = (await asked(inside)).json()["id"]
        found = await asked(inside, previous_response_id=parent)
        assert (found.status_code, await pins(settings, inside, parent)) == (503, 0), found.text


@pytest.mark.parametrize(("stream", "limit", "status"), [(False, {"max_queued_responses": 1}, 429), (True, {}, 503)])
async def test_a_limit_that_is_reached_releases_the_parent(
    settings: Settings, monkeypatch: pytest.MonkeyPatch, stream: bool, limit: dict[str, int], status: int
) -> None:
    monkeypatch.setattr("service.app.MAX_FOLLOWERS", 0)
    async with serving(changed(settings, embedded_worker=False, **limit), scripted([answer("Yes.")])) as inside:
        parent = (await asked(inside)).json()["id"]
        await asked(inside, background=True)
        found = await asked(inside, previous_response_id=parent, background=True, stream=stream)
        assert (found.status_code, await pins(settings, inside, parent)) == (status, 0), found.text
