"""What `tool_choice` lets the model call, how it is echoed, and what is refused."""

from typing import Any

import msgspec
import pytest

from service.api.tools.choice import Chosen, read_choice
from service.api.tools.read import Tools, read_tools
from service.steps import in_one_go

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


def tools(declared: list[Any]) -> Tools:
    return in_one_go(read_tools(msgspec.Raw(msgspec.json.encode(declared)), max_tools=64, max_bytes=1_048_576))


def chosen(value: Any, declared: list[Any] = DECLARED) -> Chosen:
    return read_choice(msgspec.Raw(msgspec.json.encode(value)), tools(declared))


def allowed(*named: Any, **more: Any) -> dict[str, Any]:
    return {"type": "allowed_tools", "tools": list(named), **more}


@pytest.mark.parametrize(("value", "choice"), [(None, "auto"), ("auto", "auto"), ("none", "none")])
def test_a_choice_that_names_no_tool_needs_none(value: Any, choice: str) -> None:
    read = chosen(value, [])

    assert (read.choice, read.allowed, read.parallel_one, read.echo) == (choice, None, False, choice)


def test_required_lets_any_tool_be_called() -> None:
    assert chosen("required") == Chosen("required", echo="required")


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


def test_where_only_hosted_tools_are_allowed_nothing_can_be_called() -> None:
    read = chosen(allowed({"type": "web_search"}))

    assert (read.choice, read.allowed) == ("none", frozenset())
