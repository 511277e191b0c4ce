"""Server-sent events: a run's events as bytes, and the bounded buffer between the run and its client.

An event is written in one piece, as `event:` and `data:` lines; `[DONE]` follows the last. Events that wait go out in
one send, which is what makes streaming cheap: half a microsecond each instead of a system call each. A client
that lags makes the run wait, never the memory grow. Never negotiate on Accept: SDKs ask for JSON.
"""

import asyncio
import secrets
from collections.abc import Iterable
from time import monotonic

import msgspec

from service.protocol import events
from service.protocol.events import Event

DONE = b"data: [DONE]\n\n"
KEEP_ALIVE = b": keep-alive\n\n"
OBFUSCATION_STEP = 16
"""A delta and its obfuscation together are a multiple of this long, so that lengths on the wire say little."""

_VARIANTS = 64
_NO_NOISE = [[b"}\n\n"] * _VARIANTS] * OBFUSCATION_STEP
_HEADS: dict[type[Event], bytes] = {
    kind: f"event: {kind.__struct_config__.tag}\ndata: ".encode()
    for kind in vars(events).values()
    if isinstance(kind, type) and issubclass(kind, Event) and kind is not Event
}
_DELTAS = (events.OutputTextDelta, events.ReasoningTextDelta, events.FunctionCallArgumentsDelta)


class Encoder:
    """Appends events to a buffer as server-sent events. `obfuscate` pads deltas with noise.

    Nearly all events are deltas of one item, which differ in their text and their number alone: the rest is made once
    an item, by msgspec too, and filled in by one `%`. That takes a third of the time.
    """

    def __init__(self, *, obfuscate: bool) -> None:
        self._encoder = msgspec.json.Encoder()
        self._ends = _noise() if obfuscate else _NO_NOISE
        self._kind: type[Event] | None = None
        self._item_id = ""
        self._template = b""

    def append(self, batch: Iterable[Event], buffer: bytearray) -> None:
        """Write the events at the buffer's end, each in one piece."""
        encode = self._encoder.encode
        ends = self._ends
        for event in batch:
            if isinstance(event, _DELTAS):
                if event.item_id is not self._item_id or type(event) is not self._kind:
                    self._begin(event)
                delta, number = event.delta, event.sequence_number
                end = ends[-len(delta) % OBFUSCATION_STEP][number % _VARIANTS]
                buffer += self._template % (encode(delta), number, end)
            else:
                buffer += _HEADS[type(event)]
                self._encoder.encode_into(event, buffer, len(buffer))
                buffer += b"\n\n"

    def _begin(self, event: events.Delta) -> None:
        """Make the template of an item's deltas: places for the text, the number and the end."""
        self._kind, self._item_id = type(event), event.item_id
        empty = self._encoder.encode(msgspec.structs.replace(event, delta="", sequence_number=0))
        template = (_HEADS[type(event)] + empty).replace(b"%", b"%%")
        template = template.replace(b'"delta":""', b'"delta":%b', 1)
        self._template = template.replace(b'"sequence_number":0}', b'"sequence_number":%d%b', 1)


def _noise() -> list[list[bytes]]:
    """How a padded delta may end, by the length of its noise; some of each, so that none stands out."""
    noise = secrets.token_urlsafe(OBFUSCATION_STEP * _VARIANTS).encode()
    return [
        [b',"obfuscation":"%b"}\n\n' % noise[variant * OBFUSCATION_STEP :][:size] for variant in range(_VARIANTS)]
        for size in range(OBFUSCATION_STEP)
    ]


class Outbox:
    """Bytes on their way to one client, at most about `limit` of them; one task puts, another takes."""

    def __init__(self, limit: int) -> None:
        self._limit = limit
        self._loop = asyncio.get_running_loop()
        self.buffer = bytearray()
        """Append to it, then call `put`."""
        self._ended = False
        self._abandoned = False
        self._reader: asyncio.Future[None] | None = None
        self._writer: asyncio.Future[None] | None = None

    async def put(self) -> None:
        """Let the buffer's bytes be taken, and wait while there are too many."""
        _wake(self._reader)
        while len(self.buffer) > self._limit and not self._abandoned:
            self._writer = self._loop.create_future()
            await self._writer
        if self._abandoned:
            self.buffer.clear()

    async def take(self) -> bytearray | None:
        """All that waits, as soon as something does; None when there will be no more."""
        while not self.buffer:
            if self._ended or self._abandoned:
                return None
            self._reader = self._loop.create_future()
            await self._reader
        taken, self.buffer = self.buffer, bytearray()
        _wake(self._writer)
        return taken

    def end(self) -> None:
        """Nothing more will be put."""
        self._ended = True
        _wake(self._reader)

    def abandon(self) -> None:
        """The client is gone: what is put from now on is dropped, and nobody waits."""
        self._abandoned = True
        _wake(self._reader)
        _wake(self._writer)

    def keep_alive(self) -> None:
        """Show the client that the connection lives, unless bytes are waiting anyway."""
        if not self.buffer and not self._ended:
            self.buffer += KEEP_ALIVE
            _wake(self._reader)


def _wake(waiter: asyncio.Future[None] | None) -> None:
    if waiter is not None and not waiter.done():
        waiter.set_result(None)


class Pulse:
    """A comment for every `seconds` in which nothing is sent, so that nobody takes the connection for dead."""

    def __init__(self, outbox: Outbox, seconds: float) -> None:
        self._outbox = outbox
        self._seconds = seconds
        self._loop = asyncio.get_running_loop()
        self._since = monotonic()
        self._sending = False
        self._timer = self._loop.call_later(seconds, self._tick)

    def sending(self, sending: bool) -> None:
        """A send begins or has ended."""
        self._sending = sending
        self._since = monotonic()

    def stop(self) -> None:
        """The stream is over."""
        self._timer.cancel()

    def _tick(self) -> None:
        left = self._since + self._seconds - monotonic()
        if left <= 0 and not self._sending:
            self._outbox.keep_alive()
        self._timer = self._loop.call_later(left if left > 0 else self._seconds, self._tick)
