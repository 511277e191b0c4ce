"""A run as a stream of server-sent events.

Two tasks: one drives the run and fills the outbox, this one empties it into the connection, so that events that come
faster than they can be sent travel together. A client that goes away ends the run, and so does one that stops
reading, as its connection is cut after `send_seconds`; what was said by then is stored. Never let a slow client grow
the memory: the outbox is bounded.
"""

import asyncio

from starlette.responses import Response as HttpResponse
from starlette.types import Receive, Scope, Send

from service.body import watch
from service.gate import Arrival
from service.protocol import events
from service.protocol.response import Response
from service.run import Run
from service.settings import Settings
from service.sse import DONE, Encoder, Outbox, Pulse

_HEADERS = [
    (b"content-type", b"text/event-stream; charset=utf-8"),
    (b"cache-control", b"no-cache"),
    (b"x-accel-buffering", b"no"),
]


class EventStream(HttpResponse):
    """The streaming answer to a create request."""

    def __init__(self, run: Run, arrival: Arrival, settings: Settings, *, obfuscate: bool) -> None:
        self.status_code = 200
        self.background = None
        self._run = run
        self._arrival = arrival
        self._settings = settings
        self._encoder = Encoder(obfuscate=obfuscate)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer one request."""
        outbox = Outbox(self._settings.max_send_buffer_bytes)

        def gone() -> None:
            self._arrival.facts["client"] = "gone"
            self._run.stop()
            outbox.abandon()

        pulse = Pulse(outbox, self._settings.keepalive_seconds)
        producer = asyncio.create_task(self._produce(outbox))
        watcher = asyncio.create_task(watch(receive, gone))
        try:
            await self._send(outbox, pulse, send)
            await producer  # if it failed, the body gets no end, so that nobody takes it for whole
            await send({"type": "http.response.body", "body": b"", "more_body": False})
        finally:
            pulse.stop()
            watcher.cancel()
            self._run.stop()
            outbox.abandon()
            await producer

    async def _produce(self, outbox: Outbox) -> None:
        """Drive the run to its end, whatever becomes of the client."""
        try:
            async for batch in self._run.events():
                self._encoder.append(batch, outbox.buffer)
                last = batch[-1]
                if isinstance(last, events.Terminal):
                    outbox.buffer += DONE
                    note_outcome(self._arrival, last.response)
                await outbox.put()
        finally:
            outbox.end()

    async def _send(self, outbox: Outbox, pulse: Pulse, send: Send) -> None:
        await send({"type": "http.response.start", "status": 200, "headers": _HEADERS})
        while (piece := await outbox.take()) is not None:
            pulse.sending(True)
            await send({"type": "http.response.body", "body": bytes(piece), "more_body": True})
            pulse.sending(False)


def note_outcome(arrival: Arrival, response: Response) -> None:
    """What the log says of a response."""
    arrival.facts["outcome"] = response.status.value
    if response.usage is not None:
        arrival.facts["input_tokens"] = response.usage.input_tokens
        arrival.facts["cached_tokens"] = response.usage.input_tokens_details.cached_tokens
        arrival.facts["output_tokens"] = response.usage.output_tokens
