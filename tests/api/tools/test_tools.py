"""Tools as they are declared: what the prompt shows, who may be called, what is echoed, and what must be held."""

import json
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st
from openai_harmony import DeveloperContent, Message, Role, ToolDescription, ToolNamespaceConfig

from service.api.tools.builtin import DECLARED_BY, browser, python
from service.api.tools.callee import Callee
from service.api.tools.choice import Chosen, read_choice
from service.api.tools.client import CLIENT
from service.api.tools.format import AnswerFormat, read_format
from service.api.tools.hosted import HOSTED
from service.api.tools.read import MAX_GRAMMARS, Tools, read_tools
from service.errors import InvalidRequest
from service.grammar.checks import mismatch
from service.steps import in_one_go
from tests.support.documents import block
from tests.support.oracles.harmony import Oracle

TOOL: dict[str, Any] = {"type": "function", "name": "f", "description": "Does f.", "parameters": {"type": "object"}}
MAX_TOOLS = 8
MAX_TOOLS_BYTES = 4096
UNHOLDABLE = {"type": "object", "properties": {"a": {"$ref": "https://example.com/a.json"}}}


def raw(value: Any) -> msgspec.Raw:
    return msgspec.Raw(msgspec.json.encode(value))


def tools(*value: Any) -> Tools:
    return in_one_go(read_tools(raw(value), max_tools=128, max_bytes=1_048_576))


def declared(value: Any, *added: tuple[str, Any]) -> Tools:
    more = [(where, raw(each)) for where, each in added]
    return in_one_go(read_tools(raw(value), max_tools=MAX_TOOLS, max_bytes=MAX_TOOLS_BYTES, added=more))


def namespace(name: str, *members: Any, **more: Any) -> dict[str, Any]:
    return {"type": "namespace", "name": name, "description": f"The {name}.", "tools": list(members), **more}


def recipients(read: Tools) -> list[str]:
    return [callee.recipient for callee in read.callees]


# --- functions ---


def test_a_function_is_echoed_with_every_key() -> None:
    assert declared([TOOL]).echo == ({**TOOL, "strict": True},)
    assert declared([{"type": "function", "name": "g"}]).echo == (
        {"type": "function", "name": "g", "description": None, "parameters": None, "strict": True},
    )


@pytest.mark.parametrize("strict", [{}, {"strict": None}, {"strict": True}], ids=str)
def test_arguments_are_held_unless_strict_is_false(strict: dict[str, Any]) -> None:
    (enforced,) = declared([{**TOOL, **strict}]).callees
    (free,) = declared([{**TOOL, "strict": False}]).callees

    assert enforced.content is not None
    assert free.content is None
    assert [declared([{**TOOL, **each}]).echo[0]["strict"] for each in (strict, {"strict": False})] == [True, False]


@pytest.mark.parametrize(("parameters", "others"), [(None, False), ({}, True)])
def test_without_parameters_the_arguments_are_an_object_all_the_same(parameters: Any, others: bool) -> None:
    (callee,) = declared([{**TOOL, "parameters": parameters}]).callees
    enforced = msgspec.json.decode(callee.content or "null")["json_schema"]

    assert (enforced["type"], enforced["additionalProperties"]) == ("object", others)
    assert "properties" not in enforced or enforced["properties"] == {}


@pytest.mark.parametrize("strict", [{}, {"strict": None}, {"strict": False}], ids=str)
def test_a_schema_that_cannot_be_held_is_free_where_strict_does_not_ask(strict: dict[str, Any]) -> None:
    read = declared([{**TOOL, "parameters": UNHOLDABLE, **strict}])

    assert read.callees == (Callee("f"),)
    assert read.echo[0]["strict"] is False


def test_a_deferred_tool_is_shown_at_once() -> None:
    """There is no tool search here that could load it later."""
    assert "type f = " in declared([{**TOOL, "defer_loading": True}]).section


# --- namespaces ---


def test_the_sections_of_namespaces_equal_those_of_openai_harmony(oracle: Oracle) -> None:
    member = {"type": "function", "name": "f", "description": "Does f."}
    read = declared([namespace("zoo", member), member, namespace("alpha", member, description=None)])

    described = [ToolDescription(name="f", description="Does f.", parameters=None)]
    content = DeveloperContent().with_function_tools(described)
    for name, about in (("zoo", "The zoo."), ("alpha", None)):
        content = content.with_tools(ToolNamespaceConfig(name=name, description=about, tools=described))
    _start, _role, _message, *ids, _end = oracle.encoding.render(Message.from_role_and_content(Role.DEVELOPER, content))
    assert oracle.encoding.decode_utf8(ids) == f"# Tools\n\n{read.section}"


