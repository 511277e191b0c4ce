"""SmolLM2-135M on a real llama.cpp, asked by Chat Completions: its server makes the prompts and reads the model."""

from collections.abc import AsyncIterator, Iterator
from typing import Any

import pytest
from openai import AsyncOpenAI, BadRequestError

from service.engine.chat.servers import ByChat, LlamaByChat
from service.engine.servers.engine import Access, ServersEngine
from service.settings.settings import Settings
from tests.support.llama.smol import smol_server
from tests.support.llama.talker import KEY, LlamaProcess
from tests.support.oracles.event_grammar import check_stream
from tests.support.service.inside import serving


@pytest.fixture(scope="module")
def server() -> Iterator[LlamaProcess]:
    server = smol_server()
    yield server
    server.kill()


@pytest.fixture(params=[ByChat, LlamaByChat])
async def client(
    settings: Settings, server: LlamaProcess, request: pytest.FixtureRequest
) -> AsyncIterator[AsyncOpenAI]:
    engine = ServersEngine(request.param(shared=False), Access((server.url,), api_key=KEY))
    async with serving(settings, engine) as inside, inside.client() as client:
        yield client


async def ask(client: AsyncOpenAI, said: Any, after: Any = None, **more: Any) -> Any:
    previous = after.id if after else None
    options = {"temperature": 0, "max_output_tokens": 60} | more
    return await client.responses.create(model="smol", input=said, previous_response_id=previous, **options)


async def test_two_turns_are_answered_and_counted_as_the_server_counts_them(client: AsyncOpenAI) -> None:
    first = await ask(client, "What is the capital of France?", instructions="")
    assert "Paris" in first.output_text
    assert 20 < first.usage.input_tokens < 60
    second = await ask(client, "And of Italy?", first, instructions="")
    assert "Rome" in second.output_text
    assert second.usage.input_tokens > first.usage.input_tokens + first.usage.output_tokens
    assert second.usage.input_tokens_details.cached_tokens > 0


async def test_a_stream_says_what_comes_as_it_comes(client: AsyncOpenAI) -> None:
    stream = await ask(client, "Tell me a story of a fox.", stream=True)
    response = check_stream([event.to_dict() async for event in stream])
    assert (response["status"], response["incomplete_details"]) == ("incomplete", {"reason": "max_output_tokens"})
    assert response["usage"]["output_tokens"] == 60


async def test_log_probabilities_are_those_of_its_tokens(client: AsyncOpenAI) -> None:
    told = await ask(client, "Say hi", include=["message.output_text.logprobs"], top_logprobs=2, max_output_tokens=16)
    shown = told.output[0].content[0].logprobs
    assert "".join(each.token for each in shown) == told.output_text
    assert all(len(each.top_logprobs) == 2 for each in shown)


async def test_what_is_too_long_is_refused(client: AsyncOpenAI) -> None:
    with pytest.raises(BadRequestError, match="context"):
        await ask(client, "long " * 5000)
