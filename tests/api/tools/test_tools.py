"""Tools as they are declared: what the prompt shows, who may be called, what is echoed, and what is refused."""

from typing import Any

import msgspec
import pytest
from openai_harmony import DeveloperContent, Message, Role, ToolDescription, ToolNamespaceConfig

from service.api.tools.callee import Callee
from service.api.tools.read import TOOL_LISTS_CACHED, Tools, read_tools
from service.errors import InvalidRequest
from service.responses.output.rules import Rules
from service.steps import in_one_go
from tests.support.oracles.harmony import Oracle
from tests.support.steps import timed_steps

TOOL: dict[str, Any] = {"type": "function", "name": "f", "description": "Does f.", "parameters": {"type": "object"}}
CUSTOM: dict[str, Any] = {"type": "custom", "name": "c", "description": "Does c."}
MAX_TOOLS = 8
MAX_TOOLS_BYTES = 4096
STEP_SECONDS = 0.25
"""What a step may take on a busy machine."""

UNHOLDABLE = {"type": "object", "properties": {"a": {"$ref": "https://example.com/a.json"}}}


def raw(value: Any) -> msgspec.Raw:
    return msgspec.Raw(value if isinstance(value, bytes) else msgspec.json.encode(value))


def tools(value: Any, *added: tuple[str, Any]) -> Tools:
    more = [(where, raw(each)) for where, each in added]
    return in_one_go(read_tools(raw(value), max_tools=MAX_TOOLS, max_bytes=MAX_TOOLS_BYTES, added=more))


def namespace(name: str, *members: Any, **more: Any) -> dict[str, Any]:
    return {"type": "namespace", "name": name, "description": f"The {name}.", "tools": list(members), **more}


def recipients(read: Tools) -> list[str]:
    return [callee.recipient for callee in read.callees]


# --- functions ---


def test_a_function_is_echoed_with_every_key() -> None:
    assert tools([TOOL]).echo == ({**TOOL, "strict": True},)
    assert tools([{"type": "function", "name": "g"}]).echo == (
        {"type": "function", "name": "g", "description": None, "parameters": None, "strict": True},
    )


@pytest.mark.parametrize("value", [[], None])
def test_no_tools_are_no_tools(value: object) -> None:
    assert tools(value) == Tools()


@pytest.mark.parametrize("strict", [{}, {"strict": None}, {"strict": True}], ids=str)
def test_arguments_are_held_unless_strict_is_false(strict: dict[str, Any]) -> None:
    (enforced,) = tools([{**TOOL, **strict}]).callees
    (free,) = tools([{**TOOL, "strict": False}]).callees

    assert enforced.content is not None
    assert free.content is None
    assert [tools([{**TOOL, **each}]).echo[0]["strict"] for each in (strict, {"strict": False})] == [True, False]


@pytest.mark.parametrize(("parameters", "others"), [(None, False), ({}, True)])
def test_without_parameters_the_arguments_are_an_object_all_the_same(parameters: Any, others: bool) -> None:
    (callee,) = tools([{**TOOL, "parameters": parameters}]).callees
    enforced = msgspec.json.decode(callee.content or "null")["json_schema"]

    assert (enforced["type"], enforced["additionalProperties"]) == ("object", others)
    assert "properties" not in enforced or enforced["properties"] == {}


@pytest.mark.parametrize("strict", [{}, {"strict": None}, {"strict": False}], ids=str)
def test_a_schema_that_cannot_be_held_is_free_where_strict_does_not_ask(strict: dict[str, Any]) -> None:
    read = tools([{**TOOL, "parameters": UNHOLDABLE, **strict}])

    assert read.callees == (Callee("f"),)
    assert read.echo[0]["strict"] is False


def test_members_without_a_place_of_their_own_are_echoed_where_given() -> None:
    given = {"output_schema": {"type": "string"}, "defer_loading": True, "allowed_callers": ["direct"]}

    assert tools([{**TOOL, **given}]).echo == ({**TOOL, "strict": True, **given},)


def test_a_deferred_tool_is_shown_at_once() -> None:
    """There is no tool search here that could load it later."""
    assert "type f = " in tools([{**TOOL, "defer_loading": True}]).section


# --- namespaces ---


def test_a_namespace_becomes_one_of_harmonys() -> None:
    read = tools([TOOL, namespace("clock", {**TOOL, "name": "sleep"})])

    assert recipients(read) == ["clock.sleep", "functions.f"]
    assert read.namespaces == ("clock", "functions")
    assert "// The clock.\nnamespace clock {\n\n// Does f.\ntype sleep = " in read.section


