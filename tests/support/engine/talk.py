"""The whole service before a server of some kind: what every kind shows over HTTP, by the SDK."""

import asyncio
import json
from collections.abc import AsyncIterator, Callable
from contextlib import AsyncExitStack
from typing import Any, ClassVar

import pytest
from openai import AsyncOpenAI, BadRequestError

from service.engine.demo import DemoEngine
from service.engine.port import Engine, ModelCard
from service.engine.servers.engine import Access, ServersEngine
from service.settings.core import parse_api_keys
from service.settings.settings import Settings
from tests.support.engine.misbehaviour import Instead
from tests.support.engine.scripted import Stall
from tests.support.engine.standing import Standing, standing
from tests.support.service.inside import Inside, opened, scripted, serving
from tests.support.service.process import ACME_KEY, GLOBEX_KEY, MODEL
from tests.support.waiting import until

CARD = ModelCard(MODEL, 0, 4096)
WEATHER: Any = {
    "type": "function",
    "name": "get_weather",
    "parameters": {"type": "object", "properties": {"city": {"type": "string"}}, "required": ["city"]},
}


class ServiceTalk:
    """The tests. Subclasses are named Test…, and say which stand-in, and by which name ENGINE knows its kind."""

    standin: ClassVar[Callable[[Engine], Standing]]
    engine: ClassVar[str]
    path: ClassVar[str]
    """Where a generation is asked for."""
    update: ClassVar[dict[str, Any]] = {}
    """What else the settings have to say."""

    @pytest.fixture
    async def server(self) -> AsyncIterator[Standing]:
        async with standing(self.standin(DemoEngine(CARD)), api_key="sk-engine") as server:
            yield server

    @pytest.fixture
    async def inside(self, settings: Settings, server: Standing) -> AsyncIterator[Inside]:
        async with serving(self.settings(settings, server)) as inside:
            yield inside

    @pytest.fixture
    async def client(self, inside: Inside) -> AsyncIterator[AsyncOpenAI]:
        async with inside.client() as client:
            yield client

    def settings(self, settings: Settings, server: Standing, **more: Any) -> Settings:
        """The settings of a service before it."""
        key = type(settings.engine_api_key)(server.api_key)
        update = {"engine": self.engine, "engine_url": (server.url,), "engine_api_key": key}
        return settings.model_copy(update={**update, **self.update, **more})

    async def test_a_conversation_is_held_and_what_it_keeps_is_cached(self, client: AsyncOpenAI) -> None:
        assert [model.id async for model in client.models.list()] == [MODEL, f"openai/{MODEL}"]
        first = await client.responses.create(model=MODEL, input="My name is Ada.")
        second = await client.responses.create(model=MODEL, input="What is my name?", previous_response_id=first.id)
        assert second.output_text == "Your name is Ada."
        assert [item.type for item in second.output] == ["reasoning", "message"]
        assert first.usage
        assert second.usage
        assert first.usage.input_tokens_details.cached_tokens == 0
        assert 0 < second.usage.input_tokens_details.cached_tokens < second.usage.input_tokens

    async def test_a_function_is_called_and_its_result_is_told(self, client: AsyncOpenAI) -> None:
        said = "What is the weather in Paris?"
        asked = await client.responses.create(model=MODEL, input=said, tools=[WEATHER], tool_choice="required")
        call: Any = asked.output[-1]
        assert (call.type, call.name, json.loads(call.arguments)) == ("function_call", "get_weather", {"city": "Paris"})
        output: Any = {"type": "function_call_output", "call_id": call.call_id, "output": "21 degrees"}
        told = await client.responses.create(
            model=MODEL, input=[output], tools=[WEATHER], previous_response_id=asked.id
        )
        assert "21 degrees" in told.output_text

    async def test_a_format_is_held(self, client: AsyncOpenAI) -> None:
        schema = {"type": "object", "properties": {"ok": {"type": "boolean"}}, "required": ["ok"]}
        closed = schema | {"additionalProperties": False}
        text: Any = {"format": {"type": "json_schema", "name": "x", "schema": closed, "strict": True}}
        answer = await client.responses.create(model=MODEL, input="Hello!", text=text)
        assert json.loads(answer.output_text)["ok"] in (True, False)

    async def test_a_stream_is_what_it_ends_with(self, client: AsyncOpenAI) -> None:
        deltas, ended = "", None
        async for event in await client.responses.create(model=MODEL, input="Count to 30.", stream=True):
            deltas += event.delta if event.type == "response.output_text.delta" else ""
            ended = event
        assert deltas == "\n".join(map(str, range(1, 31)))
        assert ended is not None
        assert ended.type == "response.completed"

    async def test_a_client_that_hangs_up_leaves_nothing_running_on_the_server(self, settings: Settings) -> None:
        async with AsyncExitStack() as stack:
            spoken = scripted([opened("Said so far."), Stall()])
            server = await stack.enter_async_context(standing(self.standin(spoken)))
            inside = await stack.enter_async_context(serving(self.settings(settings, server)))
            client = await stack.enter_async_context(inside.client())
            stream = await client.responses.create(model=MODEL, input="hi", stream=True)
            await anext(aiter(stream))
            await until(lambda: server.running == 1)
            await stream.close()
            await until(lambda: server.running == 0)

    async def test_a_background_response_outlives_its_server(self, settings: Settings) -> None:
        async with standing(self.standin(scripted([opened("Half"), Stall()]))) as server:
            adapter = self.adapter(server)
            async with serving(settings, adapter) as inside, inside.client() as client:
                submitted = await client.responses.create(model=MODEL, input="Count to 9.", background=True)
                await until(lambda: _begun(client, submitted.id), 30)
                await server.die()
                server.engine = DemoEngine(CARD)
                await server.start()
                ended = await until(lambda: client.responses.retrieve(submitted.id), 30, wanted=_ended)
        assert ended.status == "completed"
        assert ended.output_text.startswith("Half")

    def adapter(self, server: Standing) -> ServersEngine:
        """An engine that looks often how its server is."""
        access = Access((server.url,), api_key=server.api_key, probe_seconds=0.05)
        return ServersEngine(server.kind, access, context_tokens=self.update.get("context_tokens", 0))

    async def test_what_the_engine_refuses_is_the_clients_to_know(self, client: AsyncOpenAI, server: Standing) -> None:
        server.instead[self.path] = Instead((b'{"error":"No such thing."}',), 400)
        with pytest.raises(BadRequestError, match=r"No such thing\.") as refused:
            await client.responses.create(model=MODEL, input="hi")
        assert refused.value.code == "engine_refused"

    async def test_many_at_once_do_not_mix(self, client: AsyncOpenAI) -> None:
        answers = await asyncio.gather(
            *(client.responses.create(model=MODEL, input=f"Count to {n}.") for n in range(3, 15))
        )
        assert [answer.output_text.splitlines()[-1] for answer in answers] == [str(n) for n in range(3, 15)]


async def _begun(client: AsyncOpenAI, id: str) -> bool:
    return bool((await client.responses.retrieve(id)).output)


def _ended(response: Any) -> bool:
    return response.status not in ("queued", "in_progress")


async def cached_by_tenants(settings: Settings) -> list[int]:
    """How much of the same prompt was cached when a tenant asks twice, and then another one."""
    keys = parse_api_keys(f"acme:{ACME_KEY},globex:{GLOBEX_KEY}")
    cached: list[int] = []
    async with serving(settings.model_copy(update={"api_keys": keys})) as inside:
        for key in (ACME_KEY, ACME_KEY, GLOBEX_KEY):
            async with inside.client(key) as client:
                usage = (await client.responses.create(model=MODEL, input="hi")).usage
                assert usage
                cached.append(usage.input_tokens_details.cached_tokens)
    return cached
