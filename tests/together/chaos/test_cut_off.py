"""Calls that may have an effect, of requests with an Idempotency-Key whose API loses the store amid one and comes back:
whoever asks again has it made once, or is told that nobody knows.
"""

import asyncio
import json
import uuid
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from typing import Any

import openai
import pytest
from redis.asyncio import Redis

from service import app
from service.process import Settings, load_settings
from service.responses.service import Service
from service.web import idempotency
from store.errors import StoreUnavailable
from store.redis import scripts
from tests.support.chaos.deaths import TOKENS_PER_SECOND
from tests.support.chaos.inside import WatchedEngine
from tests.support.chaos.storm import STEADY
from tests.support.chaos.watched import watched
from tests.support.service.inside import serving
from tests.support.tools.server import McpServer, mcp_server
from tests.together.chaos.scenarios.keyed import asked_for, call_of

pytestmark = pytest.mark.timeout(180)

KEYED_SECONDS = 90.0
"""For how long the owner of a request may be silent: more than a busy machine pauses, as one that lost its own request
meanwhile makes no call.
"""


async def pass_over(settings: Settings) -> None:
    """Make these seconds pass for all that is known of keyed requests."""
    async with Redis.from_url(settings.redis_url) as redis:
        keys = [key async for key in redis.scan_iter(f"{settings.redis_prefix}:*:keyed:*")]
        assert keys
        for key in keys:
            for digits, record in (await redis.hgetall(key)).items():
                await redis.hset(key, digits, json.dumps(json.loads(record) | {"lease": 0}))


class CutOff:
    """An API that loses the store at a step, until it is let go on."""

    def __init__(self, step: str) -> None:
        self._step = step
        self._lost = False
        self.there = asyncio.Event()
        self.go_on = asyncio.Event()

    async def at(self, step: str) -> None:
        if step == self._step:
            self._lost = True
            self.there.set()
            await self.go_on.wait()
            self._lost = False

    def around(self, service: Service) -> Service:
        """A service that is cut off at the step."""
        server = watched(service, self.at).store.server
        run = server.run

        async def running(work: Any, *given: Any, **more: Any) -> Any:
            if self._lost and work is scripts.keep_keyed:
                raise StoreUnavailable("it is away")
            return await run(work, *given, **more)

        server.run = running
        return service


@asynccontextmanager
async def cut_off(settings: Settings, step: str, monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[tuple[Any, CutOff]]:
    """A client of an API that will be cut off, and tells the store when it has to be taken for dead."""
    cut, open_service = CutOff(step), app.open_service
    with monkeypatch.context() as patch:
        patch.setattr(app, "open_service", lambda *given: cut.around(open_service(*given)))
        patch.setattr(idempotency, "KEYED_LEASES", KEYED_SECONDS / settings.lease_seconds)
        async with serving(settings, WatchedEngine(TOKENS_PER_SECOND)) as inside, inside.client() as client:
            yield client, cut


@pytest.fixture(scope="module")
def mcp(tmp_path_factory: pytest.TempPathFactory) -> Iterator[McpServer]:
    with mcp_server(tmp_path_factory.mktemp("mcp")) as server:
        server.let_go()
        yield server


def part(redis_url: str, mcp: McpServer, **more: Any) -> Settings:
    """Settings over an empty part of the store."""
    prefix = f"test-{uuid.uuid4().hex}"
    return load_settings(redis_url=redis_url, redis_prefix=prefix, embedded_worker=False, mcp_allow=mcp.url, **more)


@pytest.mark.parametrize(("step", "asks"), [("beginning a call", False), ("using up", True), ("used up", True)])
async def test_an_api_that_lost_the_store_makes_no_call_that_another_one_has_made(
    redis_url: str, mcp: McpServer, monkeypatch: pytest.MonkeyPatch, step: str, asks: bool
) -> None:
    settings, name = part(redis_url, mcp, **STEADY), step.replace(" ", "-")
    async with (
        serving(settings, WatchedEngine(TOKENS_PER_SECOND)) as inside,
        inside.client() as client,
        cut_off(settings, step, monkeypatch) as (lost, cut),
    ):
        asked = await asked_for(client, mcp, name, asks=asks)
        first = asyncio.create_task(asked.at(lost))
        await cut.there.wait()
        await pass_over(settings)
        again = await asked.at(client)
        cut.go_on.set()
        with pytest.raises(openai.InternalServerError):
            await first
    assert again.status == "completed"
    assert mcp.began("send_mail", name) == 1
    assert ("not known" in str(call_of(again).error)) is (step == "used up")
