"""Which JSON schemas can be enforced: what is refused by name, and what the others become."""

import json
from string import ascii_lowercase
from time import process_time
from typing import Any

import jsonschema_rs
import pytest
from hypothesis import given
from hypothesis import strategies as st

from service.errors import InvalidRequest
from service.grammar.schema_values import MAX_LENGTH, checked_alone
from service.grammar.schemas import MAX_DEPTH, enforced_schema
from service.grammar.tags import content_tag, schema_content
from service.steps import in_one_go

INTEGER = {"type": "integer"}
STRING = {"type": "string"}


def an_object(**keywords: Any) -> dict[str, Any]:
    return {"type": "object", **keywords}


def deep_all_of(depth: int) -> Any:
    schema: Any = STRING
    for _ in range(depth):
        schema = {"allOf": [schema]}
    return schema


REFUSED: dict[str, tuple[Any, str]] = {
    "deep allOf": (deep_all_of(476), "s"),
    "long patterns": (
        an_object(properties={n: STRING | {"pattern": n * 1_500} for n in "abc"}),
        "s.properties.c.pattern",
    ),
    "large patterns": (
        an_object(properties={n: STRING | {"pattern": f"[^{n}]{{128}}"} for n in ascii_lowercase}),
        "s.properties.v.pattern",
    ),
    "many kinds of oneOf": ({"oneOf": [an_object(title=str(n)) for n in range(2_000)]}, "s.oneOf"),
    "beside anyOf": (an_object(anyOf=[an_object()], properties={"a": {}}), "s.properties"),
    "an anchor": ({"$ref": "#x", "$defs": {"x": {"$anchor": "x"}}}, "s.$ref"),
    "a quote": ({"type": "string", "pattern": '^"$'}, "s.pattern"),
    "a pattern that repeats too often": ({"type": "string", "pattern": "^[a-z]{129}$"}, "s.pattern"),
    "a huge bound": ({"type": "number", "minimum": 1e300}, "s.minimum"),
    "counted free members": (an_object(minProperties=2), "s.minProperties"),
    "a constant of another type": ({"type": "integer", "const": "a"}, "s.const"),
}


@pytest.mark.parametrize("case", REFUSED)
def test_a_schema_that_cannot_be_held_is_refused_by_its_keyword(case: str) -> None:
    schema, param = REFUSED[case]
    with pytest.raises(InvalidRequest) as refused:
        in_one_go(enforced_schema(schema, "s"))
    assert refused.value.param == param


def test_a_schema_that_is_nested_too_deeply_is_refused() -> None:
    schema: dict[str, Any] = {}
    for _ in range(MAX_DEPTH + 1):
        schema = {"type": "array", "items": schema}
    with pytest.raises(InvalidRequest, match="at most 32 schemas may be nested"):
        in_one_go(enforced_schema(schema, "s"))


ENFORCED: dict[str, tuple[Any, Any]] = {
    "words to the reader": ({"type": "string", "title": "T", "default": "", "x-unit": "m"}, STRING),
    "a type that is meant": ({"minimum": 1}, {"type": "number", "minimum": 1}),
    "bounds of integers": ({"type": "integer", "minimum": 0.5, "exclusiveMaximum": 3.5},
                           {"type": "integer", "minimum": 1, "exclusiveMaximum": 4}),
    "a required name that isn't declared": (an_object(required=["a"]), an_object(properties={"a": {}}, required=["a"])),
    "constants of the type": ({"type": "string", "enum": ["a", 1]}, {"enum": ["a"]}),
    "one allOf": ({"allOf": [INTEGER], "description": "d"}, INTEGER),
    "a reference": (
        an_object(properties={"a": {"$ref": "#/definitions/x~1y"}}, definitions={"x/y": INTEGER}),
        an_object(properties={"a": {"$ref": "#/$defs/d0"}}) | {"$defs": {"d0": INTEGER}},
    ),
    "a recursion": (
        an_object(properties={"next": {"anyOf": [{"$ref": "#"}, {"type": "null"}]}}),
        an_object(properties={"next": {"anyOf": [{"$ref": "#/$defs/d0"}, {"type": "null"}]}})
        | {"$defs": {"d0": an_object(properties={"next": {"anyOf": [{"$ref": "#/$defs/d0"}, {"type": "null"}]}})}},
    ),
    "a length of one repeated character": (
        {"type": "string", "pattern": "^[A-Z][a-z]*$", "minLength": 2, "maxLength": 10},
        {"type": "string", "pattern": "^[A-Z](?:[a-z]){1,9}$"},
    ),
    "multiples between bounds": (
        {"type": "number", "multipleOf": 0.1, "minimum": 0, "exclusiveMaximum": 0.4}, {"enum": [0, 0.1, 0.2, 0.3]}
    ),
    "the lists of draft 7": (
        {"type": "array", "items": [STRING], "additionalItems": False},
        {"type": "array", "prefixItems": [STRING], "items": False},
    ),
    "a list that has to be empty": (
        {"type": "array", "prefixItems": [STRING], "maxItems": 0}, {"type": "array", "items": False}
    ),
}  # fmt: skip


