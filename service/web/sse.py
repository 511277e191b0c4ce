"""Server-sent events: a run's events as bytes, and comments that keep a quiet connection alive.

An event is written in one piece, as `event:` and `data:` lines; `[DONE]` follows the last. The events of a batch go out
in one send, which is what makes streaming cheap: half a microsecond each instead of a system call each. Never negotiate
on Accept: SDKs ask for JSON.
"""

import asyncio
import secrets
from collections.abc import Sequence
from contextlib import AbstractContextManager
from time import monotonic
from typing import get_args

import msgspec
from starlette.types import Send

from service.api import events
from service.api.events import Event

DONE = b"data: [DONE]\n\n"
KEEP_ALIVE = b": keep-alive\n\n"
OBFUSCATION_STEP = 16
"""A delta and its obfuscation together are a multiple of this long, so that lengths on the wire tell little."""

_VARIANTS = 64
_NO_NOISE = [[b"}\n\n"] * _VARIANTS] * OBFUSCATION_STEP
_LETTERS = secrets.token_urlsafe(OBFUSCATION_STEP * _VARIANTS).encode()
_NOISE = [
    [b',"obfuscation":"%b"}\n\n' % _LETTERS[at * OBFUSCATION_STEP :][:size] for at in range(_VARIANTS)]
    for size in range(OBFUSCATION_STEP)
]
"""How a padded delta may end, by the length of its noise; some of each. It hides lengths alone."""

_HEADS = {kind: f"event: {kind.__struct_config__.tag}\ndata: ".encode() for kind in events.KINDS}
_DELTAS: tuple[type[events.Delta], ...] = get_args(events.Delta)


class Encoder:
    """Appends events to a buffer as server-sent events. `obfuscate` pads deltas with noise.

    Nearly all events are deltas of one item, which differ in their text and their number alone: the rest is made once
    an item, by msgspec too, and filled in by one `%`. With obfuscation, that takes half of the time. Only deltas with
    log probabilities have more fields.
    """

    done = DONE
    """The bytes after the last event."""
    keep_alive = KEEP_ALIVE
    """The bytes that keep a quiet connection alive."""

    def __init__(self, *, obfuscate: bool) -> None:
        self._encoder = msgspec.json.Encoder()
        self._ends = _NOISE if obfuscate else _NO_NOISE
        self._kind: type[Event] | None = None
        self._item_id = ""
        self._template = b""

    def append(self, batch: Sequence[Event], buffer: bytearray) -> None:
        """Write the events at the buffer's end, each in one piece."""
        encode = self._encoder.encode
        ends = self._ends
        for event in batch:
            if not isinstance(event, _DELTAS):
                buffer += _HEADS[type(event)]
                self._encoder.encode_into(event, buffer, len(buffer))
                buffer += b"\n\n"
                continue
            delta, number = event.delta, event.sequence_number
            end = ends[-len(delta) % OBFUSCATION_STEP][number % _VARIANTS]
            if type(event) is events.OutputTextDelta and event.logprobs:
                buffer += _HEADS[type(event)]
                self._encoder.encode_into(event, buffer, len(buffer))
                buffer[-1:] = end  # in place of the closing brace
                continue
            if event.item_id is not self._item_id or type(event) is not self._kind:
                self._begin(event)
            buffer += self._template % (encode(delta), number, end)

    def _begin(self, event: events.Delta) -> None:
        """Make the template of an item's deltas: places for the text, the number and the end."""
        self._kind, self._item_id = type(event), event.item_id
        empty = self._encoder.encode(msgspec.structs.replace(event, delta="", sequence_number=0))
        template = (_HEADS[type(event)] + empty).replace(b"%", b"%%")
        template = template.replace(b'"delta":""', b'"delta":%b', 1)
        self._template = template.replace(b'"sequence_number":0}', b'"sequence_number":%d%b', 1)


class Pulse(AbstractContextManager["Pulse"]):
    """Sends a comment for every `seconds` in which nothing else is sent, so that no proxy closes the connection, until
    the end of a `with` block.
    """

    def __init__(self, send: Send, seconds: float, comment: bytes = KEEP_ALIVE) -> None:
        self._send = send
        self._seconds = seconds
        self._bytes = comment
        self._loop = asyncio.get_running_loop()
        self._since = monotonic()
        self._comment: asyncio.Future[None] | None = None
        self._timer = self._loop.call_later(seconds, self._tick)

    def sent(self) -> None:
        """Note that something else was sent."""
        self._since = monotonic()

    def __exit__(self, *_: object) -> None:
        self._timer.cancel()
        if self._comment is not None:
            self._comment.cancel()

    def _tick(self) -> None:
        left = self._since + self._seconds - monotonic()
        if left <= 0 and (self._comment is None or self._comment.done()):
            message = {"type": "http.response.body", "body": self._bytes, "more_body": True}
            self._comment = asyncio.ensure_future(self._send(message))
        self._timer = self._loop.call_later(left if left > 0 else self._seconds, self._tick)
