"""The demo engine's values and texts: whatever can be held, it can say, and what was begun it completes."""

import re
import time
from typing import Any

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st
from jsonschema_rs import validator_for

from service.engine.demo.patterns import derive, matching
from service.engine.demo.values import answer_for, arguments_for
from service.errors import InvalidRequest
from service.grammar.schemas import enforced_schema
from service.steps import in_one_go

Schema = dict[str, Any]

MOST_SECONDS = 0.05
"""Of a processor, for one value; it takes some 10 ms at most."""

SMALL = st.integers(0, 4)
NAMES = st.sampled_from(["city", "count", "unit", "query", "my_flag", "a/b~c"])
WORDS = st.sampled_from(["", "weather in Paris, 5.5 and 7 for my flag", 'the "red" one, -3, ann@example.org'])
PATTERNS = [
    "^[a-z]{2,4}$",
    "^(red|blue)-[0-9]+$",
    "^\\d{4}-\\d{2}$",
    "^[^aeiou ]+x?$",
    "^a*$",
    "^(?:x|[A-Z_]{3})\\.\\w$",
]


def merged(*parts: Schema) -> Schema:
    return {key: value for part in parts for key, value in part.items()}


def bounds(least: str, most: str) -> "st.SearchStrategy[Schema]":
    both = st.tuples(SMALL, SMALL).map(lambda pair: {least: pair[0], most: pair[0] + pair[1]})
    return st.one_of(st.just({}), SMALL.map(lambda low: {least: low}), SMALL.map(lambda high: {most: high}), both)


def numbers(kind: str) -> "st.SearchStrategy[Schema]":
    edge = st.integers(-50, 50)
    low = st.tuples(st.sampled_from(["minimum", "exclusiveMinimum"]), edge)
    ranges = st.tuples(low, st.sampled_from(["maximum", "exclusiveMaximum"]), st.integers(2, 9)).map(
        lambda drawn: {drawn[0][0]: drawn[0][1], drawn[1]: drawn[0][1] + drawn[2]}
    )
    one = st.one_of(low, st.tuples(st.sampled_from(["maximum", "exclusiveMaximum"]), edge)).map(
        lambda pair: dict([pair])
    )
    multiple = st.integers(1, 9).map(lambda step: {"multipleOf": step})
    return st.one_of(st.just({}), ranges, one, multiple if kind == "integer" else st.just({})).map(
        lambda part: merged({"type": kind}, part)
    )


LEAVES = st.one_of(
    numbers("integer"),
    numbers("number"),
    bounds("minLength", "maxLength").map(lambda part: merged({"type": "string"}, part)),
    st.sampled_from(PATTERNS).map(lambda pattern: {"type": "string", "pattern": pattern}),
    st.sampled_from(["date", "date-time", "time", "email", "uuid", "ipv4", "ipv6", "uri", "hostname", "duration"]).map(
        lambda form: {"type": "string", "format": form}
    ),
    st.sampled_from(["boolean", "null", ["string", "null"], ["integer", "boolean"]]).map(lambda kind: {"type": kind}),
    st.lists(st.sampled_from(["red", 3, None, True, 2.5, [1], {"a": 1}]), min_size=1, max_size=3).map(
        lambda values: {"enum": values}
    ),
    st.sampled_from([{}, {"const": "x"}, {"$ref": "#/$defs/node"}, {"type": "object"}, {"type": "array"}]),
)


def _object(properties: Schema, required: set[str], others: Schema, counts: Schema) -> Schema:
    """The schema of an object that can have as many members as it has to."""
    least = {"minProperties": min(counts["minProperties"], len(properties))} if "minProperties" in counts else {}
    declared = {"type": "object", "properties": properties, "required": sorted(required & set(properties))}
    return merged(declared, others, counts, least)


def nested(children: "st.SearchStrategy[Schema]") -> "st.SearchStrategy[Schema]":
    objects = st.tuples(
        st.dictionaries(NAMES, children, max_size=4),
        st.sets(NAMES, max_size=3),
        st.sampled_from([{}, {"additionalProperties": False}, {"additionalProperties": {"type": "integer"}}]),
        bounds("minProperties", "maxProperties"),
    ).map(lambda drawn: _object(*drawn))
    lists = st.tuples(children, bounds("minItems", "maxItems")).map(
        lambda drawn: merged({"type": "array", "items": drawn[0]}, drawn[1])
    )
    tuples = st.lists(children, min_size=1, max_size=3).map(lambda first: {"type": "array", "prefixItems": first})
    choices = st.lists(children, min_size=1, max_size=3).map(lambda options: {"anyOf": options})
    keyed = st.tuples(children, st.sampled_from([0, 1])).map(
        lambda drawn: {"type": "object", "patternProperties": {"^k[0-9]$": drawn[0]}, "minProperties": drawn[1]}
    )
    return st.one_of(objects, lists, tuples, choices, keyed)


