"""The bytes of a connection: events each in one piece and padded, and a head with what comes right behind it."""

import asyncio
import json
from collections.abc import Callable
from typing import Any

import msgspec
import pytest
import uvicorn
from hypothesis import given
from uvicorn.server import ServerState

from service.api import events
from service.api.events import Event
from service.web.http_protocol import BoundedHttpProtocol
from service.web.sse import OBFUSCATION_STEP, Encoder
from tests.support.responses import event_samples
from tests.support.waiting import until


def placed(batch: list[Event]) -> list[Event]:
    """The events with an item of its own for each place in the output: the deltas of one item have one place."""
    ids: dict[tuple[int, ...], str] = {}
    for event in batch:
        if isinstance(event, events.Delta):
            place = tuple(getattr(event, name, 0) for name in ("output_index", "content_index", "summary_index"))
            event.item_id = ids.setdefault(place, f"item_{place}%b")
    return batch


batches = event_samples.batches.map(placed)


def written(batch: list[Event], *, obfuscate: bool) -> list[dict[str, Any]]:
    """The events as a client reads them."""
    buffer = bytearray()
    Encoder(obfuscate=obfuscate).append(batch, buffer)
    pieces = buffer.decode().split("\n\n")
    assert pieces.pop() == ""
    read = [dict(line.split(": ", 1) for line in piece.split("\n")) for piece in pieces]
    decoded = [json.loads(each["data"]) for each in read]
    assert [each["event"] for each in read] == [each["type"] for each in decoded]
    return decoded


def encoded(batch: list[Event]) -> list[dict[str, Any]]:
    return [json.loads(msgspec.json.encode(event)) for event in batch]


@given(batch=batches)
def test_any_event_is_written_as_it_is(batch: list[Event]) -> None:
    assert written(batch, obfuscate=False) == encoded(batch)


@given(batch=batches)
def test_deltas_of_every_kind_are_padded_and_nothing_else_is(batch: list[Event]) -> None:
    padded = written(batch, obfuscate=True)
    for event, read in zip(batch, padded, strict=True):
        noise = read.pop("obfuscation", "")
        if isinstance(event, events.Delta):
            assert (len(event.delta) + len(noise)) % OBFUSCATION_STEP == 0
        else:  # a shell's command too, which comes whole
            assert not noise

    assert padded == encoded(batch)


# --- what goes out at once ---

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
