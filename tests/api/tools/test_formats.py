"""`text.format`: what is enforced of the answer, and what the prompt says of it."""

import json
from typing import Any

import msgspec
import pytest

from service.api.tools.format import TEXT, AnswerFormat, read_format
from service.grammar.checks import mismatch
from service.steps import in_one_go

SCHEMA = {"type": "object", "properties": {"city": {"type": "string"}}, "required": ["city"]}
UNHELD = {"type": "array", "items": {}, "contains": {}}


def read(sent: Any) -> AnswerFormat:
    return in_one_go(read_format(msgspec.Raw(json.dumps(sent).encode())))


@pytest.mark.parametrize("sent", [None, {"type": "text"}])
def test_text_is_free(sent: Any) -> None:
    assert read(sent) == TEXT


def test_a_json_object_is_any_object() -> None:
    found = read({"type": "json_object"})
    assert found.echo == {"type": "json_object"}
    assert found.content is not None
    assert mismatch(found.content, '{"a": [1]}') is None
    assert mismatch(found.content, "[]") is not None
    assert found.section.startswith("# Response Formats\n\n## json_object\n\n")


@pytest.mark.parametrize("strict", [True, False, None])
def test_a_schema_is_held_strict_or_not(strict: bool | None) -> None:
    found = read({"type": "json_schema", "name": "place", "schema": SCHEMA, "strict": strict})
    assert found.content is not None
    assert mismatch(found.content, '{"city": "Brest"}') is None
    assert mismatch(found.content, "{}") is not None
    assert found.echo["strict"] is bool(strict)


def test_the_model_is_told_of_a_schema_as_harmony_writes_it() -> None:
    found = read({"type": "json_schema", "name": "place", "description": "Where.", "schema": SCHEMA})
    assert found.section == (
        "# Response Formats\n\n## place\n\n// Where.\n"
        '{"type":"object","properties":{"city":{"type":"string"}},"required":["city"]}'
    )


def test_a_schema_that_cannot_be_held_and_need_not_be_leaves_json() -> None:
    found = read({"type": "json_schema", "name": "set", "schema": UNHELD})
    assert found.content is not None
    assert mismatch(found.content, "[1, 1]") is None
    assert '"contains":{}' in found.section


def test_an_object_stays_one_where_the_rest_of_its_schema_cannot_be_held() -> None:
    found = read({"type": "json_schema", "name": "set", "schema": {"type": "object", "not": {}}})
    assert found.content == read({"type": "json_object"}).content
