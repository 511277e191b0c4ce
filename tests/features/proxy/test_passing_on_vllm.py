"""Requests in vLLM's own API, passed on to a real server with the talker."""

import json
from collections.abc import AsyncIterator
from typing import Any

import httpx
import pytest

from service.engine.servers.engine import Access
from service.engine.vllm.servers import Vllm
from service.features.proxy.passing import PassingEngine
from service.process import Settings
from tests.support.service.inside import serving
from tests.support.service.scraped import Scraped
from tests.support.vllm.fixtures import TEST_SECONDS
from tests.support.vllm.server import MODEL

pytestmark = [pytest.mark.vllm, pytest.mark.timeout(TEST_SECONDS)]

HELLO: dict[str, Any] = {
    "model": MODEL,
    "max_tokens": 100,
    "temperature": 0,
    "messages": [{"role": "user", "content": "Hello!"}],
}


@pytest.fixture
async def alone(settings: Settings, vllm_url: str) -> AsyncIterator[httpx.AsyncClient]:
    """A client of a service before the server, for one tenant alone."""
    engine = PassingEngine(Vllm(), Access((vllm_url,)))
    async with serving(settings, engine) as inside, inside.http() as http:
        yield http


async def test_a_chat_completion_is_passed_on_whole_and_as_a_stream(alone: httpx.AsyncClient) -> None:
    whole = (await alone.post("/v1/chat/completions", json=HELLO)).json()
    assert whole["choices"][0]["message"]["content"] == "Hello! How can I help you today?"
    streamed = (await alone.post("/v1/chat/completions", json=HELLO | {"stream": True})).text.splitlines()
    chunks = [json.loads(line.removeprefix("data: ")) for line in streamed if line.startswith("data: {")]
    said = "".join(chunk["choices"][0]["delta"].get("content") or "" for chunk in chunks if chunk["choices"])
    assert said == whole["choices"][0]["message"]["content"]


async def test_a_message_of_anthropics_is_passed_on_whole_and_as_a_stream_and_counted(alone: httpx.AsyncClient) -> None:
    whole = (await alone.post("/v1/messages?beta=true", json=HELLO)).json()
    thought, said = whole["content"]
    assert (thought["type"], said["text"]) == ("thinking", "Hello! How can I help you today?")
    streamed = await alone.post("/v1/messages", json=HELLO | {"stream": True})
    events = [
        json.loads(line.removeprefix("data: ")) for line in streamed.text.splitlines() if line.startswith("data: ")
    ]
    deltas = [event["delta"] for event in events if event["type"] == "content_block_delta"]
    for name in ("thinking", "text"):
        pieces = "".join(delta.get(name, "") for delta in deltas)
        assert pieces == (thought if name == "thinking" else said)[name]
    assert (events[0]["type"], events[-1]["type"]) == ("message_start", "message_stop")
    counted = await alone.post("/v1/messages/count_tokens", json={name: HELLO[name] for name in ("model", "messages")})
    read = ("input_tokens", "cache_read_input_tokens", "cache_creation_input_tokens")
    assert counted.json()["input_tokens"] == sum(whole["usage"].get(name) or 0 for name in read)
    metrics = (await alone.get("/metrics")).text
    assert Scraped(metrics).value("harmonium_output_tokens_total") == 2 * whole["usage"]["output_tokens"]
