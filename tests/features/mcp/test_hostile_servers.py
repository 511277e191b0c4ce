"""Servers that mean harm, or know no better: whatever they say, a call ends in time, within bounds, and says why."""

import asyncio
import gzip
import json
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from typing import Any

import pytest
from aiohttp import web

from service.features.mcp.session import ToolSession
from service.features.mcp.settings import McpConnection
from service.features.mcp.transports import CheckedBackend, ForbiddenConnection, Weight
from service.tools.port import ToolFailure, ToolLimits
from tests.support.serving import stop

LIMITS = ToolLimits(connect_seconds=1, list_seconds=4, call_seconds=4, answer_bytes=100_000, tools=20)
PATIENT = ToolLimits(connect_seconds=1, list_seconds=4, call_seconds=40, answer_bytes=100_000, tools=20)
"""For what has another bound than its time, which a busy machine takes longer to reach."""
Handler = Callable[[web.Request, Any], Awaitable[web.StreamResponse]]
TOOL: dict[str, Any] = {"name": "t", "inputSchema": {"type": "object"}}


def answer(request: Any, **result: Any) -> web.Response:
    return web.json_response({"jsonrpc": "2.0", "id": request.get("id"), "result": result})


async def polite(_: web.Request, asked: Any) -> web.StreamResponse:
    """An older server, as it should be."""
    match asked.get("method"):
        case "initialize":
            info = {"name": "s", "version": "1"}
            return answer(asked, protocolVersion="2025-06-18", capabilities={"tools": {}}, serverInfo=info)
        case "tools/list":
            return answer(asked, tools=[TOOL])
        case "tools/call":
            return answer(asked, content=[{"type": "text", "text": "fine"}])
        case "server/discover":
            error = {"code": -32601, "message": "no"}
            return web.json_response({"jsonrpc": "2.0", "id": asked["id"], "error": error})
        case _:
            return web.Response(status=202)


@asynccontextmanager
async def server(
    handler: Handler,
    limits: ToolLimits = LIMITS,
    *,
    trusted: bool = True,
    headers: tuple[tuple[str, str], ...] = (("x-key", "s3cret"),),
    on_get: Callable[[web.Request], Awaitable[web.StreamResponse]] | None = None,
) -> AsyncIterator[ToolSession]:
    """A session with a server that answers so, and by `on_get` to who asks for what it says by itself."""

    async def handle(request: web.Request) -> web.StreamResponse:
        if request.method == "POST":
            return await handler(request, await request.json())
        return web.Response(status=405) if on_get is None or request.method != "GET" else await on_get(request)

    app = web.Application()
    app.router.add_route("*", "/{path:.*}", handle)
    runner = web.AppRunner(app, shutdown_timeout=0.1)
    await runner.setup()
    site = web.TCPSite(runner, "127.0.0.1", 0)
    await site.start()
    port = runner.addresses[0][1]
    session = ToolSession(McpConnection("s", f"http://127.0.0.1:{port}/mcp", headers, trusted), limits)
    try:
        yield session
    finally:
        await session.close()
        await stop(runner)


def instead(method: str, other: Handler) -> Handler:
    """A server that is polite but for one method."""

    async def handler(request: web.Request, asked: Any) -> web.StreamResponse:
        return await (other if asked.get("method") == method else polite)(request, asked)

    return handler


async def test_a_polite_server_is_heard_and_told_what_signs_in() -> None:
    seen: list[str | None] = []

    async def noting(request: web.Request, asked: Any) -> web.StreamResponse:
        seen.append(request.headers.get("x-key"))
        assert request.headers["accept-encoding"] == "identity"
        return await polite(request, asked)

    async with server(noting) as session:
        listing = await session.list_tools()
        said = await session.call("t", {})

    assert ([tool.name for tool in listing.tools], said.text) == (["t"], "fine")
    assert set(seen) == {"s3cret"}


async def huge(_: web.Request, asked: Any) -> web.StreamResponse:
    return answer(asked, content=[{"type": "text", "text": "x" * 1_000_000}])


async def zipped(_: web.Request, asked: Any) -> web.StreamResponse:
    """Says far more than it sends."""
    body = gzip.compress(json.dumps({"jsonrpc": "2.0", "id": asked["id"], "result": "x" * 5_000_000}).encode())
    return web.Response(body=body, headers={"content-encoding": "gzip", "content-type": "application/json"})


async def silent(_: web.Request, asked: Any) -> web.StreamResponse:
    await asyncio.Event().wait()
    raise AssertionError


async def dripping(request: web.Request, asked: Any) -> web.StreamResponse:
    """Answers in events that never end."""
    response = web.StreamResponse(headers={"content-type": "text/event-stream"})
    await response.prepare(request)
    for _ in range(1_000_000):
        await response.write(b": " + b"x" * 500 + b"\n\n")
    return response


async def unauthorized(_: web.Request, asked: Any) -> web.StreamResponse:
    """Has forgotten who is calling."""
    return web.json_response({"error": "s3cret"}, status=401)


async def broken(_: web.Request, asked: Any) -> web.StreamResponse:
    return web.Response(body=b'{"jsonrpc": "2.0", "id"', content_type="application/json")


