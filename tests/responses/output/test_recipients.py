"""Whom a model may address: the caller's tools under any name that means them, and tools that aren't there."""

import pytest

from service.responses.output.hosted import action_of
from service.responses.output.machine import Ending
from tests.support.responses.samples import as_json, sampled
from tests.support.responses.shown import short


def items(text: str) -> list[tuple[str, ...]]:
    """The items, in short, that a generation becomes."""
    return [short(item) for item in sampled(text).output]


RECIPIENTS = {
    "functions.lookup": ("call", "lookup", "{}"),
    "lookup": ("call", "lookup", "{}"),
    "functions.functions.lookup": ("call", "lookup", "{}"),
    "functions.lookupjson": ("call", "lookup", "{}"),
    "crm.find": ("call", "find", "{}"),
    "find": ("call", "find", "{}"),
    "functions.patch": ("custom", "patch", "{}"),
    "functions.note": ("custom", "note", "{}"),
    "functions.other": ("mcp", "functions", "other", "{}"),
    "functions.functions.other": ("mcp", "functions", "other", "{}"),
    "crm.other": ("mcp", "crm", "other", "{}"),
    "other": ("mcp", "other", "other", "{}"),
    "mcp.docs.search": ("mcp", "docs", "search", "{}"),
    "docs.search": ("mcp", "docs", "search", "{}"),
    "docs.look.up": ("mcp", "docs", "look.up", "{}"),
    "mcp.docs": ("mcp", "docs", "docs", "{}"),
    "container.exec": ("mcp", "container", "exec", "{}"),
    "python": ("python", "{}"),
    "pythonjson": ("python", "{}"),
    "browser.search": ("web", "search", "{}"),
    "browser.searchjson": ("web", "search", "{}"),
    "browser.open": ("web", "open_page", ""),
    "browser.find": ("web", "find_in_page", "", ""),
    "browser": ("web", "search", "{}"),
    "mcp.": ("mcp", "mcp.", "mcp.", "{}"),
    "functions.": ("mcp", "functions", "functions", "{}"),
    ".": ("mcp", ".", ".", "{}"),
}


@pytest.mark.parametrize("channel", ["analysis", "commentary", "final", "other"])
def test_a_recipient_decides_on_any_channel(channel: str) -> None:
    became = {name: items(f"<|channel|>{channel} to={name}<|message|>{{}}<|call|>") for name in RECIPIENTS}

    assert became == {name: [expected] for name, expected in RECIPIENTS.items()}


@pytest.mark.parametrize("channel", ["analysis", "commentary", "final"])
def test_a_recipient_that_nobody_can_be_is_none(channel: str) -> None:
    expected = {"analysis": "reasoning", "final": "final_answer"}.get(channel, channel)

    for name in ("assistant", "some<thing", "x" * 129):
        assert items(f"<|channel|>{channel} to={name}<|message|>Hi<|end|>") == [(expected, "Hi")]


@pytest.mark.parametrize(("recipient", "name"), [("find", "find"), ("crm.find", "find")])
def test_a_call_in_a_namespace_says_so(recipient: str, name: str) -> None:
    (call,) = sampled(f"<|channel|>commentary to={recipient}<|message|>{{}}<|call|>").output

    assert as_json(call) | {"name": name, "namespace": "crm"} == as_json(call)


@pytest.mark.parametrize("recipient", ["python", "browser.search", "docs.search", "functions.other"])
@pytest.mark.parametrize(("ending", "status"), [(Ending.STOP, "failed"), (Ending.LENGTH, "incomplete")])
def test_a_call_that_nobody_runs_failed_unless_it_was_cut_short(recipient: str, ending: Ending, status: str) -> None:
    mark = "<|call|>" if ending is Ending.STOP else ""
    (call,) = sampled(f"<|channel|>commentary to={recipient}<|message|>{{}}{mark}", ending).output

    assert as_json(call)["status"] == status


def test_a_failed_call_of_another_s_tool_says_why() -> None:
    (call,) = sampled("<|channel|>commentary to=docs.search<|message|>{}<|call|>").output

    assert as_json(call)["error"] == {"type": "mcp_protocol_error", "code": -32601, "message": "There is no such tool."}


BROWSED = {
    ("search", '{"query": "cats", "topn": 5}'): ("search", "cats"),
    ("search", "cats"): ("search", "cats"),
    ("search", "[1"): ("search", "[1"),
    ("search", '{"query": 5}'): ("search", '{"query": 5}'),
    ("search", "[" * 5000): ("search", "[" * 5000),
    ("search", '{"query": "\\ud800"}'): ("search", '{"query": "\\ud800"}'),
    ("open", '{"id": "https://example.com", "cursor": 1}'): ("open_page", "https://example.com"),
    ("open", '{"id": 7, "cursor": 1}'): ("open_page", "cursor:1,id:7"),
    ("open", '{"cursor": 2, "loc": 30}'): ("open_page", "cursor:2"),
    ("open", "nonsense"): ("search", "nonsense"),
    ("find", '{"pattern": "fur", "cursor": 1}'): ("find_in_page", "cursor:1", "fur"),
    ("find", '{"pattern": null}'): ("find_in_page", "", ""),
    ("screenshot", '{"query": "cats"}'): ("search", "cats"),
}


@pytest.mark.parametrize(("asked", "expected"), BROWSED.items(), ids=lambda value: "-".join(value)[:40])
def test_what_is_asked_of_a_browser_is_an_action(asked: tuple[str, str], expected: tuple[str, ...]) -> None:
    tool, arguments = asked

    assert tuple(action_of(tool, arguments).values()) == expected
