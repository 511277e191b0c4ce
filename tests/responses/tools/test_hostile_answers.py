"""Answers of servers that mean harm, over HTTP and by pipes: no exception but the port's own, no unbounded memory."""

import asyncio
import json
import tracemalloc
from contextlib import suppress
from typing import Any

import pytest
from aiohttp import web
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from service.tools.port import ToolFailure, ToolLimits
from tests.responses.tools.test_hostile_servers import TOOL, answer, instead, polite, server
from tests.responses.tools.test_stdio_servers import program, running

BOUNDS = ToolLimits(connect_seconds=1, list_seconds=30, call_seconds=3, answer_bytes=100_000, tools=20)
EXAMPLES = 25

VALUES: Any = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=20),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=8), inner, max_size=4),
    max_leaves=12,
)
PARTS: Any = st.fixed_dictionaries(
    {"type": st.sampled_from(["text", "image", "audio", "resource", "resource_link", "tool_use", "", 3, None])},
    optional={
        "text": VALUES,
        "data": VALUES,
        "mimeType": VALUES,
        "name": VALUES,
        "uri": VALUES,
        "resource": VALUES,
        "annotations": VALUES,
    },
)
RESULTS: Any = (
    st.fixed_dictionaries(
        {},
        optional={
            "content": st.lists(PARTS, max_size=4) | VALUES,
            "structuredContent": VALUES,
            "isError": VALUES,
            "resultType": VALUES,
            "_meta": VALUES,
            "tools": st.lists(VALUES | st.just(TOOL), max_size=3) | VALUES,
            "nextCursor": VALUES,
            "protocolVersion": VALUES,
            "capabilities": VALUES,
            "serverInfo": VALUES,
        },
    )
    | VALUES
)
BODIES: Any = (
    st.binary(max_size=200)
    | st.builds(lambda result: {"result": result}, RESULTS)
    | st.builds(lambda error: {"error": error}, VALUES)
    | st.builds(lambda code, message: {"error": {"code": code, "message": message}}, VALUES, VALUES)
    | st.builds(lambda method, params: {"method": method, "params": params}, st.text(max_size=20), VALUES)
    | VALUES
)
TYPES = st.sampled_from(["application/json", "text/event-stream", "text/html", ""])


def body_of(asked: Any, said: Any, kind: str) -> bytes:
    """What is said, as the body of an answer to a request."""
    if not isinstance(said, bytes):
        known = {"jsonrpc": "2.0", "id": asked.get("id")}
        said = json.dumps(known | said if isinstance(said, dict) else said).encode()
    return b"event: message\ndata: " + said + b"\n\n" if kind == "text/event-stream" else said


@given(
    st.sampled_from(["initialize", "server/discover", "tools/list", "tools/call"]),
    BODIES,
    TYPES,
    st.sampled_from([200, 200, 200, 202, 204, 400, 401, 404, 500]),
)
@settings(max_examples=EXAMPLES, deadline=None, suppress_health_check=[HealthCheck.too_slow])
def test_whatever_is_answered_comes_to_a_result_or_a_failure(method: str, said: Any, kind: str, status: int) -> None:
    async def odd(_: web.Request, asked: Any) -> web.StreamResponse:
        headers = {"content-type": kind} if kind else {}
        return web.Response(status=status, body=body_of(asked, said, kind), headers=headers)

    async def ask() -> None:
        limits = ToolLimits(connect_seconds=1, list_seconds=0.2, call_seconds=0.2, answer_bytes=100_000)
        async with server(instead(method, odd), limits) as session:
            for asking in (session.list_tools, lambda: session.call("t", {})):
                with suppress(ToolFailure):
                    await asking()

    asyncio.run(ask())


@pytest.mark.parametrize("said", ["'x' * 30_000_000", "'[' * 30_000_000", "'{},' * 10_000_000", "'\\\\n' * 30_000_000"])
async def test_a_program_that_floods_takes_no_memory(said: str) -> None:
    flood = program(during=f"sys.stdout.write({said}); sys.stdout.flush()")
    async with running(flood, BOUNDS) as session:
        await session.list_tools()
        tracemalloc.start()
        try:
            with pytest.raises(ToolFailure):
                await session.call("t", {})
            _, most = tracemalloc.get_traced_memory()
        finally:
            tracemalloc.stop()
    assert most < 8 << 20


async def test_a_server_that_answers_byte_by_byte_has_no_more_time_for_that() -> None:
    sent = 0

    async def slowly(request: web.Request, asked: Any) -> web.StreamResponse:
        nonlocal sent
        response = web.StreamResponse(headers={"content-type": "application/json"})
        await response.prepare(request)
        for byte in answer(asked, content=[{"type": "text", "text": "x" * 10_000}]).body or b"":  # type: ignore[union-attr]
            await response.write(bytes([byte]))
            sent += 1
            await asyncio.sleep(0.01)
        return response

    async with server(instead("tools/call", slowly), ToolLimits(call_seconds=2)) as session:
        with pytest.raises(ToolFailure, match="did not answer within 2 s"):
            await session.call("t", {})
    assert 0 < sent < 1_000


@pytest.mark.parametrize("cursors", [["a"], ["a", "b"], ["a", "b", "c", "d", "e"]])
async def test_a_list_that_goes_round_in_a_circle_has_an_end(cursors: list[str]) -> None:
    pages = 0

    async def circle(_: web.Request, asked: Any) -> web.StreamResponse:
        nonlocal pages
        pages += 1
        return answer(asked, tools=[], nextCursor=cursors[pages % len(cursors)])

    async with server(instead("tools/list", circle), BOUNDS) as session:
        with pytest.raises(ToolFailure, match="more than 32 pages"):
            await session.list_tools()
    assert pages == 32


@pytest.mark.parametrize("status", [301, 302, 303, 307, 308])
async def test_no_redirect_is_followed_not_even_to_the_same_server(status: int) -> None:
    paths: list[str] = []

    async def elsewhere(request: web.Request, asked: Any) -> web.StreamResponse:
        paths.append(request.path)
        if request.path == "/mcp" and asked["method"] == "tools/call":
            return web.Response(status=status, headers={"location": "/other"})
        return await polite(request, asked)

    async with server(elsewhere, BOUNDS) as session:
        with pytest.raises(ToolFailure, match=f"HTTP {status}"):
            await session.call("t", {})
    assert "/other" not in paths
