"""A history that goes on over Chat Completions, before a real vLLM server with the talker."""

from typing import Any, cast

import httpx
import pytest

from service.engine.servers.engine import Access
from service.engine.vllm.servers import Vllm
from service.process import Settings
from tests.support.service.background import changed
from tests.support.service.inside import serving
from tests.support.vllm.fixtures import TEST_SECONDS
from tests.support.vllm.reuse import Recorder, reuse
from tests.support.vllm.server import MODEL, block_tokens

pytestmark = [pytest.mark.vllm, pytest.mark.timeout(TEST_SECONDS)]

SECONDS = 20.0
TURNS = 20
LEAST_SHARE = 0.99
"""Of whole blocks: a prompt of nothing but these has its last one read again."""

WEATHER: Any = {
    "type": "function",
    "name": "get_weather",
    "description": "Get the weather",
    "parameters": {"type": "object", "properties": {"city": {"type": "string"}}, "required": ["city"]},
}


def numbers(last: int) -> str:
    """The talker's answer when it counts."""
    return "\n".join(map(str, range(1, last + 1)))


QUESTIONS = ("What is the weather in Paris?", "Count to 9.")
ANSWERS = ("It is 21 degrees.", numbers(9))


async def test_a_history_over_chat_completions_finds_all_of_its_prompt_cached(
    settings: Settings, vllm_url: str
) -> None:
    recorder = Recorder(Vllm(), Access((vllm_url,)))
    function = {"type": "function", "function": {key: WEATHER[key] for key in ("name", "description", "parameters")}}
    messages: list[Any] = []
    async with serving(changed(settings, chats="remember"), recorder) as inside, inside.client() as asking:
        for number in range(TURNS):
            messages.append({"role": "user", "content": QUESTIONS[number % 2]})
            while messages[-1]["role"] != "assistant":
                made = await asking.chat.completions.create(
                    model=MODEL, messages=messages, tools=[cast(Any, function)], temperature=0
                )
                said = made.choices[0].message
                messages.append(said.model_dump(include={"role", "content", "tool_calls"}, exclude_none=True))
                outputs = [{"tool_call_id": call.id, "content": '{"temp":21}'} for call in said.tool_calls or []]
                messages += [{"role": "tool", **output} for output in outputs]
    spoken = [message["content"] for message in messages if message["role"] == "assistant" and "content" in message]
    assert spoken == [ANSWERS[number % 2] for number in range(TURNS)]
    async with httpx.AsyncClient(base_url=vllm_url, timeout=SECONDS, trust_env=False) as http:
        cached, most = reuse(recorder.steps, block_tokens((await http.get("/metrics")).text))
    assert cached >= LEAST_SHARE * most > 0
