"""What a request asks of its response, kept by the service before a real vLLM: the toy model would do something else.

test_constraints_held.py has the same for the engine alone, and every kind of content.
"""

import json
from collections.abc import Iterator
from typing import Any

import jsonschema_rs
import pytest
from openai import OpenAI

from tests.support.oracles.event_grammar import Json, check_stream
from tests.support.service.process import ServiceProcess
from tests.support.vllm.items import takes, tool
from tests.support.vllm.server import MODEL

pytestmark = pytest.mark.vllm

WEATHER = "What is the weather in Paris?"
ENOUGH_TOKENS = 400


def closed(**properties: Any) -> Json:
    """The schema of an object with these members and no others."""
    return {**takes(*properties, **properties), "additionalProperties": False}


SCHEMAS = {
    "get_weather": closed(city={"enum": ["Rome", "Oslo"]}, unit={"enum": ["c", "f"]}),
    "set_alarm": closed(hour={"type": "integer", "minimum": 0, "maximum": 23}),
}
"""What the tools take. The model would ask for the weather in Paris, and for no unit."""

TOOLS: Any = [{**tool(name, schema), "strict": True} for name, schema in SCHEMAS.items()]
BOAT = closed(name={"type": "string", "pattern": "^[A-Z][a-z]{1,7}$"}, masts={"enum": [1, 2, 3]})
FORMED: Any = {"format": {"type": "json_schema", "name": "boat", "schema": BOAT, "strict": True}}
LOGPROBS: Any = {"include": ["message.output_text.logprobs"], "top_logprobs": 2}


@pytest.fixture(scope="module")
def client(vllm_url: str, tmp_path_factory: pytest.TempPathFactory) -> Iterator[OpenAI]:
    """A client of a service before the server."""
    process = ServiceProcess(tmp_path_factory.mktemp("choices"), engine="vllm", engine_url=vllm_url)
    yield process.client()
    process.stop()


def asked(client: OpenAI, said: str, **more: Any) -> Json:
    """The response at the end of a well-formed stream, which is complete, and the one that was kept."""
    stream = client.responses.create(
        model=MODEL, input=said, temperature=0, max_output_tokens=ENOUGH_TOKENS, stream=True, **more
    )
    response = check_stream([event.to_dict() for event in stream])
    assert response["status"] == "completed"
    assert client.responses.retrieve(response["id"]).to_dict()["output"] == response["output"]
    return response


def calls(response: Json) -> list[str]:
    """The names of what was called, each time with arguments that match."""
    found = [item for item in response["output"] if item["type"] == "function_call"]
    for call in found:
        jsonschema_rs.validate(SCHEMAS[call["name"]], json.loads(call["arguments"]))
    return [call["name"] for call in found]


def answered(response: Json) -> Json:
    """The part with the final answer."""
    assert response["output"][-1]["phase"] == "final_answer"
    (part,) = response["output"][-1]["content"]
    return part


def test_no_tool_is_called_where_none_may_be(client: OpenAI) -> None:
    response = asked(client, WEATHER, tools=TOOLS, tool_choice="none", text=FORMED)
    assert calls(response) == []
    jsonschema_rs.validate(BOAT, json.loads(answered(response)["text"]))


def test_a_call_is_made_where_one_is_required(client: OpenAI) -> None:
    assert calls(asked(client, "Hello!", tools=TOOLS, tool_choice="required")) != []


ALARM = {"type": "function", "name": "set_alarm"}
CHOICES = {
    "a function": (ALARM, {"set_alarm"}),
    "one is allowed": ({"type": "allowed_tools", "mode": "auto", "tools": [ALARM]}, set[str]()),
    "one of those allowed": ({"type": "allowed_tools", "mode": "required", "tools": [ALARM]}, {"set_alarm"}),
}


@pytest.mark.parametrize(("choice", "least"), CHOICES.values(), ids=CHOICES)
def test_what_alone_may_be_called_is_called_alone(client: OpenAI, choice: Any, least: set[str]) -> None:
    response = asked(client, WEATHER, tools=TOOLS, tool_choice=choice)
    assert least <= set(calls(response)) <= {"set_alarm"}
    assert response["tool_choice"] == choice


def test_without_parallel_calls_nothing_is_sampled_behind_the_first(client: OpenAI) -> None:
    on, off = (asked(client, WEATHER, tools=TOOLS, parallel_tool_calls=parallel) for parallel in (True, False))
    assert calls(on)[0] == "get_weather"
    assert calls(off) == ["get_weather"]
    assert off["usage"]["output_tokens"] < on["usage"]["output_tokens"]


def test_an_answer_is_json_of_its_schema_and_each_token_of_it_has_a_log_probability(client: OpenAI) -> None:
    part = answered(asked(client, "Hello!", text=FORMED, **LOGPROBS))
    jsonschema_rs.validate(BOAT, json.loads(part["text"]))
    assert "".join(each["token"] for each in part["logprobs"]) == part["text"]


def test_at_temperature_0_the_likeliest_token_is_the_one_that_is_sampled(client: OpenAI) -> None:
    part = answered(asked(client, "Hello!", **LOGPROBS))
    assert part["text"] == "".join(each["token"] for each in part["logprobs"]) == "Hello! How can I help you today?"
    for each in part["logprobs"]:
        first, second = each["top_logprobs"]
        assert (each["token"], each["logprob"]) == (first["token"], first["logprob"])
        assert second["logprob"] < first["logprob"] <= 0
