"""The demo engine and tools: which function it calls, with which arguments, and JSON answers by schema.

Schemas are rendered by openai-harmony, and what comes back is checked against the schema itself, so neither our
renderer nor the engine's reader of TypeScript is trusted.
"""

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from service.engine.demo.functions import read_signature
from service.harmony.tokens import CALL
from service.harmony.typescript import Function
from tests.support.engine.prompts import Answer, answer, parsed, prompt, user
from tests.support.oracles.harmony import Oracle

Schema = dict[str, Any]


def schema(required: str, **properties: object) -> Schema:
    return {"type": "object", "properties": properties, "required": required.split()}


KINDS: list[Schema] = [{"type": kind} for kind in ("string", "number", "boolean")]
STRING, NUMBER, BOOLEAN = KINDS
FUNCTIONS = [
    Function(
        "get_weather",
        "Get the weather of a city.",
        schema("city", city=STRING, unit={"enum": ["c", "f"], "type": "string"}),
    ),
    Function(
        "send_email", "Sends an email\nto somebody.", schema("to subject", to=STRING, subject=STRING, urgent=BOOLEAN)
    ),
    Function("add_numbers", "Adds two numbers.", schema("a b", a=NUMBER, b=NUMBER)),
    Function(
        "paintHouse",
        "",
        schema("colours", colours={"type": "array", "items": {"type": "string", "enum": ["red", "green"]}}),
    ),
    Function("current_time", "Tells the time.", None),
]


def ask(oracle: Oracle, words: str) -> Answer:
    """The answer to a user with functions that openai-harmony rendered."""
    fields = {"identity": "You are ChatGPT.", "knowledge_cutoff": "2024-06", "date": "2025-01-01", "effort": "medium"}
    head = oracle.system_message(**fields, has_functions=True)
    _start, *rest = prompt(user(words))
    said = answer([*head, *oracle.developer_message("Be brief.", FUNCTIONS), *rest[rest.index(head[0]) :]])
    assert parsed(oracle, said.tokens)
    return said


@pytest.mark.parametrize(
    ("words", "name", "arguments"),
    [
        ("What's the weather in Paris?", "get_weather", {"city": "Paris"}),
        ("The weather in New York, in °F please", "get_weather", {"city": "New York", "unit": "f"}),
        ("add 4 and 5.5", "add_numbers", {"a": 4, "b": 5.5}),
        ("paint the house red and green", "paintHouse", {"colours": ["red", "green"]}),
        ("What time is it?", "current_time", {}),
        (
            'Send an email to ann@example.org, subject "Lunch at noon", urgent',
            "send_email",
            {"to": "ann@example.org", "subject": "Lunch at noon", "urgent": True},
        ),
    ],
)
def test_it_calls_the_function_that_fits(oracle: Oracle, words: str, name: str, arguments: object) -> None:
    said = ask(oracle, words)
    assert (said.called, said.arguments) == (name, arguments)
    assert said.tokens[-1] == CALL


@pytest.mark.parametrize("words", ["Hello!", "count to 5"])
def test_it_calls_nothing_that_nobody_asked_for(oracle: Oracle, words: str) -> None:
    assert not ask(oracle, words).called


@given(st.text(alphabet='(){}[]|<>"?:,;/ \nab_:1', max_size=200))
def test_any_text_can_be_read_as_a_signature(text: str) -> None:
    read_signature(text)