def test_the_sections_of_namespaces_equal_those_of_openai_harmony(oracle: Oracle) -> None:
    member = {"type": "function", "name": "f", "description": "Does f."}
    read = tools([namespace("zoo", member), member, namespace("alpha", member, description=None)])

    described = [ToolDescription(name="f", description="Does f.", parameters=None)]
    content = DeveloperContent().with_function_tools(described)
    for name, about in (("zoo", "The zoo."), ("alpha", None)):
        content = content.with_tools(ToolNamespaceConfig(name=name, description=about, tools=described))
    _start, _role, _message, *ids, _end = oracle.encoding.render(Message.from_role_and_content(Role.DEVELOPER, content))
    assert oracle.encoding.decode_utf8(ids) == f"# Tools\n\n{read.section}"


def test_a_namespace_is_echoed_with_its_tools() -> None:
    read = tools([namespace("clock", TOOL, CUSTOM)])

    assert read.echo == (namespace("clock", {**TOOL, "strict": True}, {**CUSTOM, "format": {"type": "text"}}),)


def test_tools_of_one_name_may_stand_in_different_namespaces() -> None:
    read = tools([TOOL, namespace("a", TOOL), namespace("b", TOOL)])

    assert recipients(read) == ["a.f", "b.f", "functions.f"]
    assert {callee.name for callee in read.callees} == {"f"}


def test_a_namespace_called_functions_is_that_of_all_other_tools() -> None:
    read = tools([namespace("functions", TOOL, description=""), {**TOOL, "name": "g"}])

    assert [(callee.recipient, callee.namespace) for callee in read.callees] == [
        ("functions.f", None),
        ("functions.g", None),
    ]
    assert read.section.count("namespace functions {") == 1


def test_an_empty_namespace_is_echoed_and_not_shown() -> None:
    read = tools([namespace("clock")])

    assert (read.section, read.namespaces, read.callees) == ("", (), ())
    assert read.echo == (namespace("clock"),)


def test_each_tool_of_a_namespace_counts() -> None:
    many = [{**TOOL, "name": f"f{n}"} for n in range(MAX_TOOLS)]

    assert len(tools([namespace("a", *many)]).callees) == MAX_TOOLS
    with pytest.raises(InvalidRequest, match=f"at most {MAX_TOOLS}"):
        tools([namespace("a", *many), TOOL])


# --- tools that are added ---


def test_added_tools_join_those_of_the_request() -> None:
    read = tools([TOOL], ("input[0].tools", [{**TOOL, "name": "g"}, namespace("clock", TOOL)]))

    assert recipients(read) == ["clock.f", "functions.f", "functions.g"]
    assert read.echo == tools([TOOL]).echo


def test_an_added_tool_takes_the_place_of_an_earlier_one() -> None:
    read = tools([TOOL], ("input[3].tools", [{**TOOL, "description": "Does f better."}]))

    assert recipients(read) == ["functions.f"]
    assert "// Does f better." in read.section
    assert "// Does f.\n" not in read.section


def test_all_lists_together_keep_to_the_limits() -> None:
    with pytest.raises(InvalidRequest, match=f"at most {MAX_TOOLS_BYTES}"):
        tools([TOOL], ("input[0].tools", [{**TOOL, "description": "d" * (MAX_TOOLS_BYTES - 100)}]))


# --- the whole ---


def test_the_callees_are_what_the_rules_look_up() -> None:
    rules = Rules(callees=tools([TOOL, namespace("clock", {**TOOL, "name": "sleep"}), CUSTOM]).callees)

    names = [rules.callee_of(to, "commentary") for to in ("functions.f", "clock.sleep", "sleep", "c", "functions.c")]
    assert [callee.recipient for callee in names if isinstance(callee, Callee)] == [
        "functions.f",
        "clock.sleep",
        "clock.sleep",
        "functions.c",
        "functions.c",
    ]


def test_the_same_list_is_read_once_while_it_is_in_use() -> None:
    first = tools([TOOL])
    for number in range(TOOL_LISTS_CACHED - 1):
        tools([{**TOOL, "name": f"f{number}"}])

    assert tools([TOOL]) is first
    for number in range(TOOL_LISTS_CACHED):
        tools([{**TOOL, "name": f"f{number}"}])
    assert tools([TOOL]) is not first


def test_a_long_list_is_read_in_short_steps() -> None:
    schema = {"type": "object", "properties": {f"p{n}": {"type": "string", "description": "x" * 40} for n in range(60)}}
    many = raw([{**TOOL, "name": f"f{n}", "parameters": schema} for n in range(100)])

    read, seconds = timed_steps(read_tools(many, max_tools=128, max_bytes=1_048_576))

    assert len(read.callees) == 100
    assert len(seconds) > 200  # each function is a step when it is read, and when it is written
    assert max(seconds) < STEP_SECONDS
