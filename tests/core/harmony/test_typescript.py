"""Function signatures equal openai-harmony's whatever a client sends, and hostile schemas stay cheap."""

import time
from collections.abc import Sequence
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from service.harmony import typescript
from tests.support.oracles.harmony import Oracle

LINEAR_SECONDS = 2.0
"""Far above what linear work on a megabyte takes, far below what quadratic work does."""


def section(name: str, functions: Sequence[typescript.Function], description: str | None = None) -> str:
    return typescript.namespace(name, [typescript.declaration(function) for function in functions], description)


# --- schemas as clients write them, and as they shouldn't ---

words = st.sampled_from(
    ["", "a", "null", 'q"uote', "back\\slash", "two\nlines", "cr\r\nlf", "日本", "🙂\u2028", "\x01\x7f"]
)
short_floats = st.builds(  # openai-harmony's JSON parser may miss the last bit of longer ones
    lambda digits, exponent: float(f"{digits}e{exponent}"), st.integers(-(10**15), 10**15), st.integers(-20, 5)
)
numbers = st.integers(-(2**63), 2**64) | short_floats
scalars = st.none() | st.booleans() | numbers | words
anything = st.recursive(
    scalars, lambda inner: st.lists(inner, max_size=3) | st.dictionaries(words, inner, max_size=3), max_leaves=6
)


def usually(strategy: st.SearchStrategy[Any]) -> st.SearchStrategy[Any]:
    """A value of the right kind, or now and then any other."""
    return st.one_of(strategy, strategy, strategy, anything)


def described(inner: st.SearchStrategy[Any]) -> st.SearchStrategy[dict[str, Any]]:
    """A schema with the keywords that are rendered, each of them optional, around `inner` ones."""
    kinds = st.sampled_from(["object", "string", "number", "integer", "boolean", "array", "null", ""])
    keywords: dict[str, st.SearchStrategy[Any]] = {
        "type": usually(kinds | kinds | st.lists(kinds, max_size=3)),
        "title": usually(words),
        "description": usually(words),
        "default": usually(words),
        "examples": usually(st.lists(words, max_size=3)),
        "enum": usually(st.lists(words, max_size=3)),
        "nullable": usually(st.booleans()),
        "required": usually(st.lists(words, max_size=3)),
        "items": inner,
        "properties": usually(st.dictionaries(words, inner, max_size=3)),
        "oneOf": usually(st.lists(inner, max_size=3)),
    }
    return st.sets(st.sampled_from(sorted(keywords)), max_size=6).flatmap(
        lambda chosen: st.fixed_dictionaries({key: keywords[key] for key in sorted(chosen)})
    )


schemas = st.recursive(anything, described, max_leaves=8)
parameters = described(schemas) | st.fixed_dictionaries(
    {"type": st.just("object"), "properties": st.dictionaries(words, described(schemas), min_size=1, max_size=3)},
    optional={"required": st.lists(words), "description": words},
)
functions = st.builds(typescript.Function, name=words, description=words, parameters=st.none() | parameters)


def type_of(schema: Any) -> str:
    return (
        typescript.declaration(typescript.Function("f", "", schema))
        .removeprefix("type f = (_: ")
        .removesuffix(") => any;\n")
    )


@given(name=words, functions=st.lists(functions, max_size=3), description=st.none() | words)
def test_any_namespace_equals_that_of_openai_harmony(
    oracle: Oracle, name: str, functions: list[typescript.Function], description: str | None
) -> None:
    assert section(name, functions, description) == oracle.namespace(name, functions, description)


# --- the rules one by one ---


@pytest.mark.parametrize(
    "number", [0.0, -0.0, 1e-4, 1e-5, -1.5e-5, 1e-6, 1e15, 1e16, -2.5e17, 1e300, 5e-324, 2**64, 2**80]
)
def test_a_number_prints_as_in_rust(oracle: Oracle, number: float) -> None:
    taking = [typescript.Function("f", "", {"oneOf": [{"default": number}]})]

    assert section("n", taking) == oracle.namespace("n", taking)


@pytest.mark.parametrize("number", [float("nan"), 10**5000], ids=["nan", "huge"])
def test_a_number_that_json_cannot_hold_is_null(number: float) -> None:
    assert type_of({"oneOf": [{"default": number}]}) == "\n | any // default: null"


# --- hostile schemas ---


def nested(depth: int) -> object:
    """A schema of arrays in arrays, `depth` objects deep."""
    schema: dict[str, object] = {"type": "array"}
    for _ in range(depth - 1):
        schema = {"type": "array", "items": schema}
    return schema


@pytest.mark.parametrize("depth", [typescript.DEPTH_LIMIT + 1, 100_000])
def test_a_schema_beyond_the_limit_is_refused_before_python_runs_out_of_stack(depth: int) -> None:
    assert type_of(nested(typescript.DEPTH_LIMIT)) == "Array<any>" + "[]" * (typescript.DEPTH_LIMIT - 1)
    with pytest.raises(typescript.SchemaTooLarge, match=f"more than {typescript.DEPTH_LIMIT}"):
        type_of(nested(depth))


def buried(schema: object) -> object:
    """`schema` as far down as it may be, where each of its lines is indented most."""
    for _ in range((typescript.DEPTH_LIMIT - 2) // 2):
        schema = {"type": "object", "properties": {"p": schema}}
    return schema


MANY = typescript.VALUES_LIMIT - 200

WIDE: dict[str, object] = {
    "an enum": {"type": "string", "enum": ["v"] * MANY},
    "properties": {"type": "object", "properties": {f"p{number}": {} for number in range(MANY)}},
    "buried variants": buried({"oneOf": [True] * MANY}),
    "a long description": buried({"type": "object", "description": "d" * 2_000_000}),
}


@pytest.mark.parametrize("schema", WIDE.values(), ids=WIDE.keys())
def test_a_wide_schema_takes_linear_time(schema: object) -> None:
    began = time.thread_time()
    type_of(schema)

    assert time.thread_time() - began < LINEAR_SECONDS


def test_more_values_than_the_limit_are_refused() -> None:
    type_of([None] * (typescript.VALUES_LIMIT - 1))

    with pytest.raises(typescript.SchemaTooLarge, match=f"more than {typescript.VALUES_LIMIT}"):
        type_of([None] * typescript.VALUES_LIMIT)
