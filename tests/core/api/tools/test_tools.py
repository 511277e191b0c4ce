"""Tools as they are declared: what the prompt shows, who may be called, what is echoed, and what must be held."""

import json
import re
from collections.abc import Callable
from typing import Any, TypeVar

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from service.api.tools.builtin import DECLARED_BY, browser, python
from service.api.tools.callee import Callee
from service.api.tools.choice import Chosen, read_choice
from service.api.tools.client import CLIENT
from service.api.tools.format import AnswerFormat, read_format
from service.api.tools.hosted import HOSTED
from service.api.tools.offer import McpOffer, OfferedTool
from service.api.tools.read import MAX_GRAMMARS, Tools, read_tools
from service.errors import InvalidRequest
from service.grammar.checks import mismatch
from service.steps import in_one_go
from tests.support.documents import block

TOOL: dict[str, Any] = {"type": "function", "name": "f", "description": "Does f.", "parameters": {"type": "object"}}
T = TypeVar("T")
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


def test_arguments_are_held_unless_strict_is_false() -> None:
    assert declared([{"type": "function", "name": "g"}]).echo == (
        {"type": "function", "name": "g", "description": None, "parameters": None, "strict": True},
    )
    for strict in ({}, {"strict": None}, {"strict": True}, {"strict": False}):
        read = declared([{**TOOL, **strict}])
        assert (read.callees[0].content is not None) == read.echo[0]["strict"] == (strict != {"strict": False})


def test_without_parameters_the_arguments_are_an_object_all_the_same() -> None:
    for parameters, others in ((None, False), ({}, True)):
        (callee,) = declared([{**TOOL, "parameters": parameters}]).callees
        enforced = msgspec.json.decode(callee.content or "null")["json_schema"]
        assert (enforced["type"], enforced["additionalProperties"]) == ("object", others)
        assert "properties" not in enforced or enforced["properties"] == {}


def test_a_schema_that_cannot_be_held_is_free_where_strict_does_not_ask() -> None:
    for strict in ({}, {"strict": None}, {"strict": False}):
        read = declared([{**TOOL, "parameters": UNHOLDABLE, **strict}])
        assert (read.callees, read.echo[0]["strict"]) == ((Callee("f"),), False)


def test_true_is_the_schema_of_anything() -> None:
    anything = {"type": "object", "properties": {"a": True}, "additionalProperties": True}
    read = declared([{**TOOL, "parameters": anything}])
    assert '"additionalProperties":true,"properties":{"a":{}}' in (read.callees[0].content or "")
    assert ("a?: any" in read.section, read.echo[0]["parameters"]) == (True, anything)


# --- tools that are added ---


def test_an_added_tool_takes_the_place_of_an_earlier_one_and_all_lists_together_keep_to_the_limits() -> None:
    read = declared([TOOL], ("input[3].tools", [{**TOOL, "description": "Does f better."}]))
    assert recipients(read) == ["functions.f"]
    assert "// Does f better." in read.section
    assert "// Does f.\n" not in read.section
    with pytest.raises(InvalidRequest, match=f"at most {MAX_TOOLS_BYTES}"):
        declared([TOOL], ("input[0].tools", [{**TOOL, "description": "d" * (MAX_TOOLS_BYTES - 100)}]))


def test_what_servers_offer_and_searches_found_counts_too() -> None:
    def read(*sent: Any, found: Any = (), offered: int = 0) -> Tools:
        offers = [McpOffer("maths", "", tuple(OfferedTool(f"t{n}", "", {}, repeatable=True) for n in range(offered)))]
        loaded = [("input[1].tools", raw(found))] if found else []
        limits = {"max_tools": MAX_TOOLS, "max_bytes": MAX_TOOLS_BYTES}
        return in_one_go(read_tools(raw(sent), **limits, offers=offers, loaded=loaded))

    server = {"type": "mcp", "server_label": "maths"}
    assert len(read(server, offered=MAX_TOOLS - 1).callees) == MAX_TOOLS - 1
    for words, sent, more in (
        ("Too many tools", [server], {"offered": MAX_TOOLS}),
        ("A namespace has the same name", [server, namespace("maths", TOOL)], {}),
        ("'input[1].tools'", [], {"found": [TOOL | {"description": "d" * MAX_TOOLS_BYTES}]}),
    ):
        with pytest.raises(InvalidRequest, match=re.escape(words)):
            read(*sent, **more)


