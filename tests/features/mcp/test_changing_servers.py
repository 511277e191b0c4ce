"""Servers that forget sessions, fail behind an effect, or quote what signs in."""

from typing import Any

import pytest
from aiohttp import web

from service.features.mcp.redaction import Redaction
from service.features.mcp.settings import McpConnection
from service.tools.port import ListedTool, ToolFailure, ToolListing
from tests.features.mcp.test_hostile_servers import TOOL, answer, instead, polite, server

MODERN = "2026-07-28"


def refusal(asked: Any, code: int, message: str, status: int, **data: Any) -> web.Response:
    error = {"code": code, "message": message, "data": data}
    return web.json_response({"jsonrpc": "2.0", "id": asked.get("id"), "error": error}, status=status)


class Changing:
    """A server that knows its sessions by name, and that may begin anew."""

    def __init__(self, status: int = 404) -> None:
        self.calls = 0
        self.sessions = 0
        self._status = status

    async def handle(self, request: web.Request, asked: Any) -> web.StreamResponse:
        if asked["method"] == "initialize":
            self.sessions += 1
            said = await polite(request, asked)
            said.headers["mcp-session-id"] = str(self.sessions)
            return said
        if asked["method"] == "server/discover":
            return refusal(asked, -32000, "Bad Request: No valid session ID provided", 400)
        named = request.headers.get("mcp-session-id")
        if named != str(self.sessions):
            if named and self._status == 404:
                return web.Response(status=404)
            return refusal(asked, -32000, "Bad Request: No valid session ID provided", 400)
        self.calls += asked["method"] == "tools/call"
        return await polite(request, asked)


@pytest.mark.parametrize("status", [400, 404])
async def test_a_session_that_a_server_forgot_is_opened_anew(status: int) -> None:
    changing = Changing(status)
    async with server(changing.handle) as session:
        assert (await session.call("t", {})).text == "fine"
        changing.sessions += 1
        assert (await session.call("t", {})).text == "fine"
        changing.sessions += 1
        assert [tool.name for tool in (await session.list_tools()).tools] == ["t"]

    assert changing.calls == 2


async def test_a_server_that_forgets_every_session_is_asked_twice_and_no_more() -> None:
    changing = Changing()

    async def forgetful(request: web.Request, asked: Any) -> web.StreamResponse:
        if asked["method"] == "tools/call":
            changing.sessions += 1
        return await changing.handle(request, asked)

    async with server(forgetful) as session:
        with pytest.raises(ToolFailure, match="HTTP 404"):
            await session.call("t", {})
    assert (changing.calls, changing.sessions) == (0, 4)


@pytest.mark.parametrize("modern", [False, True])
async def test_a_server_may_change_its_era_amid_a_session(modern: bool) -> None:
    old, known = Changing(), {"resultType": "complete", "ttlMs": 0, "cacheScope": "private"}
    info = {"serverInfo": {"name": "s", "version": "2"}, "capabilities": {"tools": {}}}

    async def either(request: web.Request, asked: Any) -> web.StreamResponse:
        if not modern:
            return await old.handle(request, asked)
        match asked["method"]:
            case "server/discover":
                return answer(asked, supportedVersions=[MODERN], **info, **known)
            case "tools/list":
                return answer(asked, tools=[TOOL], **known)
            case "tools/call":
                return answer(asked, content=[{"type": "text", "text": "modern"}], resultType="complete")
            case _:
                return refusal(asked, -32022, "Unsupported protocol version", 400, supported=[MODERN], requested="x")

    async with server(either) as session:
        before = await session.call("t", {})
        modern, old.sessions = not modern, old.sessions + 1
        after = await session.call("t", {})
    assert ({before.text, after.text}, old.calls) == ({"fine", "modern"}, 1)


@pytest.mark.parametrize("repeatable", [False, True])
@pytest.mark.parametrize("named", [False, True])
@pytest.mark.parametrize(
    ("code", "status"),
    [
        *((code, 400) for code in (-32000, -32001, -32602, -32603)),
        *((code, 404) for code in (-32001, -32603)),
        (-32022, 200),
    ],
)
async def test_an_error_that_comes_after_the_effect_is_no_forgotten_session(
    code: int, status: int, named: bool, repeatable: bool
) -> None:
    calls = 0

    async def sending(request: web.Request, asked: Any) -> web.StreamResponse:
        nonlocal calls
        if asked["method"] == "tools/call":
            calls += 1
            return refusal(asked, code, "The quota is exceeded after sending.", status)
        said = await polite(request, asked)
        if named and asked["method"] == "initialize":
            said.headers["mcp-session-id"] = "1"
        return said

    async with server(sending) as session:
        with pytest.raises(ToolFailure):
            await session.call("t", {}, repeatable=repeatable)
    assert calls == 1 or repeatable