# --- tools that are added ---


def test_an_added_tool_takes_the_place_of_an_earlier_one() -> None:
    read = declared([TOOL], ("input[3].tools", [{**TOOL, "description": "Does f better."}]))

    assert recipients(read) == ["functions.f"]
    assert "// Does f better." in read.section
    assert "// Does f.\n" not in read.section


# --- the whole ---


# --- the choice among them ---

DECLARED: list[Any] = [
    {"type": "function", "name": "f"},
    {"type": "custom", "name": "c"},
    {"type": "function", "name": "sleep"},
    {"type": "namespace", "name": "clock", "tools": [{"type": "function", "name": n} for n in ("sleep", "now")]},
    {"type": "namespace", "name": "zoo", "tools": [{"type": "function", "name": "feed"}]},
    {"type": "namespace", "name": "farm", "tools": [{"type": "function", "name": "feed"}]},
    {"type": "web_search"},
]
NAMED = {"type": "function", "name": "f"}


def chosen(value: Any, declared: list[Any] = DECLARED) -> Chosen:
    return read_choice(raw(value), tools(*declared))


def allowed(*named: Any, **more: Any) -> dict[str, Any]:
    return {"type": "allowed_tools", "tools": list(named), **more}


@pytest.mark.parametrize(("value", "choice"), [(None, "auto"), ("auto", "auto"), ("none", "none")])
def test_a_choice_that_names_no_tool_needs_none(value: Any, choice: str) -> None:
    read = chosen(value, [])

    assert (read.choice, read.allowed, read.parallel_one, read.echo) == (choice, None, False, choice)


@pytest.mark.parametrize(
    ("value", "recipient"),
    [
        ({"type": "function", "name": "f"}, "functions.f"),
        ({"type": "custom", "name": "c"}, "functions.c"),
        ({"type": "function", "name": "functions.f"}, "functions.f"),
        ({"type": "function", "name": "now"}, "clock.now"),
        ({"type": "function", "name": "clock.now"}, "clock.now"),
        ({"type": "function", "name": "sleep"}, "functions.sleep"),
        ({"type": "function", "name": "sleep", "namespace": "clock"}, "clock.sleep"),
        ({"type": "function", "name": "feed", "namespace": "zoo"}, "zoo.feed"),
    ],
    ids=str,
)
def test_a_named_tool_must_be_called_once(value: dict[str, Any], recipient: str) -> None:
    assert chosen(value) == Chosen("required", frozenset({recipient}), parallel_one=True, echo=value)


@pytest.mark.parametrize("mode", [{}, {"mode": "auto"}, {"mode": "required"}], ids=str)
def test_allowed_tools_are_those_that_may_be_called(mode: dict[str, Any]) -> None:
    read = chosen(allowed(NAMED, {"type": "custom", "name": "c"}, **mode))

    assert (read.choice, read.allowed) == (mode.get("mode", "auto"), {"functions.f", "functions.c"})
    assert not read.parallel_one
    assert read.echo == {
        "type": "allowed_tools",
        "mode": mode.get("mode", "auto"),
        "tools": [NAMED, {"type": "custom", "name": "c"}],
    }


def test_a_whole_namespace_may_be_allowed() -> None:
    assert chosen(allowed({"type": "namespace", "name": "clock"})).allowed == {"clock.sleep", "clock.now"}


def test_a_hosted_tool_may_be_allowed_beside_others_and_adds_nothing() -> None:
    read = chosen(allowed(NAMED, {"type": "web_search", "search_context_size": "low"}))

    assert read.allowed == {"functions.f"}
    assert read.echo == {"type": "allowed_tools", "mode": "auto", "tools": [NAMED, {"type": "web_search"}]}


# --- custom tools ---

LARK = 'start: "on" | "off"\n'
LAMP: dict[str, Any] = {"type": "custom", "name": "lamp", "description": "Switches the lamp."}


def grammar(syntax: str, definition: str) -> dict[str, Any]:
    return {**LAMP, "format": {"type": "grammar", "syntax": syntax, "definition": definition}}


def callee(tool: dict[str, Any]) -> Callee:
    (only,) = tools(tool).callees
    return only


@pytest.mark.parametrize("form", [{}, {"format": None}, {"format": {"type": "text"}}], ids=str)
def test_any_text_is_the_one_parameter_of_a_function(form: dict[str, Any]) -> None:
    read = tools({**LAMP, **form})

    assert "// Switches the lamp.\ntype lamp = (_: {\ninput: string,\n}) => any;" in read.section
    assert read.callees[0].wrapped
    assert read.echo == ({**LAMP, "format": {"type": "text"}},)


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


