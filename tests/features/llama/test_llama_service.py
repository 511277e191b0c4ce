"""The whole service before a real llama.cpp: what vLLM's flows show, in seconds."""

import json
from collections.abc import AsyncIterator
from typing import Any

import pytest
from openai import AsyncOpenAI

from service.process import Settings
from tests.support.llama.talker import KEY
from tests.support.service.inside import Inside, serving

WEATHER: Any = {
    "type": "function",
    "name": "get_weather",
    "description": "Get the weather",
    "parameters": {"type": "object", "properties": {"city": {"type": "string"}}, "required": ["city"]},
}


@pytest.fixture
async def inside(settings: Settings, llama_url: str) -> AsyncIterator[Inside]:
    key = type(settings.engine_api_key)(KEY)
    update = {"engine": "llama", "engine_url": (llama_url,), "engine_api_key": key}
    async with serving(settings.model_copy(update=update)) as inside:
        yield inside


@pytest.fixture
async def client(inside: Inside) -> AsyncIterator[AsyncOpenAI]:
    async with inside.client() as client:
        yield client


async def ask(client: AsyncOpenAI, said: Any, after: Any = None, **more: Any) -> Any:
    """The response to a text or items, after another response where one is given."""
    previous = after.id if after else None
    return await client.responses.create(
        model="talker", input=said, previous_response_id=previous, temperature=0, **more
    )


async def test_a_conversation_is_held_and_what_it_keeps_is_cached(client: AsyncOpenAI) -> None:
    first = await ask(client, "My name is Anna.")
    assert first.output_text == "Nice to meet you, Anna."
    second = await ask(client, "What is my name?", first)
    assert second.output_text == "Your name is Anna."
    assert [item.type for item in second.output] == ["reasoning", "message"]
    third = await ask(client, "What is my name?", second)
    assert third.usage.input_tokens_details.cached_tokens >= second.usage.input_tokens


async def test_a_function_is_called_and_its_result_is_told(client: AsyncOpenAI) -> None:
    asked = await ask(client, "What is the weather in Paris?", tools=[WEATHER])
    call = asked.output[-1]
    assert (call.type, call.name, json.loads(call.arguments)) == ("function_call", "get_weather", {"city": "Paris"})
    output = {"type": "function_call_output", "call_id": call.call_id, "output": '{"degrees": 21}'}
    told = await ask(client, [output], asked, tools=[WEATHER])
    assert told.output_text == "It is 21 degrees."


async def test_a_required_call_and_a_format_are_held(client: AsyncOpenAI) -> None:
    called = await ask(client, "Hello!", tools=[WEATHER], tool_choice="required")
    assert called.output[-1].type == "function_call"
    schema = {"type": "object", "properties": {"ok": {"type": "boolean"}}, "required": ["ok"]}
    closed = schema | {"additionalProperties": False}
    text = {"format": {"type": "json_schema", "name": "x", "schema": closed, "strict": True}}
    assert json.loads((await ask(client, "Hello!", text=text)).output_text)["ok"] in (True, False)
