"""Steers as they are read, and what a job keeps of its request for the response that goes on from it."""

import json
from typing import Any

import pytest

from service.api.request import CreateRequest, read_create
from service.api.steer import settings_of, succeeding, successor_request

Json = dict[str, Any]

ID = "resp_1"
SAID = [b'{"role":"user","content":"Be brief."}']
STANDING = [b'{"type":"additional_tools","role":"developer","tools":[]}']
WHOLE: Json = {
    "model": "gpt-oss-20b",
    "input": "x" * 1000,
    "instructions": "Be kind.",
    "tools": [{"type": "function", "name": "f", "parameters": {"type": "object"}, "strict": False}],
    "tool_choice": {"type": "function", "name": "f"},
    "parallel_tool_calls": False,
    "max_output_tokens": 99,
    "max_tool_calls": 3,
    "temperature": 0.5,
    "top_p": 0.9,
    "reasoning": {"effort": "high", "summary": "auto", "context": "all_turns"},
    "text": {"format": {"type": "json_object"}, "verbosity": "low"},
    "metadata": {"a": "b"},
    "store": True,
    "background": True,
    "service_tier": "flex",
    "include": ["message.output_text.logprobs", "reasoning.encrypted_content"],
    "truncation": "auto",
    "top_logprobs": 2,
    "presence_penalty": 0.5,
    "frequency_penalty": 0.25,
    "repetition_penalty": 1.5,
    "seed": -(2**63),
    "top_k": 3,
    "min_p": 0.1,
    "stop": ["x", "y"],
    "safety_identifier": "s",
    "prompt_cache_key": "k",
    "cache_salt": "salt",
    "priority": 3,
    "request_id": "mine",
    "enable_response_messages": True,
}


def read(body: Json) -> CreateRequest:
    """A request as it is checked."""
    return read_create(json.dumps(body).encode(), store=True)


@pytest.mark.parametrize("body", [WHOLE, {"model": "m", "input": "hi", "background": True}], ids=["whole", "bare"])
def test_what_a_job_keeps_of_its_request_gives_the_same_successor_as_the_request(body: Json) -> None:
    request = read(body)
    kept = settings_of(request, "Be kind.", STANDING)
    assert len(kept) < 2000, "its input is kept"
    assert successor_request(kept, ID, SAID) == succeeding(request, ID, "Be kind.", STANDING, SAID)
