"""Lists of tools as nobody should send them: each is read, or refused by its place, and nothing else."""

from typing import Any

import msgspec
from hypothesis import given
from hypothesis import strategies as st

from service.api.tools.choice import Chosen, read_choice
from service.api.tools.read import Tools, read_tools
from service.errors import InvalidRequest
from service.steps import in_one_go


def namespace(name: str, *members: Any) -> dict[str, Any]:
    return {"type": "namespace", "name": name, "tools": list(members)}


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
declared = st.recursive(
    single | grouped | anything,
    lambda inner: st.builds(lambda name, inside: namespace(name, *inside), st.sampled_from("nm"), st.lists(inner)),
    max_leaves=4,
)

named = st.fixed_dictionaries(
    {"type": st.sampled_from(["function", "custom", "namespace", "mcp", "web_search", "x"]) | anything},
    optional={"name": st.sampled_from(["f", "g", "n.g", "n"]) | anything, "namespace": st.just("n") | anything},
)
allowed = st.fixed_dictionaries(
    {"type": st.just("allowed_tools")},
    optional={"tools": st.lists(named, max_size=3), "mode": st.sampled_from(["auto", "required", "none"]) | anything},
)
choices = st.sampled_from(["auto", "none", "required"]) | named | allowed | anything


def single_tool(kind: str, name: str) -> dict[str, Any]:
    return {"type": kind, "name": name}


# --- what is tried ---


def tools(value: Any) -> Tools | InvalidRequest:
    """The tools, or why there are none."""
    try:
        return in_one_go(read_tools(msgspec.Raw(msgspec.json.encode(value)), max_tools=8, max_bytes=1_048_576))
    except InvalidRequest as refused:
        return refused


def choice(value: Any, declared: Tools) -> Chosen | InvalidRequest:
    """The choice, or why there is none."""
    try:
        return read_choice(msgspec.Raw(msgspec.json.encode(value)), declared)
    except InvalidRequest as refused:
        return refused


@given(value=st.lists(declared, max_size=4) | anything)
def test_whatever_is_declared_is_read_or_refused_by_its_place(value: Any) -> None:
    read = tools(value)

    if isinstance(read, InvalidRequest):
        assert (read.param or "").startswith("tools")
        return
    assert len({callee.recipient for callee in read.callees}) == len(read.callees)
    assert [msgspec.json.decode(msgspec.json.encode(each)) for each in read.echo] == list(read.echo)
    assert all(f"type {callee.name} = " in read.section for callee in read.callees)


@given(value=choices)
def test_whatever_is_chosen_is_read_or_refused_by_its_place(value: Any) -> None:
    all_tools = tools([single_tool("function", "f"), namespace("n", single_tool("custom", "g")), {"type": "mcp"}])
    assert isinstance(all_tools, Tools)
    read = choice(value, all_tools)

    if isinstance(read, InvalidRequest):
        assert (read.param or "").startswith("tool_choice")
        return
    callable_ones = {callee.recipient for callee in all_tools.callees}
    assert (read.allowed or frozenset()) <= callable_ones
    assert read.choice != "required" or read.allowed is None or read.allowed
    assert choice(read.echo, all_tools) == read