async def deep(_: web.Request, asked: Any) -> web.StreamResponse:
    """Nests without end."""
    body = b'{"jsonrpc":"2.0","id":1,"result":' + b"[" * 40_000 + b"]" * 40_000 + b"}"
    return web.Response(body=body, content_type="application/json")


async def crowded(_: web.Request, asked: Any) -> web.StreamResponse:
    """Says little in many pieces, each of which takes time."""
    return answer(asked, content=[{}] * 20_000)


async def events(request: web.Request, asked: Any, data: bytes, kind: str = "text/event-stream") -> web.StreamResponse:
    """So many events, and then the answer."""
    response = web.StreamResponse(headers={"content-type": kind})
    await response.prepare(request)
    await response.write(data)
    await response.write(b"data: %b\n\n" % (answer(asked, content=[]).body or b""))
    return response


CROWD = json.dumps({"messages": [{}] * 10_500, "maxTokens": 1}).replace(", ", ",")
CROWDED_EVENT = f'data: {{"jsonrpc":"2.0","id":1,"method":"sampling/createMessage","params":{CROWD}}}\n\n'


async def crowded_event(request: web.Request, asked: Any) -> web.StreamResponse:
    """Asks for something, in many pieces."""
    return await events(request, asked, CROWDED_EVENT.encode())


async def crowded_in_a_charset(request: web.Request, asked: Any) -> web.StreamResponse:
    """Asks for the same in an encoding in which no byte is a mark."""
    data = CROWDED_EVENT.replace(",{", "+ACwAew-").encode()
    return await events(request, asked, data, "text/event-stream; charset=utf-7")


async def crowded_as_both(_: web.Request, asked: Any) -> web.StreamResponse:
    """Says much in JSON that is announced as events, too."""
    said = json.dumps({"jsonrpc": "2.0", "id": asked["id"], "result": {"content": [{}] * 12_000}})
    said = said.replace("{}, " * 4_000, "{}, " * 4_000 + "\n\n")
    return web.Response(body=said.encode(), headers={"content-type": "application/json; of=event-stream"})


async def pinging(request: web.Request, asked: Any) -> web.StreamResponse:
    """Wants an answer again and again."""
    return await events(request, asked, b'data: {"jsonrpc":"2.0","id":1,"method":"ping"}\n\n' * 2_050)


@pytest.mark.parametrize(
    ("how", "why"),
    [
        (crowded, "more than 10000 values"),
        (crowded_event, "more than 10000 values"),
        (crowded_in_a_charset, "violates the protocol"),
        (crowded_as_both, "without a response"),
        (pinging, "more than 2000 events"),
        (huge, "more than 100000 bytes"),
        (zipped, "compressed"),
        (silent, "did not answer within"),
        (dripping, "more than 100000 bytes"),
        (unauthorized, "HTTP 401"),
        (broken, "violates the protocol"),
        (deep, ""),
    ],
)
async def test_a_call_ends_in_time_and_says_why(how: Handler, why: str, caplog: pytest.LogCaptureFixture) -> None:
    limits = LIMITS if how is silent else PATIENT
    async with server(instead("tools/call", how), limits) as session:
        await session.list_tools()
        began = asyncio.get_running_loop().time()
        with pytest.raises(ToolFailure) as failure:
            await session.call("t", {})
        took = asyncio.get_running_loop().time() - began
        assert (await session.list_tools()).tools[0].name == "t"  # it is still there, or there again

    assert why in str(failure.value)
    assert str(failure.value)
    assert took < 2 * limits.call_seconds
    assert "s3cret" not in str(failure.value)
    assert not [record for record in caplog.records if not record.name.startswith("aiohttp")]


@pytest.mark.parametrize("how", [huge, silent, unauthorized, broken])
async def test_a_server_that_is_so_from_the_beginning_has_no_tools(how: Handler) -> None:
    async with server(how) as session:
        with pytest.raises(ToolFailure):
            await session.list_tools()


@pytest.mark.parametrize(
    ("tools", "limits", "pages", "why"),
    [
        ([TOOL], LIMITS, 21, "more than 20 tools"),
        (
            [TOOL | {"description": "x" * 1_000}],
            ToolLimits(list_seconds=4, list_bytes=5_000),
            5,
            "more than 5000 bytes",
        ),
        ([], LIMITS, 32, "more than 32 pages"),
    ],
)
async def test_a_list_has_an_end(tools: list[Any], limits: ToolLimits, pages: int, why: str) -> None:
    asked_for = 0

    async def long(_: web.Request, asked: Any) -> web.StreamResponse:
        nonlocal asked_for
        asked_for += 1
        return answer(asked, tools=tools, nextCursor="abc"[asked_for % 3])

    async with server(instead("tools/list", long), limits) as session:
        with pytest.raises(ToolFailure, match=why):
            await session.list_tools()
    assert asked_for == pages


async def test_a_session_takes_so_many_requests_and_no_more() -> None:
    async with server(polite, ToolLimits(requests=6)) as session:
        with pytest.raises(ToolFailure, match="more than 6 requests"):
            await asyncio.gather(*(session.call("t", {}) for _ in range(9)))


