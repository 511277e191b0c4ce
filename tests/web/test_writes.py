"""What goes out over a connection at once: a head with what comes right behind it, and nothing later than it would."""

import asyncio
from collections.abc import Callable
from typing import Any

import pytest
import uvicorn
from uvicorn.server import ServerState

from service.web.http_protocol import BREAK_OFF, BoundedHttpProtocol
from tests.support.waiting import until

START = {"type": "http.response.start", "status": 200, "headers": [(b"content-length", b"6")]}
STREAM = {"type": "http.response.start", "status": 200, "headers": []}
UNCHANGED = {"type": "http.response.start", "status": 304, "headers": [(b"etag", b'"a"')]}
LAST = {"type": "http.response.body", "body": b""}
GET = b"GET / HTTP/1.1\r\nHost: localhost\r\n\r\n"
HEAD_END = b"\r\n\r\n"


def body(piece: bytes, *, more: bool = False) -> dict[str, Any]:
    """A piece of an answer's body."""
    return {"type": "http.response.body", "body": piece, "more_body": more}


class Written(asyncio.Transport):
    """A connection that keeps what was written, each by itself."""

    def __init__(self) -> None:
        super().__init__()
        self.writes: list[bytes] = []
        self.closing = False

    def write(self, data: "bytes | bytearray | memoryview[int]") -> None:
        self.writes.append(bytes(data))

    def close(self) -> None:
        self.closing = True

    def is_closing(self) -> bool:
        return self.closing

    def set_write_buffer_limits(self, high: int | None = None, low: int | None = None) -> None:
        pass

    def pause_reading(self) -> None:
        pass

    def resume_reading(self) -> None:
        pass


def connection(app: Callable[..., Any]) -> tuple[BoundedHttpProtocol, Written]:
    config = uvicorn.Config(app, http=BoundedHttpProtocol, ws="none", log_config=None)
    protocol, transport = BoundedHttpProtocol(config, ServerState(), {}), Written()
    protocol.connection_made(transport)
    return protocol, transport


async def answered(messages: list[dict[str, Any]], request: bytes = GET) -> list[bytes]:
    """What is written for an answer that is sent without a pause."""

    async def app(scope: Any, receive: Any, send: Any) -> None:
        for message in messages:
            await send(message)
        done.set()

    done = asyncio.Event()
    protocol, transport = connection(app)
    protocol.data_received(request)
    await done.wait()
    await asyncio.sleep(0)
    protocol.connection_lost(None)
    return transport.writes


@pytest.mark.parametrize(
    ("messages", "ends"),
    [
        ([START, body(b"answer")], [b"answer"]),
        ([START, body(b"ans", more=True), body(b"wer")], [b"ans", b"wer"]),
        ([STREAM, body(b"one", more=True), body(b"two", more=True), LAST], [b"one\r\n", b"two\r\n", b"0\r\n\r\n"]),
        ([UNCHANGED, LAST], [b'"a"\r\n\r\n']),
        ([START, body(b"HTTP/1", more=True)], [b"HTTP/1"]),
    ],
    ids=["whole", "in pieces", "stream", "without a body", "a body like a head"],
)
async def test_a_head_goes_out_with_what_comes_behind_it(messages: list[dict[str, Any]], ends: list[bytes]) -> None:
    writes = await answered(messages)
    assert len(writes) == len(ends)
    assert all(write.endswith(end) for write, end in zip(writes, ends, strict=True))
    assert writes[0].startswith(b"HTTP/1.1 ")
    assert HEAD_END in writes[0]


async def test_a_piece_of_a_body_that_looks_like_a_head_is_sent_in_its_place() -> None:
    pieces = [b"HTTP/1.1 one", b"HTTP/1.1 two", b"three", b"HTTP/1.1 four"]
    start = {"type": "http.response.start", "status": 200, "headers": [(b"content-length", b"42")]}
    writes = await answered([start, *(body(piece, more=True) for piece in pieces[:-1]), body(pieces[-1])])
    assert b"".join(writes).partition(HEAD_END)[2] == b"".join(pieces)


async def test_an_answer_to_HEAD_is_its_head() -> None:  # noqa: N802
    (written,) = await answered([START, body(b"")], GET.replace(b"GET", b"HEAD"))
    assert written.endswith(HEAD_END)


async def test_a_head_behind_which_nothing_comes_goes_out_by_itself() -> None:
    goes_on = asyncio.Event()

    async def app(scope: Any, receive: Any, send: Any) -> None:
        await send(START)
        await goes_on.wait()
        await send(body(b"answer"))

    protocol, transport = connection(app)
    protocol.data_received(GET)
    await until(lambda: len(transport.writes) == 1)
    assert transport.writes[0].endswith(HEAD_END)
    goes_on.set()
    await until(lambda: transport.writes[1:] == [b"answer"])
    protocol.connection_lost(None)


async def test_an_answer_that_is_broken_off_behind_its_head_has_that() -> None:
    async def app(scope: Any, receive: Any, send: Any) -> None:
        await send(START)
        scope["extensions"][BREAK_OFF]["now"]()
        await receive()

    protocol, transport = connection(app)
    protocol.data_received(GET)
    await until(lambda: transport.closing)
    assert [write[-4:] for write in transport.writes] == [HEAD_END]
    protocol.connection_lost(None)


async def test_a_head_whose_connection_is_lost_is_sent_nowhere() -> None:
    async def app(scope: Any, receive: Any, send: Any) -> None:
        await send(START)
        transport.close()  # as it is once it is lost
        protocol.connection_lost(ConnectionResetError())
        ended.set()

    ended = asyncio.Event()
    protocol, transport = connection(app)
    protocol.data_received(GET)
    await ended.wait()
    await asyncio.sleep(0)
    assert transport.writes == []


async def test_what_is_refused_behind_an_answer_of_a_head_comes_behind_it() -> None:
    async def app(scope: Any, receive: Any, send: Any) -> None:
        await send(START)
        await send(LAST)

    protocol, transport = connection(app)
    protocol.data_received(GET.replace(b"GET", b"HEAD") + b"nonsense\r\n\r\n")
    await until(lambda: transport.closing)
    told = b"".join(transport.writes)
    assert told.index(b"200 OK") < told.index(b"400 Bad Request") < told.index(b"not a valid HTTP request")