# --- the choice among them ---

DECLARED: list[Any] = [
    {"type": "function", "name": "f"},
    {"type": "custom", "name": "c"},
    {"type": "function", "name": "sleep"},
    {"type": "namespace", "name": "clock", "tools": [{"type": "function", "name": n} for n in ("sleep", "now")]},
    {"type": "web_search"},
]
NAMED = {"type": "function", "name": "f"}


def chosen(value: Any, declared: list[Any] = DECLARED) -> Chosen:
    return read_choice(raw(value), tools(*declared))


def test_a_choice_that_names_no_tool_needs_none() -> None:
    for value in (None, "none"):
        assert chosen(value, []) == Chosen(value or "auto", None, parallel_one=False, echo=value or "auto")


def test_a_named_tool_must_be_called_once() -> None:
    for members, recipient in (
        ({"name": "f"}, "functions.f"),
        ({"name": "now"}, "clock.now"),
        ({"name": "sleep"}, "functions.sleep"),
        ({"name": "sleep", "namespace": "clock"}, "clock.sleep"),
    ):
        value = {"type": "function", **members}
        assert chosen(value) == Chosen("required", frozenset({recipient}), parallel_one=True, echo=value)


def test_allowed_tools_are_those_that_may_be_called() -> None:
    named = [NAMED, {"type": "custom", "name": "c"}, {"type": "namespace", "name": "clock"}, {"type": "web_search"}]
    callable_ones = frozenset({"functions.f", "functions.c", "clock.sleep", "clock.now"})
    for mode in ({}, {"mode": "required"}):
        echo = {"type": "allowed_tools", "mode": "auto", "tools": named, **mode}
        read = chosen({"type": "allowed_tools", "tools": named, **mode})
        assert read == Chosen(mode.get("mode", "auto"), callable_ones, parallel_one=False, echo=echo)


# --- custom tools ---

LARK = 'start: "on" | "off"\n'
LAMP: dict[str, Any] = {"type": "custom", "name": "lamp", "description": "Switches the lamp."}


def grammar(syntax: str, definition: str) -> dict[str, Any]:
    return {**LAMP, "format": {"type": "grammar", "syntax": syntax, "definition": definition}}


def test_any_text_is_the_one_parameter_of_a_function() -> None:
    read = tools(LAMP)
    assert "// Switches the lamp.\ntype lamp = (_: {\ninput: string,\n}) => any;" in read.section
    assert read.callees[0].wrapped
    assert read.echo == ({**LAMP, "format": {"type": "text"}},)


def test_a_text_under_a_grammar_stands_bare_and_is_held_and_the_model_is_told_that_it_is_no_json() -> None:
    lark, regex = tools(grammar("lark", LARK)), tools(grammar("regex", "on|off"))
    for read, kind in ((lark, "grammar"), (regex, "regex")):
        assert not read.callees[0].wrapped
        assert msgspec.json.decode(read.callees[0].content or "null")["type"] == kind
    opening = "// Switches the lamp.\n// \n// The input is plain text, not JSON. It must match this "
    assert f"{opening}regular expression:\n// on|off\ntype lamp = (_: string) => any;" in regex.section


def test_only_so_many_tools_may_have_a_grammar() -> None:
    many = [{**grammar("regex", "on|off"), "name": f"lamp{n}"} for n in range(MAX_GRAMMARS + 1)]
    with pytest.raises(InvalidRequest, match=f"At most {MAX_GRAMMARS}"):
        tools(*many)


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


