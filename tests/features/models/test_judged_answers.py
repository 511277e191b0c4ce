"""An answer of which its server's adapter finds at the end that it is none: it fails, however it is made, and where a
worker dies before that is known, too.
"""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
from openai import AsyncOpenAI, InternalServerError

from service.background.timing import Timing
from service.backoff import Backoff
from service.engine.servers.engine import Access, ServersEngine
from service.process import Settings
from tests.support.engine.standing import standing
from tests.support.service import inside
from tests.support.service.background import changed, ended, reached
from tests.support.service.process import WorkerProcess
from tests.support.vllm.seeing import SeeingStandin
from tests.support.waiting import until

TIMING = Timing(poll_seconds=0.02, engine_away=Backoff(0.01, 0.02), retry_seconds=0.02)
WITHOUT_TEXT = "The engine failed: the vLLM server sent tokens without their text; vLLM does so before 0.32"
SECONDS = 30.0


@pytest.fixture
async def server() -> AsyncIterator[SeeingStandin]:
    """A server whose release nobody knows, and which sends the tokens alone."""
    async with standing(SeeingStandin("A cat."), telling=False) as server:
        yield server


@asynccontextmanager
async def serving(settings: Settings, server: SeeingStandin) -> AsyncIterator[AsyncOpenAI]:
    """A client of a service before the server."""
    engine = ServersEngine(server.kind, Access((server.url,)))
    async with inside.serving(settings, engine, TIMING) as service, service.client() as client:
        yield client


def ask(client: AsyncOpenAI, **how: Any) -> Any:
    return client.responses.create(model="seeing", input="Look", **how)


async def test_tokens_without_their_text_are_no_answer_however_it_is_made(
    settings: Settings, server: SeeingStandin
) -> None:
    async with serving(settings, server) as client:
        with pytest.raises(InternalServerError) as refused:
            await ask(client)
        events = [event async for event in await ask(client, stream=True)]
        made = await ended(client, (await ask(client, background=True)).id)
    assert WITHOUT_TEXT in refused.value.message
    for response in (events[-1].response, made):
        assert (response.status, response.output) == ("failed", [])
        assert response.error.message == WITHOUT_TEXT


async def test_a_worker_that_is_killed_before_that_is_known_leaves_no_whole_answer(
    settings: Settings, server: SeeingStandin, tmp_path: Path
) -> None:
    store = {"redis_url": settings.redis_url, "redis_prefix": settings.redis_prefix}
    quick = {"lease_seconds": 1.0, "store_timeout_seconds": 0.3}
    engine = {"engine": "vllm", "engine_url": server.url}
    server.deciding.clear()
    async with serving(changed(settings, embedded_worker=False), server) as client:
        worker = await asyncio.to_thread(WorkerProcess, tmp_path, **store, **quick, **engine)
        response = await ask(client, background=True)
        await until(lambda: server.undecided, SECONDS, "no worker begins")
        await reached(client, response.id, "in_progress")
        worker.kill()
    server.deciding.set()
    async with serving(settings, server) as client:
        made = await ended(client, response.id)
    assert (made.status, made.output) == ("failed", [])
    assert made.error is not None
    assert made.error.message == WITHOUT_TEXT
