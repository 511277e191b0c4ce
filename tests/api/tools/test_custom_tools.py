"""Custom tools: a text in a JSON object where any will do, the bare text where a grammar must hold."""

from typing import Any

import msgspec
import pytest

from service.api.tools.callee import Callee
from service.api.tools.read import MAX_GRAMMARS, Tools, read_tools
from service.errors import InvalidRequest
from service.steps import in_one_go
from tests.support.documents import block

LARK = 'start: "on" | "off"\n'
CUSTOM: dict[str, Any] = {"type": "custom", "name": "lamp", "description": "Switches the lamp."}


def tools(*value: Any) -> Tools:
    return in_one_go(read_tools(msgspec.Raw(msgspec.json.encode(value)), max_tools=32, max_bytes=1_048_576))


def grammar(syntax: str, definition: str) -> dict[str, Any]:
    return {**CUSTOM, "format": {"type": "grammar", "syntax": syntax, "definition": definition}}


def callee(tool: dict[str, Any]) -> Callee:
    (only,) = tools(tool).callees
    return only


@pytest.mark.parametrize("form", [{}, {"format": None}, {"format": {"type": "text"}}], ids=str)
def test_any_text_is_the_one_parameter_of_a_function(form: dict[str, Any]) -> None:
    read = tools({**CUSTOM, **form})

    assert "// Switches the lamp.\ntype lamp = (_: {\ninput: string,\n}) => any;" in read.section
    assert read.callees[0].wrapped
    assert read.echo == ({**CUSTOM, "format": {"type": "text"}},)


def test_the_content_of_any_text_is_held_as_an_object_with_one_text() -> None:
    enforced = msgspec.json.decode(callee(CUSTOM).content or "null")["json_schema"]

    assert enforced["properties"] == {"input": {"type": "string"}}
    assert (enforced["required"], enforced["additionalProperties"]) == (["input"], False)


@pytest.mark.parametrize(("syntax", "definition"), [("lark", LARK), ("regex", "on|off")])
def test_a_text_under_a_grammar_stands_bare_and_is_held(syntax: str, definition: str) -> None:
    made = callee(grammar(syntax, definition))

    assert not made.wrapped
    assert msgspec.json.decode(made.content or "null")["type"] == {"lark": "grammar", "regex": "regex"}[syntax]


@pytest.mark.parametrize(
    ("syntax", "definition", "told"),
    [
        ("lark", LARK, '// this Lark grammar:\n// start: "on" | "off"\n'),
        ("regex", "on|off", "// this regular expression:\n// on|off\n"),
    ],
)
def test_the_model_is_told_the_grammar_and_that_it_is_no_json(syntax: str, definition: str, told: str) -> None:
    section = tools(grammar(syntax, definition)).section

    opening = "// Switches the lamp.\n// \n// The input is plain text, not JSON. It must match "
    assert f"{opening}{told.removeprefix('// ')}type lamp = (_: string) => any;" in section


def test_the_format_is_echoed_as_sent() -> None:
    assert tools(grammar("lark", LARK)).echo == (grammar("lark", LARK),)


def test_a_custom_tool_may_stand_in_a_namespace() -> None:
    (made,) = tools({"type": "namespace", "name": "home", "description": "", "tools": [CUSTOM]}).callees

    assert (made.recipient, made.kind, made.wrapped) == ("home.lamp", "custom", True)


def test_only_so_many_tools_may_have_a_grammar() -> None:
    many = [{**grammar("regex", "on|off"), "name": f"lamp{n}"} for n in range(MAX_GRAMMARS + 1)]

    assert len(tools(*many[1:], CUSTOM).callees) == MAX_GRAMMARS + 1
    with pytest.raises(InvalidRequest, match=f"At most {MAX_GRAMMARS}") as caught:
        tools(*many)
    assert caught.value.param == f"tools[{MAX_GRAMMARS}].format"


def test_the_handbook_shows_what_the_model_sees() -> None:
    read = tools(*msgspec.json.decode(block("docs/harmony.md", "json tools")))

    assert read.section == block("docs/harmony.md", "text tools")
    assert read.left_out == ("web_search",)
