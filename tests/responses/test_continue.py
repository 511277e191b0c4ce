"""Conversations: continuing a response, forking it, and calling functions on the way."""

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


def test_a_deleted_response_can_not_be_continued_but_its_children_can(service: ServiceProcess) -> None:
    client = service.client()
    first = ask(client, "My name is Ada.")
    second = ask(client, "Count to 2.", first)
    client.responses.delete(first.id)
    with pytest.raises(openai.BadRequestError) as refusal:
        ask(client, "What is my name?", first)
    assert refusal.value.code == "previous_response_not_found"
    assert "Ada" in ask(client, "What is my name?", second).output_text
