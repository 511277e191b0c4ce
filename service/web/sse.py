"""Server-sent events: a run's events as bytes, and what keeps a quiet connection alive.

An event is written in one piece, as `event:` and `data:` lines; `[DONE]` follows the last. The events of a batch go out
in one send, which is what makes streaming cheap: half a microsecond each instead of a system call each. Never negotiate
on Accept: SDKs ask for JSON.
"""

import asyncio
import secrets
from collections.abc import Callable, Coroutine, Sequence
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

_HEADS = {kind: f"event: {kind.__struct_config__.tag}\ndata: ".encode() for kind in (*events.KINDS, events.Keepalive)}
_DELTAS: tuple[type[events.Delta], ...] = get_args(events.Delta)


class Encoder:
    """Appends events to a buffer as server-sent events. `obfuscate` pads deltas with noise.

    Nearly all events are deltas of one item, which differ in their text and their number alone: the rest is made once
    an item, by msgspec too, and filled in by one `%`. With obfuscation, that takes half of the time. Only deltas with
    log probabilities have more fields.
    """

    done = DONE

    def __init__(self, *, obfuscate: bool) -> None:
        self._encoder = msgspec.json.Encoder()
        self._ends = _NOISE if obfuscate else _NO_NOISE
        self._kind: type[Event] | None = None
        self._item_id = ""
        self._template = b""
        self.number = events.UNSTAMPED
        """The number of the event that its client had last."""

    def keep_alive(self) -> bytes:
        """The bytes that keep a quiet connection alive: an event, as Codex takes a stream of comments for a dead one. A
        comment before the first event, as there is no number yet.
        """
        if self.number == events.UNSTAMPED:
            return KEEP_ALIVE
        return b"%b%b\n\n" % (_HEADS[events.Keepalive], self._encoder.encode(events.Keepalive(self.number)))

    def append(self, batch: Sequence[Event], buffer: bytearray) -> None:
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
        self.number = batch[-1].sequence_number

    def _begin(self, event: events.Delta) -> None:
        """Make the template of an item's deltas: places for the text, the number and the end."""
        self._kind, self._item_id = type(event), event.item_id
        empty = self._encoder.encode(msgspec.structs.replace(event, delta="", sequence_number=0))
        template = (_HEADS[type(event)] + empty).replace(b"%", b"%%")
        template = template.replace(b'"delta":""', b'"delta":%b', 1)
        self._template = template.replace(b'"sequence_number":0}', b'"sequence_number":%d%b', 1)


class Pulse(AbstractContextManager["Pulse"]):
    """Beats for every `seconds` in which nothing else is sent, until the end of a `with` block."""

    def __init__(self, beat: Callable[[], Coroutine[None, None, None]], seconds: float) -> None:
        self._beat = beat
        self._seconds = seconds
        self._loop = asyncio.get_running_loop()
        self._since = monotonic()
        self._beating: asyncio.Task[None] | None = None
        self._timer = self._loop.call_later(seconds, self._tick)

    def sent(self) -> None:
        """Note that something else is sent. A beat that waits for a client that lags is late by now."""
        self._since = monotonic()
        if self._beating is not None:
            self._beating.cancel()
            self._beating = None

    def __exit__(self, *_: object) -> None:
        self._timer.cancel()
        self.sent()

    def _tick(self) -> None:
        left = self._since + self._seconds - monotonic()
        if left <= 0 and (self._beating is None or self._beating.done()):
            self._beating = self._loop.create_task(self._beat())
        self._timer = self._loop.call_later(left if left > 0 else self._seconds, self._tick)


def beat_of(send: Send, keep_alive: Callable[[], bytes]) -> Callable[[], Coroutine[None, None, None]]:
    async def beat() -> None:
        await send({"type": "http.response.body", "body": keep_alive(), "more_body": True})

    return beat