def test_only_so_many_tools_may_have_a_grammar() -> None:
    many = [{**grammar("regex", "on|off"), "name": f"lamp{n}"} for n in range(MAX_GRAMMARS + 1)]

    assert len(tools(*many[1:], LAMP).callees) == MAX_GRAMMARS + 1
    with pytest.raises(InvalidRequest, match=f"At most {MAX_GRAMMARS}") as caught:
        tools(*many)
    assert caught.value.param == f"tools[{MAX_GRAMMARS}].format"


def test_the_handbook_shows_what_the_model_sees() -> None:
    read = tools(*msgspec.json.decode(block("docs/harmony.md", "json tools")))

    assert read.section == block("docs/harmony.md", "text tools")
    assert read.left_out == ("web_search",)


# --- hosted tools ---

SECRET = "hunter2"
MCP: dict[str, Any] = {
    "type": "mcp",
    "server_label": "docs",
    "server_url": f"https://user:{SECRET}@docs.example.com:8443/{SECRET}?key={SECRET}",
    "authorization": SECRET,
    "headers": {"X-Api-Key": SECRET},
    "require_approval": "never",
}


@pytest.mark.parametrize("kind", sorted(HOSTED - CLIENT))
def test_a_hosted_tool_is_left_out_and_named(kind: str) -> None:
    read = tools({"type": kind, "search_context_size": "low"})

    assert (read.section, read.callees) == ("", ())
    assert read.left_out == (kind,)
    assert read.echo == ({"type": kind, "search_context_size": "low"},)


@pytest.mark.parametrize(
    "tool",
    [
        {"type": "shell", "environment": {"type": "container_auto", "file_ids": ["file_1"]}},
        {"type": "shell", "environment": {"type": "container_reference", "container_id": "cntr_1"}},
        {"type": "tool_search"},
        {"type": "tool_search", "execution": "server"},
    ],
)
def test_what_openai_would_run_of_the_client_s_kinds_is_left_out(tool: dict[str, Any]) -> None:
    read = tools(tool)

    assert (read.callees, read.left_out, read.echo) == ((), (tool["type"],), (tool,))


def test_an_mcp_servers_secrets_are_never_echoed() -> None:
    (echo,) = tools(MCP).echo

    assert SECRET not in str(echo)
    assert (echo["authorization"], echo["headers"]) == (None, None)
    assert echo["server_url"] == "https://docs.example.com/<redacted>"
    assert (echo["server_label"], echo["require_approval"]) == ("docs", "never")


@pytest.mark.parametrize(
    "name", ["token", "access_token", "X-Api-Key", "apikey", "client_secret", "Password", "cookie"]
)
def test_whatever_is_named_like_a_secret_stays_here(name: str) -> None:
    read = tools({**MCP, name: SECRET, "inside": [{name: {"value": SECRET}, "max_tokens": 7}]})
    assert SECRET not in str(read.echo)
    assert read.echo[0]["inside"] == [{name: None, "max_tokens": 7}]


@given(address=st.text(max_size=40) | st.integers() | st.none() | st.lists(st.text(max_size=5), max_size=2))
def test_whatever_is_sent_as_an_address_only_a_host_comes_back(address: Any) -> None:
    (echo,) = tools({**MCP, "server_url": address}).echo

    assert echo["server_url"].endswith("<redacted>")


# --- tools that run here ---

FUNCTION = {"type": "function", "name": "f"}
CODE = {"type": "code_interpreter", "container": {"type": "auto"}}
WEB = {"type": "web_search"}
BROWSER = {"browser.search", "browser.open", "browser.find"}


def options(sent: msgspec.Raw, where: str) -> str:
    """A back end's memory of a declaration: here its place."""
    return where


BUILTINS = (python(options, seconds=120, drive="/mnt/data"), browser(options))


def with_builtins(*value: Any) -> Tools:
    return in_one_go(read_tools(raw(value), max_tools=64, max_bytes=1_048_576, builtins=BUILTINS))


def test_what_runs_here_is_called_by_its_own_names_and_stands_in_no_namespace_of_the_callers() -> None:
    read = with_builtins(CODE, FUNCTION, WEB)

    assert {each.recipient for each in read.callees} == {"functions.f", "python", *BROWSER}
    assert [each.recipient for each in read.own] == ["functions.f"]
    assert (read.namespaces, read.left_out) == (("functions",), ())
    assert "python" not in read.section
    assert read.trained.startswith("## browser\n\n// Tool for browsing.")
    assert "\n\n## python\n\nUse this tool" in read.trained
    assert read.echo == (CODE, read.echo[1], WEB)


