"""A service that is killed in the middle of a stream leaves no work on the server."""

import asyncio
import json
from collections.abc import Callable

import httpx

from tests.support.engine.chatting import FOR_EVER
from tests.support.engine.connected import scripted
from tests.support.engine.standin import standing_in
from tests.support.service.process import ServiceProcess
from tests.support.waiting import until
from tests.web.passing.conftest import ENGINE_KEY

STREAMS = 3


async def test_a_kill_amid_streams_leaves_no_work_on_the_server(start: Callable[..., ServiceProcess]) -> None:
    async with standing_in(scripted(), api_key=ENGINE_KEY) as server:
        settings = {"engine": "vllm", "engine_url": server.url, "engine_api_key": ENGINE_KEY}
        service = await asyncio.to_thread(start, **settings)
        async with httpx.AsyncClient(base_url=service.url) as http:
            asked = [asyncio.create_task(_stream(http, stream)) for stream in (True, True, False)]
            await until(lambda: server.running == STREAMS)
            await asyncio.to_thread(service.kill)
            await until(lambda: server.running == 0)
            broken = await asyncio.gather(*asked, return_exceptions=True)
        assert all(isinstance(each, httpx.HTTPError) for each in broken)


async def _stream(http: httpx.AsyncClient, stream: bool) -> None:
    """Read a chat completion to its end."""
    body = {"model": "talker", "messages": [{"role": "user", "content": FOR_EVER}], "stream": stream}
    async with http.stream("POST", "/v1/chat/completions", content=json.dumps(body), headers=JSON) as answer:
        async for _ in answer.aiter_bytes():
            pass


JSON = {"content-type": "application/json"}
