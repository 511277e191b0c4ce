"""What no client should send over a WebSocket: frames that are refused one by one, and bytes that end a connection.

Every bad body of a create request is a bad frame, too, with the same refusal; the few that differ are left out or told
anew here.
"""

import json
from collections.abc import Callable
from dataclasses import dataclass
from struct import pack
from typing import Any

from tests.support.bad.requests import READ, REPLAYED
from tests.support.bad.table import CREATE, LIMIT, MISSING, MODEL, STRANGE, TYPE, UNSUPPORTED, VALUE, Bad
from tests.support.bad.table import UNKNOWN as UNKNOWN_ID

ASKED = {"type": "response.create", "model": MODEL, "input": "hi"}


@dataclass(frozen=True)
class BadFrame:
    """A frame and what its error holds; `words` stand in the message."""

    frame: str | bytes
    code: str | None
    param: str | None
    words: str
    status: int = 400


def frame(code: str | None, param: str | None, words: str, status: int = 400, /, **fields: Any) -> BadFrame:
    return BadFrame(json.dumps(fields), code, param, words, status)


def create(code: str, param: str, words: str, /, **fields: Any) -> BadFrame:
    """A `response.create` that is right but for these fields."""
    return BadFrame(json.dumps({**ASKED, **fields}), code, param, words)


def lane(name: Any) -> BadFrame:
    """A `response.create` for a lane that can't be."""
    return create("invalid_stream_id", "stream_id", "'stream_id'", stream_id=name)


def kind(name: str) -> BadFrame:
    """A frame of a type that isn't served."""
    return frame("unknown_event_type", "type", "response.create", type=name)


KINDS = ("response.steered", "response.inject", "RESPONSE.CREATE", "", "response.create\u0000", "λ", "x" * 10_000)
LANES = ("", "a b", "a\n", "λ", "a" * 257, "a\u0000", "%61", 5, True, [], {})

STEERED: tuple[tuple[Any, str, str], ...] = (
    (None, MISSING, "the id of the response"),
    ("", MISSING, "the id of the response"),
    (5, TYPE, "a string"),
    ("x" * 5000, VALUE, "5002 bytes"),
)


def of(id: Any) -> dict[str, Any]:
    """The members of a steer of this response."""
    return {"previous_response_id": id, "input": "x"}


FRAMES: dict[str, BadFrame] = {
    **{f"the type {name[:40]!r}": kind(name) for name in KINDS},
    **{f"the lane {str(name)[:40]!r}": lane(name) for name in LANES},
    **{
        f"a steer of {str(id)[:40]!r}": frame(code, "previous_response_id", words, type="response.steer", **of(id))
        for id, code, words in STEERED
    },
    "a steer that is too long": frame(
        "steer_too_large",
        "input",
        "too long",
        type="response.steer",
        previous_response_id="resp_0",
        input="x" * (1 << 20),
    ),
    "nothing": BadFrame("", "invalid_json", None, "could not be parsed"),
    "no JSON": BadFrame("hello", "invalid_json", None, "could not be parsed"),
    "a lone surrogate": BadFrame(json.dumps({**ASKED, "input": "\ud800"}), "invalid_json", None, "surrogate"),
    "deep": BadFrame('{"type":"response.create","x":' + "[" * 100_000, "invalid_json", None, "deep"),
    "an array": BadFrame(json.dumps([ASKED]), TYPE, None, "expected an object"),
    "no type": frame(MISSING, "type", "response.create", model=MODEL, input="hi"),
    "a number for a type": frame(TYPE, "type", "a string", type=5),
    "a binary frame": BadFrame(json.dumps(ASKED).encode(), "binary_frame", None, "text"),
    "a body within": frame(STRANGE, "response", "response", type="response.create", response=ASKED),
    "in the background": create(UNSUPPORTED, "background", "POST", background=True),
    "no stream": create(VALUE, "stream", "always streams", stream=False),
    "a warm-up that is wrong": create(VALUE, "temperature", "2", generate=False, temperature=9),
    "an unknown response": create(
        "previous_response_not_found", "previous_response_id", "not found", previous_response_id=UNKNOWN_ID
    ),
    "a cancel of nothing": frame("response_not_active", "response_id", "is running", 404, type="response.cancel"),
    "a cancel of a number": frame(TYPE, "response_id", "a string", type="response.cancel", response_id=5),
}
"""Frames that are wrong in ways of their own."""

