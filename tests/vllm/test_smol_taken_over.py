"""Workers killed while SmolLM2 speaks on a real vLLM: in the middle of an answer, of reasoning, of a call's arguments
and of structured output. All end, nothing is doubled or lost, and what is complete matches its format.

SmolLM2 doesn't reason by itself; in the conversation that it goes on with here somebody did, in marks that it copies.
"""

import asyncio
import json
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import jsonschema_rs
import pytest

from tests.support.chaos.fleet import Fleet, running
from tests.support.chaos.follower import Follower
from tests.support.chaos.storm import QUICK
from tests.support.vllm.server import SMOL
from tests.support.waiting import until

pytestmark = [pytest.mark.vllm, pytest.mark.full]

THINKING = "smol-thinking"
ENGINES = """
[[engines]]
name = "{smol}"
kind = "vllm"
urls = ["{url}"]

[[engines]]
name = "{thinking}"
kind = "vllm"
urls = ["{url}"]
model = "{smol}"
markup = "qwen3"
"""

SECONDS = 90.0
SPOKEN = 12
"""After how many events of each a worker is killed."""

MOST_TOKENS = 90

SCHEMA: Any = {
    "type": "object",
    "properties": {"reasons": {"type": "array", "items": {"type": "string", "maxLength": 300}, "minItems": 6}},
    "required": ["reasons"],
    "additionalProperties": False,
}


def counted(last: int) -> list[dict[str, str]]:
    """Somebody asks, somebody thinks and answers."""
    numbers = ", ".join(map(str, range(1, last + 1)))
    thought = f"The user wants me to count to {last}. I count slowly: {numbers}. That is all."
    return [
        {"role": "user", "content": f"Count to {last}."},
        {"role": "assistant", "content": f"<think>\n{thought}\n</think>\n\nHere they are: {numbers}."},
    ]


LOGPROBS: Any = {"include": ["message.output_text.logprobs"]}
ASKED: dict[str, dict[str, Any]] = {
    "an answer": {"model": SMOL, "input": "Tell me a long story of a fox.", **LOGPROBS},
    "reasoning": {
        "model": THINKING,
        "input": [*counted(12), *counted(16), {"role": "user", "content": "Count to 20."}],
        **LOGPROBS,
    },
    "the arguments of a call": {
        "model": SMOL,
        "input": "Why should I go to Paris? Give many reasons.",
        "tools": [{"type": "function", "name": "travel", "parameters": SCHEMA, "strict": True}],
        "tool_choice": "required",
    },
    "structured output": {
        "model": SMOL,
        "input": "Why should I go to Paris? Give many reasons.",
        "text": {"format": {"type": "json_schema", "name": "why", "schema": SCHEMA, "strict": True}},
        **LOGPROBS,
    },
}
MIDDLE = {
    "an answer": "response.output_text.delta",
    "reasoning": "response.reasoning_text.delta",
    "the arguments of a call": "response.function_call_arguments.delta",
    "structured output": "response.output_text.delta",
}
"""In the middle of what each is when the first worker dies: such an event was the last."""


@pytest.fixture
async def fleet(smol_url: str, tmp_path: Path) -> AsyncIterator[Fleet]:
    """An API and two workers before the server, which has two models for them."""
    engines = tmp_path / "engines.toml"
    engines.write_text(ENGINES.format(smol=SMOL, thinking=THINKING, url=smol_url))
    async with running(tmp_path, seed=6, apis=1, engines=str(engines), **QUICK) as fleet:
        yield fleet


async def test_what_dead_workers_began_is_said_to_its_end_and_nothing_twice(fleet: Fleet) -> None:
    followers = {name: Follower(lambda: [fleet.apis[0].url], fleet.chance) for name in ASKED}
    tasks = [
        asyncio.create_task(followers[name].create(temperature=0, max_output_tokens=MOST_TOKENS, **asked))
        for name, asked in ASKED.items()
    ]
    for time, worker in enumerate(fleet.workers):
        spoken = {each: len(each.events) + SPOKEN for each in followers.values()}
        await until(
            lambda spoken=spoken: all(each.over or len(each.events) > most for each, most in spoken.items()),
            SECONDS,
            "it doesn't speak",
        )
        if time == 0:
            assert {name: each.events[-1]["type"] for name, each in followers.items()} == MIDDLE
        fleet.kill(worker)
        fleet.launch(worker)
    async with asyncio.timeout(SECONDS):
        await asyncio.gather(*tasks)
    assert any("epoch=1" not in line for worker in fleet.workers for line in worker.log.splitlines() if "ended" in line)
    for name, each in followers.items():
        assert_right(name, each.response)


def assert_right(name: str, response: Any) -> None:
    """It has ended as it may, and of each token that was sampled the text is there once.

    Behind a death nothing holds what was begun to its format but the check at the end, which may fail it.
    """
    formed = name in ("the arguments of a call", "structured output")
    if formed and response["status"] == "failed":
        assert "does not match" in response["error"]["message"], response["error"]
        return
    assert response["status"] in ("completed", "incomplete"), (name, response)
    assert response["usage"]["output_tokens"] <= MOST_TOKENS
    kinds = {"reasoning": ["reasoning", "message"], "the arguments of a call": ["function_call"]}
    assert [item["type"] for item in response["output"]] == kinds.get(name, ["message"])
    (*_, last) = response["output"]
    said = last["arguments"] if last["type"] == "function_call" else last["content"][0]["text"]
    if last["type"] == "message":
        assert "".join(each["token"] for each in last["content"][0]["logprobs"]) == said
    if formed and response["status"] == "completed":
        jsonschema_rs.validate(SCHEMA, json.loads(said))
