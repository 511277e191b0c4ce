"""Counting the tokens of a request: the number that the response's usage has, the same refusals, and nothing else."""

from typing import Any

import pytest

from service.process import Settings
from tests.support.service.inside import answer, scripted, serving
from tests.support.service.process import MODEL, ServiceProcess
from tests.support.store.counted import usage

Json = dict[str, Any]
WEATHER: Json = {
    "type": "function",
    "name": "get_weather",
    "description": "The weather of a city.",
    "parameters": {"type": "object", "properties": {"city": {"type": "string"}}, "required": ["city"]},
    "strict": True,
}
BODIES: dict[str, Json] = {
    "a text": {"input": "Count to 3."},
    "instructions": {"input": "hi", "instructions": "Be brief."},
    "tools": {"input": "hi", "tools": [WEATHER], "tool_choice": "required"},
    "an effort": {"input": "hi", "reasoning": {"effort": "high"}},
    "a form of the answer": {"input": "hi", "text": {"format": {"type": "json_object"}, "verbosity": "low"}},
    "a conversation": {"input": [{"role": "user", "content": "hi"}, {"role": "assistant", "content": "Ahoy."}]},
}
REFUSED: dict[str, Json] = {
    "no input": {},
    "an item that isn't one": {"input": [{"type": "rhubarb"}]},
    "an output without its call": {"input": [{"type": "function_call_output", "call_id": "call_1", "output": "x"}]},
    "another model": {"input": "hi", "model": "gpt-9"},
    "an unknown parent": {"input": "hi", "previous_response_id": "resp_" + 48 * "0"},
    "a tool that isn't one": {"input": "hi", "tools": [{"type": "rhubarb"}]},
    "a parameter that isn't one": {"input": "hi", "rhubarb": 1},
    "more than the context": {"input": "word " * 140_000},
}


def count(service: ServiceProcess, **body: object) -> Json:
    given = service.http().post("/v1/responses/input_tokens", json={"model": MODEL, **body})
    assert given.status_code == 200, given.text
    return given.json()


@pytest.mark.parametrize("body", BODIES.values(), ids=BODIES)
def test_the_count_is_what_the_response_s_usage_begins_with(service: ServiceProcess, body: Json) -> None:
    asked = {"model": MODEL, "max_output_tokens": 16, "enable_response_messages": True, **body}
    made = service.http().post("/v1/responses", json=asked).json()
    turns = made["usage"]["input_tokens_details"]["input_tokens_per_turn"]
    assert count(service, **body) == {"object": "response.input_tokens", "input_tokens": turns[0]}


def test_the_conversation_before_it_counts_too(service: ServiceProcess) -> None:
    first = service.client().responses.create(model=MODEL, input="My boat is called Vesper.")
    after = count(service, input="And now?", previous_response_id=first.id)["input_tokens"]
    second = service.client().responses.create(model=MODEL, input="And now?", previous_response_id=first.id)
    assert second.usage is not None
    assert after == second.usage.input_tokens > count(service, input="And now?")["input_tokens"]


def test_the_sdk_counts_and_needs_no_model_for_it(service: ServiceProcess) -> None:
    counted = service.client().responses.input_tokens.count(input="Count to 3.")
    assert counted.object == "response.input_tokens"
    assert counted.input_tokens == count(service, input="Count to 3.")["input_tokens"]


@pytest.mark.parametrize("body", REFUSED.values(), ids=REFUSED)
def test_it_refuses_what_creating_refuses_in_the_same_words(service: ServiceProcess, body: Json) -> None:
    body = {"model": MODEL, **body}
    counted = service.http().post("/v1/responses/input_tokens", json=body)
    made = service.http().post("/v1/responses", json=body)
    assert (counted.status_code, counted.json()) == (made.status_code, made.json())
    assert 400 <= counted.status_code < 500


async def test_no_engine_is_asked_and_nothing_is_kept(settings: Settings) -> None:
    engine = scripted([answer("Ahoy.")])
    async with serving(settings, engine) as inside, inside.http() as http:
        body = {"model": MODEL, "input": "hi"}
        parent = (await http.post("/v1/responses", json=body)).json()["id"]
        before = await usage(inside.store, "default")
        given = await http.post("/v1/responses/input_tokens", json={**body, "previous_response_id": parent})
        assert given.json()["input_tokens"] > 0
        assert len(engine.generations) == 1
        assert await usage(inside.store, "default") == before
        deleted = await http.delete(f"/v1/responses/{parent}?tree=true")
        assert deleted.status_code == 200, "the pin was not let go of"
