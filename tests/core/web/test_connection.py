"""Connections: heads are bounded in bytes, in number and in time, and ordinary requests notice nothing."""

import asyncio
import json
from collections.abc import AsyncGenerator, Awaitable, Callable
from contextlib import suppress
from functools import partial

import pytest
import uvicorn

from service.commands.serve import listen
from service.process import load_settings
from service.web.http_protocol import MAX_HEAD_BYTES, MAX_HEADERS, MAX_PIPELINED, BoundedHttpProtocol, ConnectionLimits
from tests.support.service.standin import create_app
from tests.support.waiting import until

GET = b"GET /pid HTTP/1.1\r\nHost: localhost\r\n"
POST = b"POST /body HTTP/1.1\r\nHost: localhost\r\nTransfer-Encoding: chunked\r\n\r\n"
EXPECTING = b"\r\nExpect: 100-continue\r\n\r\n"
"""The end of a head whose body waits until the application asks for it, which `CONTINUE` says."""

CONTINUE = b"HTTP/1.1 100 Continue\r\n\r\n"
ENDLESS = 64 * 1024 * 1024
DEADLINE_SECONDS = 10

Connect = Callable[[], Awaitable[tuple[asyncio.StreamReader, asyncio.StreamWriter]]]


def config_with(limits: ConnectionLimits) -> uvicorn.Config:
    app = partial(create_app, load_settings())
    config = uvicorn.Config(app, factory=True, http=BoundedHttpProtocol, ws="none", log_config=None)
    config.connection_limits = limits  # type: ignore[attr-defined]
    return config


@pytest.fixture
def limits() -> ConnectionLimits:
    """The usual ones; a test that wants others is parametrized with them."""
    return ConnectionLimits()


@pytest.fixture
def config(limits: ConnectionLimits) -> uvicorn.Config:
    return config_with(limits)


@pytest.fixture
def server(config: uvicorn.Config) -> uvicorn.Server:
    return uvicorn.Server(config)


@pytest.fixture
async def connect(server: uvicorn.Server) -> AsyncGenerator[Connect]:
    with listen("127.0.0.1", 0) as listener:
        writers: list[asyncio.StreamWriter] = []

        async def open_one() -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
            reader, writer = await asyncio.open_connection("127.0.0.1", port)
            writers.append(writer)
            return reader, writer

        port: int = listener.getsockname()[1]
        serving = asyncio.create_task(server.serve(sockets=[listener]))
        yield open_one
        for writer in writers:
            writer.close()
        server.should_exit = True
        await serving


async def send_until_refused(writer: asyncio.StreamWriter, start: bytes, more: bytes) -> int:
    """Send `start`, then `more` again and again until the server hangs up; how many bytes it took."""
    sent = len(start)
    writer.write(start)
    with suppress(ConnectionError):  # which is what is waited for
        while sent < ENDLESS:
            writer.write(more)
            await asyncio.wait_for(writer.drain(), DEADLINE_SECONDS)
            await asyncio.sleep(0)
            sent += len(more)
    return sent


async def answer_to(reader: asyncio.StreamReader) -> bytes:
    return await asyncio.wait_for(reader.read(), DEADLINE_SECONDS)


@pytest.mark.parametrize(
    ("start", "more"),
    [
        (GET + b"X: ", b"v" * 4096),
        (GET, b"a: b\r\n" * 600),
        (b"GET /", b"u" * 4096),
        (GET + b"n", b"n" * 4096),
        (POST + b"1\r\nx\r\n0\r\n", b"a: b\r\n" * 600),
        (POST + b"1\r\nx\r\n0\r\nX: ", b"v" * 4096),
    ],
    ids=["a value", "headers", "a URL", "a name", "trailers", "a trailer"],
)
async def test_what_never_ends_is_refused_early(connect: Connect, start: bytes, more: bytes) -> None:
    _, writer = await connect()
    assert await send_until_refused(writer, start, more) < ENDLESS / 4


@pytest.mark.parametrize("head", [b"X: " + b"v" * MAX_HEAD_BYTES, b"\r\n".join([b"a: b"] * (MAX_HEADERS + 1))])
async def test_a_head_beyond_its_bounds_gets_431_in_the_words_of_the_api(connect: Connect, head: bytes) -> None:
    reader, writer = await connect()
    writer.write(GET + head + b"\r\n\r\n")
    head, _, body = (await answer_to(reader)).partition(b"\r\n\r\n")
    assert head.startswith(b"HTTP/1.1 431 ")
    assert json.loads(body)["error"]["type"] == "invalid_request_error"