def test_a_hosted_tool_is_left_out_and_named() -> None:
    elsewhere = {"type": "shell", "environment": {"type": "container_auto", "file_ids": ["file_1"]}}
    known = [{"type": kind, "search_context_size": "low"} for kind in sorted(HOSTED - CLIENT)]
    for tool in (*known, elsewhere, {"type": "tool_search"}):
        read = tools(tool)
        assert (read.section, read.callees, read.left_out, read.echo) == ("", (), (tool["type"],), (tool,))


def test_an_mcp_servers_secrets_are_never_echoed() -> None:
    (echo,) = tools(MCP).echo

    assert SECRET not in str(echo)
    assert (echo["authorization"], echo["headers"]) == (None, None)
    assert echo["server_url"] == "https://docs.example.com/<redacted>"
    assert (echo["server_label"], echo["require_approval"]) == ("docs", "never")


def test_whatever_is_named_like_a_secret_stays_here() -> None:
    for name in ("token", "access_token", "X-Api-Key", "apikey", "client_secret", "Password", "cookie"):
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


def options(sent: msgspec.Raw, where: str) -> str:
    """A back end's memory of a declaration: here its place."""
    return where


BUILTINS = (python(options, seconds=120, drive="/mnt/data"), browser(options))


def with_builtins(*value: Any) -> Tools:
    return in_one_go(read_tools(raw(value), max_tools=64, max_bytes=1_048_576, builtins=BUILTINS))


def test_what_runs_here_is_called_by_its_own_names_and_stands_in_no_namespace_of_the_callers() -> None:
    read = with_builtins(CODE, FUNCTION, WEB)
    assert set(recipients(read)) == {"functions.f", "python", "browser.search", "browser.open", "browser.find"}
    assert [each.recipient for each in read.own] == ["functions.f"]
    assert (read.namespaces, read.left_out) == (("functions",), ())
    assert read.echo == (CODE, read.echo[1], WEB)


def test_every_type_declares_one_of_them_and_its_options_are_kept() -> None:
    for kind, declared_one in DECLARED_BY.items():
        trained = [each.hosted for each in with_builtins(FUNCTION, {"type": kind}).callees if each.trained]
        assert {(each.kind, each.options) for each in trained if each} == {(declared_one, "tools[1]")}


def test_a_callers_tool_may_not_take_one_of_their_names_nor_one_be_declared_twice() -> None:
    taken = {"type": "namespace", "name": "browser", "tools": [{"type": "function", "name": "open"}]}
    with pytest.raises(InvalidRequest, match=r"browser\.open"):
        with_builtins(WEB, taken)
    with pytest.raises(InvalidRequest, match=r"tools\[1\]\.type|declared"):
        with_builtins(CODE, CODE)
    assert with_builtins(taken).callees[0].hosted is None
    assert len(with_builtins(CODE, {"type": "function", "name": "python"}).callees) == 2


# --- the form of an answer ---

SCHEMA = {"type": "object", "properties": {"city": {"type": "string"}}, "required": ["city"]}


def format_of(sent: Any) -> AnswerFormat:
    return in_one_go(read_format(msgspec.Raw(json.dumps(sent).encode())))


def test_a_json_object_is_any_object_and_a_schema_is_held_strict_or_not() -> None:
    found = format_of({"type": "json_object"})
    assert found.content is not None
    assert mismatch(found.content, '{"a": [1]}') is None
    assert mismatch(found.content, "[]") is not None
    for strict in (True, None):
        found = format_of({"type": "json_schema", "name": "place", "schema": SCHEMA, "strict": strict})
        assert found.content is not None
        assert mismatch(found.content, '{"city": "Brest"}') is None
        assert mismatch(found.content, "{}") is not None
        assert found.echo["strict"] is bool(strict)


