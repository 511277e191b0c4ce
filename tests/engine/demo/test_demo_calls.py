"""The demo engine and tools: which function it calls, with which arguments, and JSON answers by schema.

Schemas are rendered by openai-harmony, and what comes back is checked against the schema itself, so neither our
renderer nor the engine's reader of TypeScript is trusted.
"""

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from jsonschema_rs import is_valid

from service.engine.demo.functions import read_signature
from service.harmony.tokens import CALL, CHANNEL, CONSTRAIN, MESSAGE, encode
from service.harmony.typescript import Function
from tests.support.engine.prompts import WEATHER, Answer, answer, parsed, prompt, user
from tests.support.oracles.harmony import Oracle

Schema = dict[str, Any]


def schema(required: str, **properties: object) -> Schema:
    return {"type": "object", "properties": properties, "required": required.split()}


KINDS: list[Schema] = [{"type": kind} for kind in ("string", "number", "integer", "boolean")]
STRING, NUMBER, INTEGER, BOOLEAN = KINDS
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


def ask(oracle: Oracle, words: str, functions: list[Function] = FUNCTIONS, effort: str = "medium") -> Answer:
    """The answer to a user with functions that openai-harmony rendered."""
    head = oracle.system_message(
        identity="You are ChatGPT.", knowledge_cutoff="2024-06", date="2025-01-01", effort=effort, has_functions=True
    )
    _start, *rest = prompt(user(words))
    said = answer([*head, *oracle.developer_message("Be brief.", functions), *rest[rest.index(head[0]) :]])
    assert parsed(oracle, said.tokens)
    return said


@pytest.mark.parametrize(
    ("words", "name", "arguments"),
    [
        ("What's the weather in Paris?", "get_weather", {"city": "Paris"}),
        ("weather in oslo", "get_weather", {"city": "oslo"}),
        ("The weather in New York, in °F please", "get_weather", {"city": "New York", "unit": "f"}),
        ("What is the weather in Paris and in Berlin?", "get_weather", {"city": "Paris"}),
        ("add 4 and 5.5", "add_numbers", {"a": 4, "b": 5.5}),
        ("paint the house red and green", "paintHouse", {"colours": ["red", "green"]}),
        ("What time is it?", "current_time", {}),
        ("call current_time now", "current_time", {}),
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


@pytest.mark.parametrize("words", ["Use the tool.", "please call a function", "With a tool, find it"])
def test_asked_to_use_a_tool_it_uses_one(oracle: Oracle, words: str) -> None:
    said = ask(oracle, words, FUNCTIONS[:1])
    assert said.called == "get_weather"
    assert is_valid(FUNCTIONS[0].parameters, said.arguments)


@pytest.mark.parametrize("words", ["Hello!", "My name is Ada.", "count to 5", "Write a long poem.", "Thank you"])
def test_it_calls_nothing_that_nobody_asked_for(oracle: Oracle, words: str) -> None:
    assert not ask(oracle, words).called


def test_at_high_effort_a_preamble_comes_before_the_call(oracle: Oracle) -> None:
    said = ask(oracle, "weather in Paris", effort="high")
    assert "get_weather" in said.commentary
    assert said.called == "get_weather"


def test_a_call_is_sampled_in_the_order_that_gpt_oss_has(oracle: Oracle) -> None:
    tokens = answer(prompt(user("weather in Paris"), developer=WEATHER)).tokens
    header = [CHANNEL, *encode("commentary to=functions.get_weather "), CONSTRAIN, *encode("json"), MESSAGE]
    assert any(tokens[i : i + len(header)] == header for i in range(len(tokens)))
    last = parsed(oracle, tokens)[-1]
    assert (last["recipient"], last["channel"]) == ("functions.get_weather", "commentary")


_NULLABLE: Schema = {"type": ["string", "null"]}
_ANY: Schema = {}
_LEAF: "st.SearchStrategy[Schema]" = st.one_of(
    st.sampled_from([*KINDS, _NULLABLE, _ANY]),
    st.lists(st.sampled_from(["red", "blue", "x y"]), min_size=1, unique=True).map(
        lambda values: {"type": "string", "enum": values}
    ),
)
_NAME = st.sampled_from(["city", "count", "unit", "query", "my_flag", "n1"])
_DESCRIPTION = st.sampled_from([None, "One line.", "Two lines:\nof text", "a { brace", "key: value", 'a "quote'])


def _described(parts: tuple[Schema, str | None]) -> Schema:
    return {**parts[0], **({"description": parts[1]} if parts[1] else {})}


def _object(children: "st.SearchStrategy[Schema]") -> "st.SearchStrategy[Schema]":
    fields = st.dictionaries(_NAME, st.tuples(children, _DESCRIPTION).map(_described), max_size=4)
    return fields.flatmap(
        lambda properties: st.sets(st.sampled_from(sorted(properties)) if properties else st.nothing()).map(
            lambda required: {"type": "object", "properties": properties, "required": sorted(required)}
        )
    )


_SCHEMA = st.recursive(
    _LEAF,
    lambda children: _object(children) | st.tuples(children).map(lambda c: {"type": "array", "items": c[0]}),
    max_leaves=8,
)


@given(parameters=_object(_SCHEMA), words=st.sampled_from(["use the tool", "use the tool: red, 5, Paris, no my flag"]))
def test_arguments_satisfy_any_schema(oracle: Oracle, parameters: Schema, words: str) -> None:
    said = ask(oracle, words, [Function("frobnicate", "Frobnicates.", parameters)])
    assert said.called == "frobnicate"
    assert is_valid(parameters, said.arguments), said.arguments


def test_a_recursive_schema_has_an_end() -> None:
    node = schema(
        "left right kids", left={"$ref": "#"}, right={"$ref": "#"}, kids={"type": "array", "items": {"$ref": "#"}}
    )
    said = answer(prompt(user("hi"), developer=f"# Response Formats\n\n## tree\n\n{json.dumps(node)}"))
    assert json.loads(said.final) == {}


@given(st.text(alphabet='(){}[]|<>"?:,;/ \nab_:1', max_size=200))
def test_any_text_can_be_read_as_a_signature(text: str) -> None:
    read_signature(text)