OTHERWISE = frozenset(
    {
        "stream options without a stream",  # a frame always streams
        "a number for stream",
        "a background that is not stored",
        "a text for background",
    }
)
"""Bad bodies that a frame is told something else of, or nothing."""


def framed(bad: Bad) -> str | None:
    """A bad body as a frame, if it can be one."""
    if isinstance(bad.body, dict):
        return json.dumps({"type": "response.create", **bad.body})
    raw = bad.body() if bad.body is not None else b""
    if not raw.startswith(b"{"):
        return None
    try:
        json.loads(raw)
        return '{"type":"response.create",' + raw[1:].decode() if len(raw) > 2 else None
    except ValueError:
        return None


BODIES: dict[str, BadFrame] = {
    name: BadFrame(sent, bad.code, bad.param, bad.words, bad.status)
    for name, bad in READ.items()
    if bad.path == CREATE and name not in OTHERWISE | REPLAYED and (sent := framed(bad)) is not None
}
"""Bad bodies as frames."""


def raw(opcode: int, payload: bytes = b"", *, fin: bool = True, masked: bool = True, reserved: int = 0) -> bytes:
    """A frame as bytes (RFC 6455, section 5.2), with a mask of zeros."""
    size, mask = len(payload), 0x80 if masked else 0
    length = (
        bytes([mask | size])
        if size < 126
        else bytes([mask | 126]) + pack("!H", size)
        if size < 65_536
        else bytes([mask | 127]) + pack("!Q", size)
    )
    return bytes([(0x80 if fin else 0) | reserved | opcode]) + length + (bytes(4) if masked else b"") + payload


TEXT, CONTINUED, CLOSE, PING = 1, 0, 8, 9
Bytes = Callable[[], bytes]

ENDING: dict[str, tuple[Bytes, int]] = {
    "a frame without a mask": (lambda: raw(TEXT, b"{}", masked=False), 1002),
    "a first reserved bit": (lambda: raw(TEXT, b"{}", reserved=0x40), 1002),
    **{f"the opcode {code}": ((lambda code=code: raw(code, b"{}")), 1002) for code in (3, 7, 11, 15)},
    "a ping in fragments": (lambda: raw(PING, b"a", fin=False), 1002),
    "a long ping": (lambda: raw(PING, bytes(126)), 1002),
    "a close with a code that is none": (lambda: raw(CLOSE, pack("!H", 999)), 1002),
    "a close whose reason is no UTF-8": (lambda: raw(CLOSE, pack("!H", 1000) + b"\xff"), 1007),
    "a continuation of nothing": (lambda: raw(CONTINUED, b"{}"), 1002),
    "a text within a text": (lambda: raw(TEXT, b"{", fin=False) + raw(TEXT, b"}"), 1002),
    "a text that is no UTF-8": (lambda: raw(TEXT, b"\xff\xfe"), 1007),
    "a message that is too large": (lambda: raw(TEXT, b" " * (LIMIT + 1)), 1009),
    "a message that announces 2^62 bytes": (lambda: b"\x81\xff" + pack("!Q", 1 << 62) + bytes(4), 1009),
    "a message that is too large in fragments": (
        lambda: raw(TEXT, b" " * (LIMIT // 2), fin=False) + raw(CONTINUED, b" " * (LIMIT // 2 + 1)),
        1009,
    ),
    "a message of a million empty fragments": (
        lambda: raw(TEXT, b"", fin=False) + raw(CONTINUED, b"", fin=False) * 1_000_000,
        1009,
    ),
    "ten thousand pings": (lambda: raw(PING, b"hello") * 10_000, 1008),
    "an HTTP request": (lambda: b"GET / HTTP/1.1\r\nHost: localhost\r\n\r\n", 1002),
}
"""What ends a connection, and the code with which it is closed."""