@pytest.mark.parametrize("status", [400, 404])
@pytest.mark.parametrize(
    ("said", "calls"),
    [
        ("Bad Request: No valid session ID provided", 2),
        ("Bad Request: Mcp-Session-Id header is required", 2),
        ("Bad Request: Server not initialized", 2),
        ("Not Found: Invalid or expired session ID", 2),
        ("Not Found: Session has been terminated", 2),
        ("Session not found: 5b1c2d7e-58a4-4f7e-9d39-0d2f5b0a6c11", 2),
        ("Mail sent, but the checkout session ID cs_1 was not closed", 1),
        ("Sent; the mail server was not initialized for receipts", 1),
    ],
)
async def test_words_of_a_tool_about_sessions_are_no_forgotten_session(said: str, calls: int, status: int) -> None:
    begun = 0

    async def sending(request: web.Request, asked: Any) -> web.StreamResponse:
        nonlocal begun
        if asked["method"] == "tools/call":
            begun += 1
            return refusal(asked, -32000, said, status)
        return await polite(request, asked)

    async with server(sending) as session:
        with pytest.raises(ToolFailure):
            await session.call("t", {})
    assert begun == calls


# --- servers that quote what signs in ---

KEY = "s3cret-of-the-operator"


@pytest.mark.parametrize(
    ("said", "seen"),
    [
        ({"content": [{"type": "text", "text": f"no such key: Bearer {KEY}"}], "isError": True}, True),
        ({"content": [{"type": "text", "text": f"{'x' * 15_900}{KEY}{'y' * 30_000}"}]}, True),
        ({"content": [{"type": "text", "text": f"{'x' * 15_990}{KEY}{'y' * 30_000}"}]}, False),
        ({"content": [{"type": "text", "text": f"{'x' * 30_000}{KEY}{'y' * 15_990}"}]}, False),
        ({"content": [], "structuredContent": {"headers": {"Authorization": f"Bearer {KEY}"}}}, True),
        ({"content": [{"type": "resource_link", "name": "a", "uri": f"https://a/?key={KEY}"}]}, True),
    ],
)
async def test_a_tool_that_quotes_what_signs_in_does_not_tell_it(said: Any, seen: bool) -> None:
    async def quoting(_: web.Request, asked: Any) -> web.StreamResponse:
        return answer(asked, **said)

    async with server(instead("tools/call", quoting), headers=(("Authorization", f"Bearer {KEY}"),)) as session:
        result = await session.call("t", {})

    assert KEY not in result.text
    assert KEY[:9] not in result.text
    assert KEY[-9:] not in result.text
    assert ("<redacted>" in result.text) is seen


async def test_an_error_and_a_list_that_quote_what_signs_in_do_not_tell_it() -> None:
    async def quoting(request: web.Request, asked: Any) -> web.StreamResponse:
        if asked["method"] == "tools/call":
            return refusal(asked, -32603, f"{'x' * 990}{KEY}", 200)
        tool = {**TOOL, "description": f"For {KEY}.", "inputSchema": {"type": "object", "default": [KEY]}}
        return answer(asked, tools=[tool]) if asked["method"] == "tools/list" else await polite(request, asked)

    async with server(quoting, headers=(("x-key", KEY),)) as session:
        listing = await session.list_tools()
        with pytest.raises(ToolFailure) as failure:
            await session.call("t", {})

    schema = {"type": "object", "default": ["<redacted>"]}
    assert listing.tools == (ListedTool("t", "For <redacted>.", schema),)
    assert KEY[:9] not in f"{failure.value} {failure.value.error}"


@pytest.mark.parametrize(
    ("signs_in", "said"),
    [
        (McpConnection("s", "https://a/", (("authorization", "Basic dXNlcjpzM2NyZXQtb2YtdXM="),)), "s3cret-of-us"),
        (McpConnection("s", "https://a/?key=s3cret%2Fof-us"), "s3cret/of-us"),
        (McpConnection("s", "https://a/?key=s3cret%2Fof-us"), "s3cret%2Fof-us"),
    ],
)
def test_what_signs_in_by_a_password_or_a_url_is_not_told(signs_in: McpConnection, said: str) -> None:
    assert Redaction(signs_in).text(f"no such key: {said}") == "no such key: <redacted>"


@pytest.mark.parametrize("value", ["description", "repeatable", "20261130"])
def test_a_word_of_a_header_that_a_list_has_too_leaves_it_a_list(value: str) -> None:
    redaction = Redaction(McpConnection("s", "https://a/", (("x-scope", value),)))
    listed = ToolListing((ListedTool("t", f"For {value}.", {"properties": {"n": {"default": 20261130}}}),))
    tool = redaction.listing(listed).tools[0]
    assert tool.description == "For <redacted>."
    assert tool.schema["properties"]["n"]["default"] == ("<redacted>" if value == "20261130" else 20261130)
    assert redaction.data(b'{"n": [20261130, 1]}') == (
        b'{"n":["<redacted>",1]}' if value == "20261130" else b'{"n": [20261130, 1]}'
    )
