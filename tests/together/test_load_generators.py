"""The bodies that others' load generators send, one of each, replayed without the tools: each is answered, tells its
usage, and has as many tokens as the tool asked for.

Sources: AIPerf 0.13.0 (endpoints/openai_responses.py), guidellm 0.8.1 (backends/openai/request_handlers.py), `vllm
bench serve` of 0.32 (benchmarks/lib/endpoint_request_func.py), genai-perf 0.0.16.
"""

import json
from typing import Any

import openai
import pytest

from service.process import Settings
from tests.support.service.inside import serving
from tests.support.service.process import MODEL
from tests.support.service.streams import sent

RESPONSES, CHAT = "/v1/responses", "/v1/chat/completions"
LENGTH = 300
"""More tokens than an answer of the tests' engine has."""

ITEM: dict[str, Any] = {"type": "message", "role": "user", "content": [{"type": "input_text", "text": "Hello."}]}
SAID: list[dict[str, Any]] = [{"role": "user", "content": "Hello."}]
USAGE = {"include_usage": True}
BOTH = {"include_usage": True, "continuous_usage_stats": True}
EXACTLY = {"stop": None, "ignore_eos": True}

BODIES: dict[str, tuple[str, dict[str, Any], bool]] = {
    "AIPerf": (
        RESPONSES,
        {"input": [ITEM], "max_output_tokens": LENGTH, "store": True, "stream_options": USAGE},
        False,
    ),
    "AIPerf, exactly": (
        RESPONSES,
        {"input": [ITEM], "max_output_tokens": LENGTH, "stream_options": USAGE, "min_tokens": LENGTH},
        True,
    ),
    "guidellm": (RESPONSES, {"input": [ITEM], "max_output_tokens": LENGTH, **EXACTLY}, True),
    "guidellm's chats": (
        CHAT,
        {"messages": SAID, "max_completion_tokens": LENGTH, "stream_options": BOTH, **EXACTLY},
        True,
    ),
    "vllm bench": (
        RESPONSES,
        {"input": "Hello.", "max_output_tokens": LENGTH, "store": False, "ignore_eos": True, "temperature": 0.0},
        True,
    ),
    "vllm bench's chats": (
        CHAT,
        {"messages": SAID, "max_completion_tokens": LENGTH, "stream_options": USAGE, "ignore_eos": True},
        True,
    ),
    "genai-perf": (
        CHAT,
        {"messages": SAID, "max_tokens": LENGTH, "min_tokens": LENGTH, "ignore_eos": True, "stream_options": USAGE},
        True,
    ),
}
"""Each with its path, and whether the answer has LENGTH tokens."""


@pytest.mark.parametrize("name", BODIES)
async def test_a_load_generator_s_body_is_answered_at_the_length_that_it_asks_for(
    settings: Settings, name: str
) -> None:
    path, body, exactly = BODIES[name]
    async with serving(settings.model_copy(update={"chats": "remember"})) as inside, inside.http() as http:
        answer = await http.post(path, json={"model": MODEL, "stream": True, **body})
    assert answer.status_code == 200, answer.text
    if path == RESPONSES:
        told = sent(answer.text)[-1]["response"]["usage"]["output_tokens"]
    else:
        *_, last, done = answer.text.strip().split("\n\n")
        assert done == "data: [DONE]"
        told = json.loads(last.removeprefix("data: "))["usage"]["completion_tokens"]
    assert (told == LENGTH) is exactly
    assert told > 0


async def test_a_chained_session_goes_on_at_its_length(settings: Settings) -> None:
    async with serving(settings) as inside, inside.client() as client:
        before: str | None = None
        for _ in range(3):
            response = await client.responses.create(
                model=MODEL,
                input="Go on.",
                previous_response_id=before,
                max_output_tokens=LENGTH,
                extra_body={"ignore_eos": True},
            )
            assert response.usage is not None
            assert (response.status, response.usage.output_tokens) == ("incomplete", LENGTH)
            before = response.id


async def test_a_least_length_beyond_the_limit_is_refused(settings: Settings) -> None:
    async with serving(settings) as inside, inside.client() as client:
        with pytest.raises(openai.BadRequestError) as refused:
            await client.responses.create(model=MODEL, input="hi", max_output_tokens=20, extra_body={"min_tokens": 21})
    assert refused.value.param == "min_tokens"
