"""A run as a stream of server-sent events.

One task drives the run and sends each batch of events as it comes. A client that lags makes the run wait, as `send`
does once the connection holds enough unsent, so nothing grows; the connection of one that stops reading altogether is
cut after `send_seconds` (connection.py). A client that goes away ends the run; what was said by then is stored.
"""

import asyncio

from starlette.responses import Response as HttpResponse
from starlette.types import Receive, Scope, Send

from service.body import watch
from service.gate import Arrival
from service.protocol import events
from service.protocol.events import Event
from service.protocol.response import Response
from service.run import Run
from service.settings import Settings
from service.sse import DONE, Encoder, Pulse

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

        def gone() -> None:
            self._arrival.facts["client"] = "gone"
            self._run.stop()

        watcher = asyncio.create_task(watch(receive, gone))
        pulse = Pulse(send, self._settings.keepalive_seconds)
        batches = self._run.events()
        try:
            await send({"type": "http.response.start", "status": 200, "headers": _HEADERS})
            async for batch in batches:
                await send({"type": "http.response.body", "body": self._encoded(batch), "more_body": True})
                pulse.sent()
            await send({"type": "http.response.body", "body": b"", "more_body": False})
        finally:
            pulse.stop()
            watcher.cancel()
            self._run.stop()
            async for _ in batches:  # where sending was broken off, what was said is stored all the same
                pass

    def _encoded(self, batch: list[Event]) -> bytes:
        buffer = bytearray()
        self._encoder.append(batch, buffer)
        last = batch[-1]
        if isinstance(last, events.Terminal):
            buffer += DONE
            note_outcome(self._arrival, last.response)
        return bytes(buffer)


def note_outcome(arrival: Arrival, response: Response) -> None:
    """What the log says of a response."""
    arrival.facts["outcome"] = response.status.value
    if response.usage is not None:
        arrival.facts["input_tokens"] = response.usage.input_tokens
        arrival.facts["cached_tokens"] = response.usage.input_tokens_details.cached_tokens
        arrival.facts["output_tokens"] = response.usage.output_tokens