@pytest.mark.parametrize("case", ENFORCED)
def test_a_held_schema_says_the_same_in_fewer_keywords(case: str) -> None:
    schema, enforced = ENFORCED[case]
    assert in_one_go(enforced_schema(schema, "s")) == enforced


CHECKED: dict[str, tuple[Any, Any]] = {
    "a length beside a format": (STRING | {"format": "uri", "minLength": 1, "maxLength": 2083},
                                 STRING | {"format": "uri"}),
    "a length beside a pattern": (STRING | {"pattern": "a", "maxLength": 9},
                                  STRING | {"pattern": r"^[\s\S]*a[\s\S]*$"}),
    "a length that no engine counts": (STRING | {"maxLength": MAX_LENGTH + 1}, STRING),
    "unique elements": ({"type": "array", "items": INTEGER, "uniqueItems": True},
                        {"type": "array", "items": INTEGER, "uniqueItems": True}),
    "multiples of a number": ({"type": "number", "multipleOf": 0.01}, {"type": "number"}),
}  # fmt: skip
"""What an engine gets of a schema of which only the check at the end follows all."""


@pytest.mark.parametrize("case", CHECKED)
def test_what_no_engine_follows_is_left_for_the_check_at_the_end(case: str) -> None:
    schema, sent = CHECKED[case]
    enforced = in_one_go(enforced_schema(schema, "s"))
    assert set(enforced) == set(schema)
    assert json.loads(content_tag(schema_content(enforced)))["format"]["json_schema"] == sent
    assert checked_alone(enforced)
    assert in_one_go(enforced_schema(schema, "s", strict=False)) is None


def test_one_of_several_objects_is_held_where_a_constant_tells_them_apart() -> None:
    kinds = [an_object(properties={"kind": {"const": kind}}, required=["kind"]) for kind in ("a", "b")]
    schema = {"oneOf": [{"$ref": "#/$defs/A"}, kinds[1]], "$defs": {"A": kinds[0]}}
    assert len(in_one_go(enforced_schema(schema, "s"))["anyOf"]) == 2


LARGE = {
    "tagged objects": {"oneOf": [an_object(properties={"k": {"const": n}}, required=["k"]) for n in range(2_000)]},
    "a chain of references": an_object(properties={f"p{n}": {"$ref": f"#/$defs/d{n}"} for n in range(1_500)})
    | {"$defs": {f"d{n}": {"$ref": f"#/$defs/d{n + 1}"} for n in range(1_500)} | {"d1500": STRING}},
    "the same again": an_object(properties={f"p{n}": {"oneOf": [{"$ref": "#/$defs/a"}, INTEGER]} for n in range(1_000)})
    | {"$defs": {"a": {"enum": [str(n) for n in range(2_000)]}}},
}


@pytest.mark.parametrize("case", LARGE)
def test_no_schema_takes_longer_than_its_length_says(case: str) -> None:
    began = process_time()
    in_one_go(enforced_schema(LARGE[case], "s"))
    assert process_time() - began < 0.5


VALUES = st.recursive(
    st.none() | st.booleans() | st.integers(-9, 9) | st.text("ab\n", max_size=3) | st.sampled_from([0.5, 2.0]),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.sampled_from("abc"), inner, max_size=3),
    max_leaves=6,
)
LEAVES = st.sampled_from([
    {}, True, INTEGER, STRING, {"type": ["integer", "null"], "minimum": 1}, {"type": "string", "pattern": "a$"},
    {"enum": ["a", 1, None]}, {"type": "number", "exclusiveMaximum": 2}, {"type": "string", "maxLength": 2},
    {"type": "string", "pattern": "^[ab]*$|^a{1,3}$", "minLength": 1, "maxLength": 2},
    {"type": "number", "multipleOf": 0.5, "minimum": -9, "maximum": 2}, {"type": "integer", "multipleOf": 1.5},
    {"type": "array", "uniqueItems": True},
])  # fmt: skip


def _larger(inner: st.SearchStrategy[Any]) -> st.SearchStrategy[Any]:
    objects = st.builds(
        lambda properties, required, more: an_object(properties=properties, required=required, **more),
        st.dictionaries(st.sampled_from("abc"), inner, max_size=3),
        st.lists(st.sampled_from("abc"), max_size=2, unique=True),
        inner.map(lambda others: {"additionalProperties": others}) | st.sampled_from([{}, {"maxProperties": 2}]),
    )
    arrays = st.builds(
        lambda items, least: {"type": "array", "items": items, "minItems": least}, inner, st.integers(0, 2)
    )
    return objects | arrays | st.lists(inner, min_size=1, max_size=2).map(lambda each: {"anyOf": each})


@given(st.recursive(LEAVES, _larger, max_leaves=5), st.lists(VALUES, min_size=8, max_size=8))
def test_whatever_a_held_schema_allows_the_schema_allows(schema: Any, values: list[Any]) -> None:
    try:
        enforced = in_one_go(enforced_schema(schema, "s"))
    except InvalidRequest:
        return
    given, kept = jsonschema_rs.validator_for(schema), jsonschema_rs.validator_for(enforced)
    for value in values:
        assert not kept.is_valid(value) or given.is_valid(value)
