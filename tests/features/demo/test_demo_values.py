"""The demo engine's values and texts: whatever can be held, it can say, and what was begun it completes."""

import re
import time
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from jsonschema_rs import validator_for

from service.features.demo.patterns import matching
from service.features.demo.values import answer_for, arguments_for
from service.grammar.schemas import enforced_schema
from service.steps import in_one_go

MOST_SECONDS = 0.05
"""Of a processor, for one value; it takes some 10 ms at most."""

WORDS = ("", 'weather in Paris, 5.5 and -7 for my "red" flag, ann@example.org')


NODE = {
    "type": "object",
    "properties": {"name": {"type": "string"}, "next": {"anyOf": [{"$ref": "#/$defs/node"}, {"type": "null"}]}},
    "required": ["name", "next"],
}
FORMATS = ("date-time", "email", "uuid", "ipv6", "uri")
SCHEMAS: list[dict[str, Any]] = [
    *({"type": "string", "format": form} for form in FORMATS),
    {"type": "number", "minimum": 0.5, "exclusiveMaximum": 0.75},
    {"type": "integer", "multipleOf": 7, "minimum": 1, "maximum": 20},
    {"type": "string", "pattern": "^(?:x|[A-Z_]{3})\\.\\w$"},
    {"enum": ["red", 3, None, {"a": 1}]},
    {"type": "array", "items": {"type": "string"}, "minItems": 2, "maxItems": 3},
    {"type": "array", "prefixItems": [{"type": "integer"}, {"const": "x"}]},
    {"type": "object", "patternProperties": {"^k[0-9]$": {"type": "integer"}}, "minProperties": 1},
    {"$ref": "#/$defs/node", "$defs": {"node": NODE}},
    {"type": "object", "properties": {"city": {}, "a/b~c": {}}, "required": ["a/b~c"], "additionalProperties": False},
]


@pytest.mark.parametrize("schema", SCHEMAS, ids=str)
@pytest.mark.parametrize("words", WORDS)
def test_each_keyword_that_can_be_held_has_a_value(schema: dict[str, Any], words: str) -> None:
    held = in_one_go(enforced_schema(schema, "schema"))
    assert held is not None
    for value in (
        arguments_for(held, words),
        answer_for(held, words, "I am the answer."),
        answer_for(schema, words, ""),
    ):
        assert validator_for(held, validate_formats=True).is_valid(value), value
        assert validator_for(schema, validate_formats=True).is_valid(value), value


@given(
    st.from_regex(r"(\[a-f0-3\]|[xyz]|\((?:\?:)?[pq]\|[rs]\)|\\[dw])([*+?]|\{1,3\})?", fullmatch=True),
    st.sampled_from(WORDS),
)
def test_a_text_of_a_regex_matches_it(pattern: str, words: str) -> None:
    assert re.fullmatch(pattern, matching(pattern, words), re.ASCII)


def arrays(depth: int, least: int) -> dict[str, object]:
    """Arrays in arrays, each of which has to have so many."""
    inner: dict[str, object] = {"type": "integer"}
    for _ in range(depth):
        inner = {"type": "array", "minItems": least, "items": inner}
    return inner


@pytest.mark.parametrize(
    "demanding",
    [arrays(4, 60), {"type": "array", "minItems": 100_000, "uniqueItems": True, "items": {"type": "string"}}],
    ids=["arrays in arrays", "a long array"],
)
def test_a_value_of_many_parts_is_made_in_some_milliseconds(demanding: dict[str, object]) -> None:
    schema = {"type": "object", "properties": {"a": demanding}, "required": ["a"]}
    began = time.thread_time()
    for _ in range(5):
        answer_for(schema, "take 1 and 2", "Hello.")
    assert (time.thread_time() - began) / 5 < MOST_SECONDS
