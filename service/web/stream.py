"""A run as a stream of server-sent events.

One task drives the run and sends each batch of events as it comes. A client that lags makes the run wait, as `send`
does once the connection holds enough unsent, so nothing grows; the connection of one that stops reading altogether is
cut after `send_seconds` (connection.py). A client that goes away ends the run; what was said by then is stored.
"""

import asyncio

from starlette.responses import Response as HttpResponse
from starlette.types import Receive, Scope, Send

from service.api import events
from service.api.events import Event
from service.api.response import Response, ResponseStatus
from service.engine.port import EngineError
from service.metrics.counters import Mode
from service.responses.run import Run
from service.settings.settings import Settings
from service.web.body import watch
from service.web.middleware import Exchange
from service.web.sse import DONE, Pulse

HEADERS = [
    (b"content-type", b"text/event-stream; charset=utf-8"),
    (b"cache-control", b"no-cache"),
    (b"x-accel-buffering", b"no"),
]


class EventStream(HttpResponse):
    """The streaming answer to a create request."""

    def __init__(self, run: Run, exchange: Exchange, settings: Settings, *, obfuscate: bool) -> None:
        self.status_code = 200
        self.background = None
        self._run = run
        self._exchange = exchange
        self._settings = settings
        self._encoder = exchange.dialect.encoder(obfuscate=obfuscate)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer one request."""

        def gone() -> None:
            self._exchange.facts["client"] = "gone"
            self._run.stop()

        watcher = asyncio.create_task(watch(receive, gone))
        pulse = Pulse(send, self._settings.keepalive_seconds)
        batches = self._run.events()
        try:
            await send({"type": "http.response.start", "status": 200, "headers": HEADERS})
            async for batch in batches:
                self._note(batch)
                await send({"type": "http.response.body", "body": self._encoded(batch), "more_body": True})
                pulse.sent()
            await send({"type": "http.response.body", "body": b"", "more_body": False})
        finally:
            pulse.stop()
            watcher.cancel()
            self._run.stop()
            async for batch in batches:  # where sending was broken off, what was said is stored all the same
                self._note(batch)

    def _note(self, batch: list[Event]) -> None:
        self._exchange.pace.note(batch)
        last = batch[-1]
        if isinstance(last, events.Terminal):
            note_outcome(self._exchange, last.response)
            count_outcome(self._exchange, last.response, self._run, "stream")

    def _encoded(self, batch: list[Event]) -> bytes:
        buffer = bytearray()
        self._encoder.append(batch, buffer)
        if isinstance(batch[-1], events.Terminal):
            buffer += DONE
        return bytes(buffer)


def note_outcome(exchange: Exchange, response: Response) -> None:
    """What the log says of a response."""
    exchange.facts["outcome"] = response.status.value
    if response.usage is not None:
        exchange.facts["input_tokens"] = response.usage.input_tokens
        exchange.facts["cached_tokens"] = response.usage.input_tokens_details.cached_tokens
        exchange.facts["output_tokens"] = response.usage.output_tokens


def count_outcome(exchange: Exchange, response: Response, run: Run, mode: Mode) -> None:
    """What the metrics say of a response that ended here. Whoever only follows one, or reads it, doesn't count it."""
    exchange.metrics.ended(mode, response, exchange.pace)
    failed = response.status is ResponseStatus.FAILED and not run.timed_out and run.unstored is None
    if run.failure is not None or failed:
        exchange.metrics.engine_failed(run.failure or EngineError("it ended without a word"))