async def test_a_long_body_in_small_chunks_is_not_a_head(connect: Connect) -> None:
    reader, writer = await connect()
    writer.write(POST + b"1\r\nx\r\n" * 100_000 + b"0\r\n\r\n")
    assert b"100000 bytes, 2 headers" in await asyncio.wait_for(reader.readuntil(b"headers"), DEADLINE_SECONDS)


@pytest.mark.parametrize("limits", [ConnectionLimits(head_seconds=0.05)])
@pytest.mark.parametrize("sent", [b"", GET])
async def test_a_head_that_does_not_come_in_time_is_hung_up_on(connect: Connect, sent: bytes) -> None:
    reader, writer = await connect()
    writer.write(sent)
    assert await answer_to(reader) == b""


@pytest.mark.parametrize("limits", [ConnectionLimits(connections=1)])
async def test_a_connection_too_many_takes_the_place_of_one_without_a_request(connect: Connect) -> None:
    first, _ = await connect()
    second, writer = await connect()
    assert await until_hung_up(first) == b""
    writer.write(GET + b"\r\n")
    assert b"200 OK" in await asyncio.wait_for(second.readuntil(b"0\r\n\r\n"), DEADLINE_SECONDS)
    await connect()  # it waits for its next request as well
    assert await until_hung_up(second) == b""


@pytest.mark.parametrize("limits", [ConnectionLimits(connections=1)])
async def test_a_connection_too_many_is_hung_up_on_while_requests_are_under_way(connect: Connect) -> None:
    first, writer = await connect()
    writer.write(POST.replace(b"\r\n\r\n", EXPECTING))
    await asyncio.wait_for(first.readuntil(CONTINUE), DEADLINE_SECONDS)
    second, _ = await connect()
    assert await until_hung_up(second) == b""
    writer.write(b"1\r\nx\r\n0\r\n\r\n")
    assert b"1 bytes, 3 headers" in await asyncio.wait_for(first.readuntil(b"headers"), DEADLINE_SECONDS)


async def until_hung_up(reader: asyncio.StreamReader) -> bytes:
    received = b""
    with suppress(ConnectionResetError):
        while piece := await asyncio.wait_for(reader.read(1 << 16), DEADLINE_SECONDS):
            received += piece
    return received


UNREAD = b"PUT /pid HTTP/1.1\r\nHost: localhost\r\n"


async def test_an_answer_without_its_body_arrives_however_long_that_is(connect: Connect) -> None:
    reader, writer = await connect()
    writer.write(UNREAD + b"Content-Length: 9000000\r\n\r\n")
    for _ in range(9):
        writer.write(bytes(1_000_000))
        await asyncio.wait_for(writer.drain(), DEADLINE_SECONDS)
    writer.write(GET + b"Connection: close\r\n\r\n")
    assert (await answer_to(reader)).count(b"HTTP/1.1 200") == 2


async def test_requests_ahead_of_their_answers_are_few(connect: Connect) -> None:
    reader, writer = await connect()
    writer.write((GET + b"\r\n") * 1000)
    answers = await until_hung_up(reader)
    assert answers.count(b"HTTP/1.1 200") <= MAX_PIPELINED + 1
    assert b"requests wait on this connection" in answers


@pytest.mark.parametrize("protocol", [b"h2c", b"websocket"])
@pytest.mark.parametrize("announced", ["length", "chunks"])
async def test_a_wish_for_another_protocol_is_ignored_and_its_body_is_a_body(
    connect: Connect, protocol: bytes, announced: str
) -> None:
    inner = b"GET /pid HTTP/1.1\r\nHost: localhost\r\n\r\n"
    head = b"POST /body HTTP/1.1\r\nHost: localhost\r\nConnection: Upgrade, HTTP2-Settings\r\nUpgrade: " + protocol
    if announced == "length":
        head, body = head + b"\r\nContent-Length: %d\r\n\r\n" % len(inner), inner
    else:
        head += b"\r\nTransfer-Encoding: chunked\r\n\r\n"
        body = b"%x\r\n%s\r\n0\r\n\r\n" % (len(inner), inner)
    reader, writer = await connect()
    writer.write(head + body + GET + b"Connection: close\r\n\r\n")
    answers = await answer_to(reader)
    assert answers.count(b"HTTP/1.1 200") == 2
    assert b"%d bytes" % len(inner) in answers