NODE = {
    "type": "object",
    "properties": {"name": {"type": "string"}, "next": {"anyOf": [{"$ref": "#/$defs/node"}, {"type": "null"}]}},
    "required": ["name", "next"],
}
SCHEMAS = st.recursive(LEAVES, nested, max_leaves=8).map(lambda schema: merged(schema, {"$defs": {"node": NODE}}))


@given(schema=SCHEMAS, words=WORDS)
def test_whatever_schema_can_be_held_it_has_a_value_for(schema: Schema, words: str) -> None:
    try:
        held = in_one_go(enforced_schema(schema, "schema"))
    except InvalidRequest:
        assume(False)
        return
    for value in (
        arguments_for(held, words),
        answer_for(held, words, "I am the answer."),
        answer_for(schema, words, ""),
    ):
        assert validator_for(held, validate_formats=True).is_valid(value), value
        assert validator_for(schema, validate_formats=True).is_valid(value), value


@pytest.mark.parametrize(
    ("pattern", "words", "text"),
    [
        ("(yes|no)", "I say yes", "yes"),
        (r"\d{4}-\d{2}", "in 2024", "2024-20"),
        ("^SELECT [a-z]+ FROM [a-z]+;?$", "color please", "SELECT color FROM color"),
        (r"\w+@\w+\.org", "Ada", "Ada@Ada.org"),
        (r"[^a-z]{2,}", "ok", "00"),
        (r"(?:a|bc){2,3}", "", "aa"),
        (r"\x41\u{42}[\]\-]", "", "AB-"),
        (r"[a-z ]{1,30}", "hello there!", "hello there"),
    ],
)
def test_a_text_of_a_regex_uses_the_words_that_fit(pattern: str, words: str, text: str) -> None:
    assert matching(pattern, words) == text


@given(st.from_regex(r"(\[a-f0-3\]|[xyz]|\((?:\?:)?[pq]\|[rs]\)|\\[dw])([*+?]|\{1,3\})?", fullmatch=True), WORDS)
def test_a_text_of_a_regex_matches_it(pattern: str, words: str) -> None:
    assert re.fullmatch(pattern, matching(pattern, words), re.ASCII)


@pytest.mark.parametrize("pattern", ["(", "[a", "*a", "(?=a)b", "a)", "(" * 200 + ")" * 200, "(a{9999}){9999}"])
def test_a_regex_that_cannot_be_read_or_made_is_an_error(pattern: str) -> None:
    with pytest.raises(ValueError, match=r"."):
        matching(pattern)


def test_a_text_of_a_grammar_is_as_short_as_it_can_be() -> None:
    grammar = 'root ::= sum  # one\nsum ::= term | term "+" sum\nterm ::= [0-9]{1,3} | "(" sum ")"\n'
    assert derive(grammar) == "0"
    assert derive(grammar, "add 42") == "42"


@pytest.mark.parametrize(
    "grammar", ['other ::= "a"', "root ::= root", 'root ::= "a', "root ::= missing", 'root ::= ("a"']
)
def test_a_grammar_without_a_text_is_an_error(grammar: str) -> None:
    with pytest.raises(ValueError, match=r"."):
        derive(grammar)


def arrays(depth: int, least: int) -> dict[str, object]:
    """Arrays in arrays, each of which has to have so many."""
    inner: dict[str, object] = {"type": "integer"}
    for _ in range(depth):
        inner = {"type": "array", "minItems": least, "items": inner}
    return inner


@pytest.mark.parametrize(
    "demanding",
    [
        arrays(2, 1000),
        arrays(4, 60),
        *(
            {"type": "array", "minItems": 100_000, "uniqueItems": True, "items": items}
            for items in ({"type": "integer"}, {"type": "string"}, {"enum": list(range(500))})
        ),
    ],
    ids=lambda each: str(each)[:80],
)
def test_a_value_of_many_parts_is_made_in_some_milliseconds(demanding: dict[str, object]) -> None:
    schema = {"type": "object", "properties": {"a": demanding}, "required": ["a"]}
    began = time.thread_time()
    for _ in range(5):
        answer_for(schema, "take 1 and 2", "Hello.")
    assert (time.thread_time() - began) / 5 < MOST_SECONDS
