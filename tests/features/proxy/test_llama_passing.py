"""Chat Completions through the service to a real llama.cpp server."""

import asyncio
from collections.abc import AsyncIterator
from typing import Any

import httpx
import pytest

from service.process import Settings
from service.settings.core import ApiKey
from tests.support.llama.talker import KEY
from tests.support.service.inside import Inside, serving
from tests.support.waiting import until

SLOT_SECONDS = 30.0
"""How long a slot may take to be free, on a busy machine."""


def before(settings: Settings, url: str, **more: Any) -> Settings:
    """The settings of a service before a llama.cpp server."""
    key = type(settings.engine_api_key)(KEY)
    return settings.model_copy(update={"engine": "llama", "engine_url": (url,), "engine_api_key": key, **more})


@pytest.fixture
async def inside(settings: Settings, llama_url: str) -> AsyncIterator[Inside]:
    async with serving(before(settings, llama_url)) as inside:
        yield inside


async def chat(inside: Inside, said: str, key: str = "none", **more: Any) -> Any:
    """A chat completion, or a stream of one."""
    message: Any = {"role": "user", "content": said}
    async with inside.client(key) as client:
        return await client.chat.completions.create(model="talker", messages=[message], temperature=0, **more)


async def busy(url: str) -> int:
    """How many slots of a llama.cpp server are at work."""
    async with httpx.AsyncClient(headers={"authorization": f"Bearer {KEY}"}) as http:
        return sum(slot["is_processing"] for slot in (await http.get(f"{url}/slots")).json())


WEATHER = {
    "type": "function",
    "function": {
        "name": "get_weather",
        "description": "Get the weather",
        "parameters": {"type": "object", "properties": {"city": {"type": "string"}}, "required": ["city"]},
    },
}
ASKED: dict[str, tuple[str, dict[str, Any]]] = {
    "chat": ("chat/completions", {"messages": [{"role": "user", "content": "Hello!"}]}),
    "probabilities": ("completions", {"prompt": "Hello", "logprobs": 1}),
    "calls": (
        "chat/completions",
        {
            "messages": [{"role": "user", "content": "Paris?"}],
            "tools": [WEATHER],
            "tool_choice": "required",
            "parallel_tool_calls": False,
        },
    ),
}


@pytest.mark.parametrize("case", ASKED)
async def test_an_answer_is_llama_cpps_own(inside: Inside, llama_url: str, case: str) -> None:
    path, members = ASKED[case]
    body = {"model": "talker", "temperature": 0, "max_tokens": 40, **members}
    async with httpx.AsyncClient(headers={"authorization": f"Bearer {KEY}"}, timeout=60) as http:
        own = (await http.post(f"{llama_url}/v1/{path}", json=body)).json()
        passed = (await http.post(f"{inside.url}/v1/{path}", json=body)).json()
    for answer in (own, passed):
        for name in ("id", "created", "timings"):
            answer.pop(name)
        answer["usage"].pop("prompt_tokens_details")
        for choice in answer["choices"]:
            for call in choice.get("message", {}).get("tool_calls", ()):
                call.pop("id")
    assert passed == own


@pytest.mark.parametrize("stream", [False, True])
async def test_a_client_that_hangs_up_frees_its_slot(inside: Inside, llama_url: str, stream: bool) -> None:
    asked = asyncio.ensure_future(_begun(inside, stream))
    await until(lambda: busy(llama_url), SLOT_SECONDS)
    asked.cancel()
    await asyncio.wait([asked])
    await until(lambda: busy(llama_url), SLOT_SECONDS, wanted=lambda count: count == 0)


async def _begun(inside: Inside, stream: bool) -> None:
    async with inside.client() as client:
        message: Any = {"role": "user", "content": "Count to 300."}
        more: Any = {"stream": stream, "max_tokens": 3000, "extra_body": {"ignore_eos": True}}
        answer: Any = await client.chat.completions.create(model="talker", messages=[message], **more)
        assert stream
        async for _ in answer:
            pass


async def test_tenants_have_no_cached_prompt_in_common(settings: Settings, llama_url: str) -> None:
    secret = type(settings.engine_api_key)
    keys = (ApiKey("a", secret("key-a-0123456789")), ApiKey("b", secret("key-b-0123456789")))
    async with serving(before(settings, llama_url, api_keys=keys)) as inside:
        for key in keys * 2:
            more = {"max_tokens": 3, "extra_body": {"cache_prompt": True}}
            answer = await chat(inside, "What is my name, if I may ask?", key.key.get_secret_value(), **more)
            assert answer.usage.prompt_tokens_details.cached_tokens == 0
