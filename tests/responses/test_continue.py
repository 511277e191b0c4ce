"""Conversations: continuing a response, forking it, and calling functions on the way."""

import json
from typing import Any

import openai
import pytest
from openai import OpenAI
from openai.types.responses import Response

from tests.support.service.process import MODEL, ServiceProcess

WEATHER: Any = {
    "type": "function",
    "name": "get_weather",
    "description": "The weather of a city.",
    "parameters": {"type": "object", "properties": {"city": {"type": "string"}}, "required": ["city"]},
    "strict": True,
}


def ask(client: OpenAI, text: str, after: Response | None = None, **options: Any) -> Response:
    return client.responses.create(
        model=MODEL, input=text, previous_response_id=after.id if after else openai.omit, **options
    )


def test_a_fork_never_sees_its_sibling(service: ServiceProcess) -> None:
    client = service.client()
    trunk = ask(client, "My name is Ada.")
    left = ask(client, "The secret word is marmalade.", trunk)
    right = ask(client, "The secret word is periwinkle.", trunk)
    assert "marmalade" in ask(client, "What is the secret word?", left).output_text
    assert "periwinkle" in ask(client, "What is the secret word?", right).output_text
    neither = ask(client, "What is the secret word?", trunk).output_text
    assert "marmalade" not in neither
    assert "periwinkle" not in neither
    assert "Ada" in ask(client, "What is my name?", left).output_text


def test_a_function_is_called_answered_and_talked_about(service: ServiceProcess) -> None:
    client = service.client()
    asked = ask(client, "What is the weather in Paris?", tools=[WEATHER])
    call = asked.output[-1]
    assert call.type == "function_call"
    assert (call.name, json.loads(call.arguments)) == ("get_weather", {"city": "Paris"})
    output: Any = [{"type": "function_call_output", "call_id": call.call_id, "output": "18 degrees and sunny"}]
    answered = client.responses.create(model=MODEL, previous_response_id=asked.id, input=output, tools=[WEATHER])
    assert "18 degrees and sunny" in answered.output_text
    assert answered.tools == asked.tools


def test_a_stateless_loop_replays_what_it_was_given(service: ServiceProcess) -> None:
    client = service.client()
    said: Any = [{"role": "user", "content": "What is the weather in Paris?"}]
    asked = client.responses.create(model=MODEL, input=said, tools=[WEATHER], store=False)
    said += [item.to_dict() for item in asked.output]
    said += [{"type": "function_call_output", "call_id": asked.output[-1].call_id, "output": "18 degrees"}]
    answered = client.responses.create(model=MODEL, input=said, tools=[WEATHER], store=False)
    assert "18 degrees" in answered.output_text


def test_a_deleted_response_can_not_be_continued_but_its_children_can(service: ServiceProcess) -> None:
    client = service.client()
    first = ask(client, "My name is Ada.")
    second = ask(client, "Count to 2.", first)
    client.responses.delete(first.id)
    with pytest.raises(openai.BadRequestError) as refusal:
        ask(client, "What is my name?", first)
    assert refusal.value.code == "previous_response_not_found"
    assert "Ada" in ask(client, "What is my name?", second).output_text
