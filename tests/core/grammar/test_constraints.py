"""What holds the model: the tags that engines are sent, and what is said of a text that doesn't match."""

import json
import time
from typing import Any

import pytest

from service.api.tools.callee import Callee, Choice
from service.grammar.checks import MAX_CHECKED_CHARS, mismatch
from service.grammar.tags import HeaderState, grammar_content, regex_content, schema_content
from service.harmony import tokens
from service.responses.output.reading import header_tag
from service.responses.output.rules import Rules

F = Callee("f")
RAW = Callee("raw", "custom")
POINT = schema_content({"type": "object", "properties": {"x": {"type": "integer"}}, "required": ["x"]})
LISTS = {"type": "array", "items": {"$ref": "#/$defs/d0"}}
TWO_WAYS = schema_content({
    "$ref": "#/$defs/d0", "$defs": {"d0": {"anyOf": [LISTS | {"minItems": 2}, LISTS, {"type": "integer"}]}},
})  # fmt: skip


def tag(rules: Rules, state: HeaderState = HeaderState.NEXT) -> dict[str, Any]:
    made = header_tag(rules, state)
    assert made is not None
    return json.loads(made)["format"]


def constants(part: Any) -> list[str]:
    """The texts of a format, in their order."""
    if isinstance(part, list):
        return [text for each in part for text in constants(each)]
    if not isinstance(part, dict):
        return []
    return [part["value"]] if part.get("type") == "const_string" else constants(list(part.values()))


def marks(part: Any) -> set[int]:
    """The tokens that a format names."""
    if isinstance(part, list):
        return set().union(*(marks(each) for each in part)) if part else set()
    if not isinstance(part, dict):
        return set()
    return {part["token"]} if part.get("type") == "token" else marks(list(part.values()))


@pytest.mark.parametrize("choice", ["auto", "none"])
def test_nothing_is_held_where_nothing_is_asked(choice: Choice) -> None:
    assert header_tag(Rules(choice=choice), HeaderState.NEXT) is None
    assert header_tag(Rules((F,)), HeaderState.NEXT) is None


def test_only_allowed_tools_are_let_through() -> None:
    texts = constants(tag(Rules((F, RAW), allowed=frozenset({"functions.raw"}))))
    assert {"functions.raw", "final"} <= set(texts)
    assert "functions.f" not in texts


@pytest.mark.parametrize("state", HeaderState)
def test_no_tag_names_a_token_that_stops(state: HeaderState) -> None:
    assert marks(tag(Rules((F, RAW), choice="required"), state)).isdisjoint(tokens.STOPS)


@pytest.mark.parametrize(
    ("content", "text", "says"),
    [
        (POINT, '{"x": 1}', None),
        (POINT, '{"x": 1', "it is not valid JSON"),
        (POINT, "[" * 100_000, "it is not valid JSON"),
        (POINT, '{"x": "secret"}', "it does not match the schema"),
        (POINT, '{"x": ' + "[" * 900 + "]" * 900 + "}", "it does not match the schema"),
        (TWO_WAYS, "[" * 40 + '""' + "]" * 40, "it does not match the schema"),
        (regex_content("a|b"), "ab", "it does not match the pattern"),
        (POINT, " " * (MAX_CHECKED_CHARS + 1), "it has 1048577 characters, and at most 1048576 can be checked"),
    ],
)
def test_what_is_wrong_with_a_text_is_said_without_quoting_it(content: str, text: str, says: str | None) -> None:
    assert mismatch(content, text) == says


def test_a_text_under_a_grammar_is_taken_where_that_was_enforced_alone() -> None:
    content = grammar_content('root ::= "a"')
    assert mismatch(content, "b", enforced=True) is None
    assert (
        mismatch(content, "a")
        == "its grammar was not enforced to the end, because another process continued the response"
    )


def doubling(depth: int) -> str:
    """A schema whose every level looks twice at the next one."""
    definitions: dict[str, Any] = {"d0": {"enum": [0]}}
    for level in range(depth):
        pairs = [{"type": "array", "prefixItems": [{"$ref": f"#/$defs/d{level}"}, {"enum": [end]}]} for end in (1, 2)]
        ends = [{**each, "items": False, "minItems": 2} for each in pairs]
        definitions[f"d{level + 1}"] = {"anyOf": ends}
    return schema_content({"$ref": f"#/$defs/d{depth}", "$defs": definitions})


def nested(depth: int, innermost: int = 0) -> str:
    """A value that the second of each two lets through."""
    return "[" * depth + str(innermost) + ",2]" * depth


SLOW_PATTERN = "a{0,1024}" * 15 + "a{1024}" * 16 + "b"
MANY_CONSTANTS = schema_content({"items": {"anyOf": [{"enum": [f"{n}"]} for n in range(900)]}})
SECONDS = 0.5
"""More than the check of a text takes on a busy machine, and much less than those here would."""


def test_branches_in_branches_are_checked_while_they_take_little() -> None:
    assert mismatch(doubling(12), nested(12)) is None
    assert mismatch(doubling(12), nested(12, innermost=3)) == "it does not match the schema"


def test_what_no_engine_follows_is_never_taken_unchecked() -> None:
    unique = schema_content({"type": "array", "items": {}, "uniqueItems": True})
    assert mismatch(unique, json.dumps(list(range(20_000))), enforced=True) is None
    assert mismatch(unique, json.dumps([*range(20_000), 7]), enforced=True) == "it does not match the schema"
    began = time.thread_time()
    assert mismatch(unique, json.dumps(list(range(120_000))), enforced=True) == "it takes too long to be checked"
    assert time.thread_time() - began < SECONDS


@pytest.mark.parametrize(
    ("content", "text"),
    [
        (doubling(40), nested(40)),
        (MANY_CONSTANTS, json.dumps(["x"] * 5_000)),
        (regex_content(SLOW_PATTERN), "a" * 20_000),
    ],
    ids=["doubling", "constants", "a pattern"],
)
def test_what_would_take_long_matches_if_it_was_enforced_and_is_else_refused(content: str, text: str) -> None:
    began = time.thread_time()
    assert mismatch(content, text) == "it takes too long to be checked"
    assert mismatch(content, text, enforced=True) is None
    assert time.thread_time() - began < SECONDS
