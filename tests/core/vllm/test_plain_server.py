"""A real vLLM server without extras, which is too small and dies: over `/v1/completions`, and over the other endpoint.

The server is the module's own. A test says which kind it needs, and it is started again only where it is another kind
or dead: in the order below that is once.
"""

import asyncio
import time
from collections.abc import AsyncGenerator, AsyncIterator, Callable
from contextlib import asynccontextmanager

import pytest

from service.engine.servers.engine import Access, ServersEngine
from service.engine.vllm.servers import TokensEndpoint, Vllm
from service.process import Settings
from tests.support.engine.watched import WatchedHttp
from tests.support.service.inside import Inside, serving
from tests.support.service.streams import Event, parsed
from tests.support.vllm.server import MODEL, VllmProcess
from tests.support.vllm.talker import TalkerConformance

pytestmark = [pytest.mark.vllm, pytest.mark.full]

MOST = 12
"""How many generations the server takes at once; the conformance suite has eight of them."""

SMALL = ("--max-num-queued-reqs", str(MOST))
ARGUMENTS = {TokensEndpoint.COMPLETIONS: (*SMALL, "--no-enable-scale-out"), TokensEndpoint.GENERATE: SMALL}

UNREADY_SECONDS = 10.0
"""How long a service may take to notice that its server is away: two probes."""


HELLO = {"model": MODEL, "input": "Hello!", "temperature": 0}

UNDER_WAY = '"delta":"20"'
"""What a stream that counts says when it is well under way."""


Serve = Callable[[TokensEndpoint], VllmProcess]


@pytest.fixture
def serve(mortal: VllmProcess) -> Serve:
    """Makes the module's server one that has this endpoint."""

    def made(endpoint: TokensEndpoint) -> VllmProcess:
        if mortal.arguments != ARGUMENTS[endpoint]:
            mortal.stop()
            mortal.start(*ARGUMENTS[endpoint])
        return mortal

    return made


@asynccontextmanager
async def harmonium(settings: Settings, server: VllmProcess) -> AsyncIterator[Inside]:
    """The whole service before a server."""
    async with serving(settings, ServersEngine(Vllm(), Access((server.url,)))) as inside:
        yield inside


class TestConformanceOverCompletions(TalkerConformance):
    @pytest.fixture
    async def engine(self, serve: Serve) -> AsyncGenerator[WatchedHttp, None]:
        engine = WatchedHttp(Vllm(), Access((serve(TokensEndpoint.COMPLETIONS).url,)))
        await engine.start()
        yield engine
        await engine.close()


async def broken_off(inside: Inside, kill: Callable[[], None]) -> list[Event]:
    """The events of a stream in whose midst the server is killed."""
    request = {"model": MODEL, "input": "Count to 300.", "temperature": 0, "stream": True}
    body = ""
    async with inside.http() as http, http.stream("POST", "/v1/responses", json=request) as answer:
        async for text in answer.aiter_text():
            if UNDER_WAY in text + body and UNDER_WAY not in body:
                kill()
            body += text
    return parsed(body)


async def assert_failed_cleanly(inside: Inside, events: list[Event]) -> None:
    """The stream told what was said and that it failed, and so does the store."""
    assert [event["type"] for event in events[-2:]] == ["error", "response.failed"]
    failed = events[-1]["response"]
    assert failed["error"]["message"].startswith("The engine failed: ")
    said = failed["output"][-1]
    assert said["content"][0]["text"].startswith("1\n2\n3\n")
    assert (said["type"], said["status"]) == ("message", "incomplete")
    async with inside.http() as http:
        assert (await http.get(f"/v1/responses/{failed['id']}")).json() == failed


async def becomes_unready(inside: Inside) -> None:
    """Wait until the service says that its engine is away."""
    deadline = time.monotonic() + UNREADY_SECONDS
    async with inside.http() as http:
        while (answer := await http.get("/ready")).status_code == 200:
            assert time.monotonic() < deadline, "it is ready without a server"
        assert (answer.json()["store"], answer.json()["engine"]) == ("ok", "unavailable")
        plain = await http.post("/v1/responses", json=HELLO)
        assert (plain.status_code, plain.headers["retry-after"]) == (503, "1")


async def test_a_server_that_dies_and_comes_back_as_another_is_survived(settings: Settings, serve: Serve) -> None:
    server = serve(TokensEndpoint.COMPLETIONS)
    async with harmonium(settings, server) as inside, inside.client() as client:
        before = await client.responses.create(model=MODEL, input="My name is Alice.", temperature=0)
        await assert_failed_cleanly(inside, await broken_off(inside, server.kill))
        await becomes_unready(inside)
        server.launch(*ARGUMENTS[TokensEndpoint.GENERATE])
        await asyncio.to_thread(server.wait_until_healthy)
        after = await client.responses.create(
            model=MODEL, input="What is my name?", previous_response_id=before.id, temperature=0
        )
    assert after.output_text == "Your name is Alice."


async def test_a_server_that_loses_its_engine_core_fails_streams_cleanly(settings: Settings, serve: Serve) -> None:
    server = serve(TokensEndpoint.GENERATE)
    async with harmonium(settings, server) as inside:
        await assert_failed_cleanly(inside, await broken_off(inside, server.kill_core))
        await becomes_unready(inside)
        await asyncio.to_thread(server.wait)
