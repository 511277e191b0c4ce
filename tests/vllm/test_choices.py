"""What a request asks of its response, kept by the service before a real vLLM: the toy model would do something else.

test_constraints_held.py has the same for the engine alone, and every kind of content.
"""

import json
from collections.abc import Iterator
from typing import Any

import jsonschema_rs
import pytest
from openai import OpenAI

from tests.event_grammar import Json, check_stream
from tests.http.process import ServiceProcess
from tests.vllm.items import takes, tool
from tests.vllm.server import MODEL

pytestmark = pytest.mark.vllm

WEATHER = "What is the weather in Paris?"
CITY = {
    **takes("city", "unit", city={"enum": ["Rome", "Oslo"]}, unit={"enum": ["c", "f"]}),
    "additionalProperties": False,
}
HOUR = {**takes("hour", hour={"type": "integer", "minimum": 0, "maximum": 23}), "additionalProperties": False}
SCHEMAS = {"get_weather": CITY, "set_alarm": HOUR}
TOOLS: Any = [{**tool(name, schema), "strict": True} for name, schema in SCHEMAS.items()]
ALARM = {"type": "function", "name": "set_alarm"}
BOAT = {**takes("name", "masts", name={"type": "string", "pattern": "^[A-Z][a-z]{1,7}$"}, masts={"enum": [1, 2, 3]})}
BOAT |= {"additionalProperties": False}
FORMED: Any = {"format": {"type": "json_schema", "name": "boat", "schema": BOAT, "strict": True}}


@pytest.fixture(scope="module")
def client(vllm_url: str, tmp_path_factory: pytest.TempPathFactory) -> Iterator[OpenAI]:
    """A client of the service before the server."""
    process = ServiceProcess(tmp_path_factory.mktemp("choices"), engine="vllm", vllm_url=vllm_url)
    yield process.client()
    process.stop()


def asked(client: OpenAI, said: Any, **more: Any) -> Json:
    """The response at the end of a well-formed stream, which is the one that was kept."""
    stream = client.responses.create(model=MODEL, input=said, temperature=0, max_output_tokens=400, stream=True, **more)
    response = check_stream([event.to_dict() for event in stream])
    assert client.responses.retrieve(response["id"]).to_dict()["output"] == response["output"]
    return response


def calls(response: Json) -> list[str]:
    """The names of what was called, each with arguments that match."""
    found = [item for item in response["output"] if item["type"] == "function_call"]
    for call in found:
        jsonschema_rs.validate(SCHEMAS[call["name"]], json.loads(call["arguments"]))
    return [call["name"] for call in found]


def test_no_tool_is_called_where_none_may_be(client: OpenAI) -> None:
    response = asked(client, WEATHER, tools=TOOLS, tool_choice="none")
    assert calls(response) == []
    assert response["output"][-1]["type"] == "message"


@pytest.mark.parametrize("said", ["Hello!", WEATHER])
def test_a_required_call_is_made_with_arguments_that_match(client: OpenAI, said: str) -> None:
    response = asked(client, said, tools=TOOLS, tool_choice="required", parallel_tool_calls=False)
    assert response["status"] == "completed"
    print(response["output"])
    assert len(calls(response)) == 1


@pytest.mark.parametrize(
    "choice", [ALARM, {"type": "allowed_tools", "mode": "required", "tools": [ALARM]}], ids=["named", "allowed"]
)
def test_what_may_be_called_alone_is_called_alone(client: OpenAI, choice: Any) -> None:
    response = asked(client, WEATHER, tools=TOOLS, tool_choice=choice)
    print(response["output"])
    assert set(calls(response)) == {"set_alarm"}
    assert response["tool_choice"] == choice


def test_an_answer_is_json_of_the_schema_and_its_tokens_have_log_probabilities(client: OpenAI) -> None:
    response = asked(client, "Hello!", text=FORMED, include=["message.output_text.logprobs"], top_logprobs=2)
    print(response["output"])
    assert response["status"] == "completed"
    (part,) = response["output"][-1]["content"]
    jsonschema_rs.validate(BOAT, json.loads(part["text"]))
    assert "".join(each["token"] for each in part["logprobs"]) == part["text"]


def test_the_likeliest_token_is_the_one_that_is_sampled_where_nothing_is_asked(client: OpenAI) -> None:
    response = asked(client, "Hello!", include=["message.output_text.logprobs"], top_logprobs=2)
    (part,) = response["output"][-1]["content"]
    print(part["logprobs"])
    assert "".join(each["token"] for each in part["logprobs"]) == part["text"] == "Hello! How can I help you today?"
    for each in part["logprobs"]:
        first, second = each["top_logprobs"]
        assert (each["token"], each["logprob"]) == (first["token"], first["logprob"])
        assert second["logprob"] <= first["logprob"] <= 0