def test_a_namespace_and_members_without_a_place_of_their_own_are_echoed_where_given() -> None:
    given = {"output_schema": {"type": "string"}, "defer_loading": True, "allowed_callers": ["direct"]}
    custom = {"type": "custom", "name": "c", "description": "Does c."}
    read = declared([namespace("clock", TOOL, custom), {**TOOL, "name": "g", **given}])

    assert read.echo == (
        namespace("clock", {**TOOL, "strict": True}, {**custom, "format": {"type": "text"}}),
        {**TOOL, "name": "g", "strict": True, **given},
    )
    assert recipients(read) == ["clock.f", "clock.c", "functions.g"]


# --- lists of tools as nobody should send them ---

scalars = st.none() | st.booleans() | st.integers(-5, 5) | st.sampled_from(["", "f", "g", "a b", "web_search", "lark"])
anything = st.recursive(
    scalars,
    lambda inner: st.lists(inner, max_size=2) | st.dictionaries(st.sampled_from(["type", "a"]), inner, max_size=2),
    max_leaves=4,
)
formats = st.fixed_dictionaries({"type": st.sampled_from(["text", "grammar"])}, optional={"syntax": anything})
members: dict[str, st.SearchStrategy[Any]] = {
    "description": anything,
    "parameters": st.dictionaries(st.sampled_from(["type", "properties", "items"]), anything, max_size=2) | anything,
    "strict": scalars,
    "format": formats | anything,
    "defer_loading": scalars,
    "server_url": anything,
}
kinds = st.sampled_from(["function", "function", "custom", "web_search", "mcp", "x"]) | anything
single = st.fixed_dictionaries({"type": kinds, "name": st.sampled_from("fgh")}, optional=members)
grouped = st.builds(namespace, st.sampled_from(["functions", "n", "m"]))
anything_declared = st.recursive(
    single | grouped | anything,
    lambda inner: st.builds(lambda name, inside: namespace(name, *inside), st.sampled_from("nm"), st.lists(inner)),
    max_leaves=4,
)

named = st.fixed_dictionaries(
    {"type": st.sampled_from(["function", "custom", "namespace", "mcp", "web_search", "x"]) | anything},
    optional={"name": st.sampled_from(["f", "g", "n.g", "n"]) | anything, "namespace": st.just("n") | anything},
)
anything_allowed = st.fixed_dictionaries(
    {"type": st.just("allowed_tools")},
    optional={"tools": st.lists(named, max_size=3), "mode": st.sampled_from(["auto", "required", "none"]) | anything},
)
choices = st.sampled_from(["auto", "none", "required"]) | named | anything_allowed | anything


def attempt(reading: Callable[[], T]) -> T | InvalidRequest:
    try:
        return reading()
    except InvalidRequest as refused:
        return refused


@given(value=st.lists(anything_declared, max_size=4) | anything)
def test_any_declaration_is_read_or_refused_by_its_place(value: Any) -> None:
    read = attempt(lambda: declared(value))
    if isinstance(read, InvalidRequest):
        assert (read.param or "").startswith("tools")
        return
    assert len({callee.recipient for callee in read.callees}) == len(read.callees)
    assert [msgspec.json.decode(msgspec.json.encode(each)) for each in read.echo] == list(read.echo)
    assert all(f"type {callee.name} = " in read.section for callee in read.callees)


@given(value=choices)
def test_any_choice_is_read_or_refused_by_its_place(value: Any) -> None:
    all_tools = tools(FUNCTION, namespace("n", {"type": "custom", "name": "g"}), {"type": "mcp"})
    read = attempt(lambda: read_choice(raw(value), all_tools))
    if isinstance(read, InvalidRequest):
        assert (read.param or "").startswith("tool_choice")
        return
    callable_ones = {callee.recipient for callee in all_tools.callees}
    assert (read.allowed or frozenset()) <= callable_ones
    assert read.choice != "required" or read.allowed is None or read.allowed
    assert read_choice(raw(read.echo), all_tools) == read