async def test_a_tunnel_is_refused(connect: Connect) -> None:
    reader, writer = await connect()
    writer.write(b"CONNECT localhost:80 HTTP/1.1\r\nHost: localhost:80\r\n\r\n")
    assert (await answer_to(reader)).startswith(b"HTTP/1.1 400 ")


async def test_trailers_do_not_become_headers(connect: Connect) -> None:
    reader, writer = await connect()
    writer.write(POST + b"1\r\nx\r\n0\r\nAuthorization: Bearer k\r\n\r\n")
    assert b"1 bytes, 2 headers" in await asyncio.wait_for(reader.readuntil(b"headers"), DEADLINE_SECONDS)


async def test_a_body_that_takes_for_ever_is_not_waited_for(connect: Connect, config: uvicorn.Config) -> None:
    config.timeout_keep_alive = 1
    reader, writer = await connect()
    writer.write(UNREAD + b"Content-Length: 1000000\r\n\r\n")

    async def drip() -> None:
        with suppress(ConnectionError):
            while True:
                writer.write(b"x")
                await writer.drain()
                await asyncio.sleep(0.05)

    dripping = asyncio.create_task(drip())
    assert (await until_hung_up(reader)).count(b"HTTP/1.1 200") == 1
    dripping.cancel()


LEFT = UNREAD + b"Connection: close\r\nContent-Length: 90000000\r\n\r\n"
"""It is answered without its body, and the connection is to be closed."""


async def begin_to_linger(connect: Connect) -> asyncio.StreamWriter:
    """A connection whose request was answered, and that hasn't sent all of it."""
    reader, writer = await connect()
    writer.write(LEFT)
    assert (await answer_to(reader)).startswith(b"HTTP/1.1 200 ")
    return writer


@pytest.mark.parametrize("limits", [ConnectionLimits(linger_bytes=100_000)])
async def test_the_rest_of_a_body_is_dropped_up_to_so_many_bytes(connect: Connect) -> None:
    writer = await begin_to_linger(connect)
    assert await send_until_refused(writer, b"", bytes(65_536)) < ENDLESS


@pytest.mark.parametrize("limits", [ConnectionLimits(linger_seconds=0.05)])
async def test_the_rest_of_a_body_is_dropped_for_so_many_seconds(connect: Connect) -> None:
    """It comes byte by byte, as all that `linger_bytes` allows at once is here within a few hundredths of a second."""
    writer = await begin_to_linger(connect)
    assert await asyncio.wait_for(send_until_refused(writer, b"", b"x"), DEADLINE_SECONDS) < ENDLESS


@pytest.mark.parametrize("limits", [ConnectionLimits(lingering=1)])
async def test_few_that_send_on_are_waited_for(connect: Connect, server: uvicorn.Server) -> None:
    first = await begin_to_linger(connect)
    second = await begin_to_linger(connect)
    assert await send_until_refused(second, b"", bytes(65_536)) < ENDLESS
    assert len(server.server_state.connections) == 1
    first.close()
    await until(lambda: not server.server_state.connections, DEADLINE_SECONDS)
    await begin_to_linger(connect)
    assert len(server.server_state.connections) == 1, "there is room again"


@pytest.mark.parametrize("limits", [ConnectionLimits(connections=1)])
async def test_who_sends_on_makes_room_for_a_connection_too_many(connect: Connect, server: uvicorn.Server) -> None:
    writer = await begin_to_linger(connect)
    reader, second = await connect()
    second.write(GET + b"\r\n")
    assert b"200 OK" in await asyncio.wait_for(reader.readuntil(b"0\r\n\r\n"), DEADLINE_SECONDS)
    assert await send_until_refused(writer, b"", bytes(65_536)) < ENDLESS
    assert len(server.server_state.connections) == 1


async def test_a_stop_waits_for_nobody_who_sends_on(connect: Connect, server: uvicorn.Server) -> None:
    await begin_to_linger(connect)
    assert server.server_state.connections
    server.should_exit = True
    await until(lambda: not server.server_state.connections, DEADLINE_SECONDS)


async def test_the_refusal_of_an_endless_head_is_read_by_who_sends_first(connect: Connect) -> None:
    reader, writer = await connect()
    writer.write(GET + b"X: " + b"v" * 900_000)
    await asyncio.wait_for(writer.drain(), DEADLINE_SECONDS)
    assert (await answer_to(reader)).startswith(b"HTTP/1.1 431 ")
