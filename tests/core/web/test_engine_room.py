"""Room at the engine's servers, over HTTP: who is told to come back when, and what becomes of background responses."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import pytest

from service.background.timing import Timing
from service.backoff import Backoff
from service.engine.port import ModelCard
from service.engine.servers.engine import WAIT_SECONDS
from service.harmony.tokens import RETURN
from service.process import Settings
from tests.support.engine.scripted import ScriptedEngine, Stall
from tests.support.engine.standin import Standin, standing_in
from tests.support.service.background import ended, submitted
from tests.support.service.inside import Inside, opened, serving
from tests.support.service.process import MODEL
from tests.support.waiting import until

TIMING = Timing(poll_seconds=0.05, engine_away=Backoff(0.01, 0.05))
SMALL = 1000
"""Room for one prompt, and for no other beside it."""


@asynccontextmanager
async def with_room(
    settings: Settings, go_on: asyncio.Event, *, wait_seconds: float = WAIT_SECONDS, **changes: Any
) -> AsyncIterator[tuple[Inside, Standin]]:
    """A service before a server with room for one generation, of which the first stalls."""
    engine = ScriptedEngine(ModelCard(MODEL, 0, 131_072), [opened("Hello"), Stall(go_on), [RETURN]])
    async with standing_in(engine, room=SMALL) as server:
        update = {"engine": "vllm", "engine_url": (server.url,), "model": MODEL, "default_output_tokens": 900} | changes
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr("service.process.WAIT_SECONDS", wait_seconds)
            async with serving(settings.model_copy(update=update), timing=TIMING) as inside:
                yield inside, server


async def test_a_request_without_room_is_a_503_that_says_when(settings: Settings) -> None:
    go_on = asyncio.Event()
    async with with_room(settings, go_on, wait_seconds=0.1) as (inside, server), inside.http() as http:
        first = asyncio.create_task(http.post("/v1/responses", json={"model": MODEL, "input": "Hi"}))
        await until(lambda: server.generations)
        refused = await http.post("/v1/responses", json={"model": MODEL, "input": "Hi"})
        go_on.set()
        assert (await first).status_code == 200
        assert (await http.post("/v1/responses", json={"model": MODEL, "input": "Hi"})).status_code == 200
    assert (refused.status_code, refused.json()["error"]["code"]) == (503, "engine_error")
    assert "no vLLM server has room for the prompt" in refused.json()["error"]["message"]
    assert 1 <= int(refused.headers["retry-after"]) <= 60


async def test_a_background_response_waits_in_its_queue_until_there_is_room(settings: Settings) -> None:
    go_on = asyncio.Event()
    async with with_room(settings, go_on, wait_seconds=0.05) as (inside, server), inside.client() as client:
        async with inside.http() as http:
            first = asyncio.create_task(http.post("/v1/responses", json={"model": MODEL, "input": "Hi"}))
            await until(lambda: server.generations)
            waiting = await submitted(client)

            async def pauses() -> str:
                return (await http.get("/metrics")).text

            await until(pauses, wanted=lambda text: "harmonium_engine_pauses_total 0.0" not in text)
            assert len(server.generations) == 1
            go_on.set()
            assert (await first).status_code == 200
        assert (await ended(client, waiting.id)).status == "completed"