async def test_what_a_server_says_by_itself_is_not_taken_for_an_answer() -> None:
    refused = asyncio.Event()

    async def without_events(request: web.Request) -> web.StreamResponse:
        await begun.wait()
        refused.set()
        return web.Response(status=405)

    begun = asyncio.Event()

    async def handler(request: web.Request, asked: Any) -> web.StreamResponse:
        if asked["method"] == "initialize":
            said = await polite(request, asked)
            said.headers["mcp-session-id"] = "1"
            return said
        if asked["method"] == "tools/call":
            begun.set()
            await refused.wait()
            error = {"code": -32602, "message": "no such tool"}
            return web.json_response({"jsonrpc": "2.0", "id": asked["id"], "error": error})
        return await polite(request, asked)

    async with server(handler, on_get=without_events) as session:
        with pytest.raises(ToolFailure, match="no such tool"):
            await session.call("t", {})


async def test_a_server_on_a_private_address_is_not_reached_on_a_requests_word() -> None:
    reached: list[Any] = []

    async def noting(request: web.Request, asked: Any) -> web.StreamResponse:
        reached.append(asked)
        return await polite(request, asked)

    async with server(noting, trusted=False) as session:
        with pytest.raises(ToolFailure, match=r"^Its host has no public address"):
            await session.list_tools()
    assert reached == []


async def test_a_name_is_resolved_once_and_never_trusted() -> None:
    answers = [["93.184.216.34", "127.0.0.1"], ["127.0.0.1"], []]

    async def rebinding(host: str, port: int) -> list[str]:
        if not answers[0]:  # a host that isn't there is refused in the same words
            raise OSError(answers.pop(0))
        return answers.pop(0)

    backend = CheckedBackend(anywhere=False, resolve=rebinding)
    for _ in range(3):
        with pytest.raises(ForbiddenConnection, match=r"^its host has no public address$"):
            await backend.connect_tcp("rebound.example", 80)
    assert answers == []


async def test_calls_side_by_side_share_a_session_and_one_that_is_cancelled_harms_none() -> None:
    begun = asyncio.Event()

    async def slow(request: web.Request, asked: Any) -> web.StreamResponse:
        if asked["params"]["arguments"]:
            begun.set()
            await asyncio.sleep(30)
        return await polite(request, asked)

    async with server(instead("tools/call", slow), ToolLimits(call_seconds=20)) as session:
        stuck = asyncio.create_task(session.call("t", {"slow": True}))
        await begun.wait()
        others = await asyncio.gather(*(session.call("t", {}) for _ in range(10)))
        stuck.cancel()
        with pytest.raises(asyncio.CancelledError):
            await stuck
        assert {each.text for each in others} == {"fine"}
        assert (await session.call("t", {})).text == "fine"


@pytest.mark.parametrize("status", [301, 302, 303, 307, 308])
async def test_no_redirect_is_followed_not_even_to_the_same_server(status: int) -> None:
    paths: list[str] = []

    async def elsewhere(request: web.Request, asked: Any) -> web.StreamResponse:
        paths.append(request.path)
        if request.path == "/mcp" and asked["method"] == "tools/call":
            return web.Response(status=status, headers={"location": "/other"})
        return await polite(request, asked)

    async with server(elsewhere, LIMITS) as session:
        with pytest.raises(ToolFailure, match=f"HTTP {status}"):
            await session.call("t", {})
    assert "/other" not in paths


# --- how much there is in an answer, counted before anything parses it ---

MOST_VALUES = 20


def refused(parts: list[bytes], events: int | None) -> bool:
    """Whether an answer in these parts is refused."""
    weight = Weight(MOST_VALUES, events)
    return any(weight.refusal(part) for part in parts) or weight.refusal_at_end() is not None


@pytest.mark.parametrize("ends", [b"\n\n", b"\r\r", b"\n\r", b"\r\n\r", b"\r\n\r\n"])
def test_an_event_is_counted_before_anything_behind_it_comes(ends: bytes) -> None:
    text = b"data: [" + b"{}," * 30 + b"{}]" + ends + b":"
    for size in (1, 7, len(text)):
        weight = Weight(MOST_VALUES, 100)
        assert any(weight.refusal(text[start : start + size]) for start in range(0, len(text), size))


@pytest.mark.parametrize(
    "text",
    [
        b': a quote "\ndata: ' + b"{}," * 30 + b"\n\n",
        b': a quote "\rdata: ' + b"{}," * 30 + b"\n\n",
        b"data: [\ndata: " + b"{}," * 30 + b"\ndata: ]\n\n",
        b"data: [\r\n" + b"data: {},\r\n" * 30 + b"data: ]\r\n\r\n",
        b'data: "' + b'","' * 30,
        b"data: [" + b'"",' * 30,
    ],
)
def test_nothing_makes_values_look_like_text(text: bytes) -> None:
    for size in (1, 7, len(text)):
        assert refused([text[start : start + size] for start in range(0, len(text), size)], 100)