@pytest.mark.parametrize("kind", sorted(DECLARED_BY))
def test_every_type_declares_one_of_them_and_its_options_are_kept(kind: str) -> None:
    read = with_builtins(FUNCTION, {"type": kind})

    trained = [each.hosted for each in read.callees if each.trained]
    assert {(each.kind, each.options) for each in trained if each} == {(DECLARED_BY[kind], "tools[1]")}


@pytest.mark.parametrize("twice", [(CODE, CODE), (WEB, {"type": "web_search_preview"})])
def test_one_that_is_declared_twice_is_refused(twice: tuple[Any, ...]) -> None:
    with pytest.raises(InvalidRequest) as refused:
        with_builtins(*twice)

    assert refused.value.param == "tools[1].type"


def test_a_callers_tool_may_not_take_one_of_their_names() -> None:
    taken = {"type": "namespace", "name": "browser", "tools": [{"type": "function", "name": "open"}]}
    with pytest.raises(InvalidRequest) as refused:
        with_builtins(WEB, taken)

    assert "browser.open" in str(refused.value)
    assert with_builtins(taken).callees[0].hosted is None
    assert len(with_builtins(CODE, {"type": "function", "name": "python"}).callees) == 2


# --- the form of an answer ---

SCHEMA = {"type": "object", "properties": {"city": {"type": "string"}}, "required": ["city"]}
UNHELD = {"type": "array", "items": {}, "contains": {}}


def format_of(sent: Any) -> AnswerFormat:
    return in_one_go(read_format(msgspec.Raw(json.dumps(sent).encode())))


def test_a_json_object_is_any_object() -> None:
    found = format_of({"type": "json_object"})
    assert found.echo == {"type": "json_object"}
    assert found.content is not None
    assert mismatch(found.content, '{"a": [1]}') is None
    assert mismatch(found.content, "[]") is not None
    assert found.section.startswith("# Response Formats\n\n## json_object\n\n")


@pytest.mark.parametrize("strict", [True, False, None])
def test_a_schema_is_held_strict_or_not(strict: bool | None) -> None:
    found = format_of({"type": "json_schema", "name": "place", "schema": SCHEMA, "strict": strict})
    assert found.content is not None
    assert mismatch(found.content, '{"city": "Brest"}') is None
    assert mismatch(found.content, "{}") is not None
    assert found.echo["strict"] is bool(strict)


def test_the_model_is_told_of_a_schema_as_harmony_writes_it() -> None:
    found = format_of({"type": "json_schema", "name": "place", "description": "Where.", "schema": SCHEMA})
    assert found.section == (
        "# Response Formats\n\n## place\n\n// Where.\n"
        '{"type":"object","properties":{"city":{"type":"string"}},"required":["city"]}'
    )


def test_a_schema_that_cannot_be_held_and_need_not_be_leaves_json() -> None:
    found = format_of({"type": "json_schema", "name": "set", "schema": UNHELD})
    assert found.content is not None
    assert mismatch(found.content, "[1, 1]") is None
    assert '"contains":{}' in found.section


def test_secrets_are_masked_at_any_depth() -> None:
    policy = {"type": "allowlist", "domain_secrets": [{"domain": "a.com", "name": "KEY", "value": SECRET}]}
    read = tools({"type": "code_interpreter", "container": {"type": "auto", "network_policy": policy}})

    assert SECRET not in str(read.echo)


def test_all_lists_together_keep_to_the_limits() -> None:
    with pytest.raises(InvalidRequest, match=f"at most {MAX_TOOLS_BYTES}"):
        declared([TOOL], ("input[0].tools", [{**TOOL, "description": "d" * (MAX_TOOLS_BYTES - 100)}]))


def test_a_namespace_and_members_without_a_place_of_their_own_are_echoed_where_given() -> None:
    given = {"output_schema": {"type": "string"}, "defer_loading": True, "allowed_callers": ["direct"]}
    custom = {"type": "custom", "name": "c", "description": "Does c."}
    read = declared([namespace("clock", TOOL, custom), {**TOOL, "name": "g", **given}])

    assert read.echo == (
        namespace("clock", {**TOOL, "strict": True}, {**custom, "format": {"type": "text"}}),
        {**TOOL, "name": "g", "strict": True, **given},
    )
    assert recipients(read) == ["clock.f", "clock.c", "functions.g"]
