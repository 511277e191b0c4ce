"""Hosted tools: accepted, echoed without their secrets, named as left out, and never in the prompt."""

from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from service.api.tools.client import CLIENT
from service.api.tools.hosted import HOSTED
from service.api.tools.read import Tools, read_tools
from service.steps import in_one_go

SECRET = "hunter2"
MCP: dict[str, Any] = {
    "type": "mcp",
    "server_label": "docs",
    "server_url": f"https://user:{SECRET}@docs.example.com:8443/{SECRET}?key={SECRET}",
    "authorization": SECRET,
    "headers": {"X-Api-Key": SECRET},
    "require_approval": "never",
}


def tools(*value: Any) -> Tools:
    return in_one_go(read_tools(msgspec.Raw(msgspec.json.encode(value)), max_tools=128, max_bytes=1_048_576))


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


def test_the_tools_beside_it_stay() -> None:
    read = tools({"type": "web_search"}, {"type": "function", "name": "f"}, {"type": "web_search"}, MCP)

    assert [callee.recipient for callee in read.callees] == ["functions.f"]
    assert read.left_out == ("web_search", "mcp")
    assert len(read.echo) == 4


def test_an_mcp_servers_secrets_are_never_echoed() -> None:
    (echo,) = tools(MCP).echo

    assert SECRET not in str(echo)
    assert (echo["authorization"], echo["headers"]) == (None, None)
    assert echo["server_url"] == "https://docs.example.com/<redacted>"
    assert (echo["server_label"], echo["require_approval"]) == ("docs", "never")


def test_secrets_are_masked_at_any_depth() -> None:
    policy = {"type": "allowlist", "domain_secrets": [{"domain": "a.com", "name": "KEY", "value": SECRET}]}
    read = tools({"type": "code_interpreter", "container": {"type": "auto", "network_policy": policy}})

    assert SECRET not in str(read.echo)


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
