"""The answers of server-sent events: a run as it is made, or a background response from any event on.

The events of a run are written from within the call that made them; those of a background response by a task that reads
its log. A client that lags makes either wait, so nothing grows; the connection of one that stops reading altogether is
cut after `send_seconds` (http_protocol.py). A run is stopped when its client disconnects, and its turn is stored; a
background response goes on, and its client resumes with `starting_after`. Never end an answer that lacks events: its
connection is cut instead, so that no client takes what it has for all of it.
"""

import asyncio
import logging
from collections.abc import AsyncGenerator, Iterator
from contextlib import aclosing
from typing import Protocol

from starlette.responses import Response as HttpResponse
from starlette.types import Receive, Scope, Send

from service.api.events import Event, Terminal
from service.api.response import Response
from service.background.follow import Following, LogGone
from service.logs import event
from service.responses.drive import Driver
from service.responses.refusals import events_gone
from service.responses.run import Taken
from service.settings.core import CoreSettings
from service.steps import BRIEFLY
from service.web.body import break_off, hearing, watching
from service.web.exchange import Admitted, Exchange
from service.web.http_protocol import BODY
from service.web.sse import Pulse, beat_of
from store.errors import StoreError

logger = logging.getLogger(__name__)

HEADERS = [
    (b"content-type", b"text/event-stream; charset=utf-8"),
    (b"cache-control", b"no-cache"),
    (b"x-accel-buffering", b"no"),
]

BATCHES_A_NOTE = 8
"""Batches that may go out before it is counted what they took of its tenant's turn; at the end all is."""


class Body(Protocol):
    """The body of an answer that is written piece by piece."""

    def write(self, data: bytes | bytearray) -> bool:
        """Send a piece; False where `drained` is to be awaited before another one. Never blocks, and never raises."""
        ...

    async def drained(self) -> None:
        """Return once another piece may come."""
        ...


class AsgiBody:
    """A body over a server that isn't ours: what is written goes out with `drained`."""

    def __init__(self, send: Send) -> None:
        self._send = send
        self._waiting = bytearray()

    def write(self, data: bytes | bytearray) -> bool:
        self._waiting += data
        return False

    async def drained(self) -> None:
        data, self._waiting = bytes(self._waiting), bytearray()
        await self._send({"type": "http.response.body", "body": data, "more_body": True})


class Noting:
    """Notes of a run as it is made: what it took of its tenant's turn, now and then, and its outcome for the log."""

    def __init__(self, driver: Driver, admitted: Admitted) -> None:
        self._driver, self._admitted = driver, admitted
        self._unnoted = 0

    def note(self, last: Event) -> bool:
        """The next batch ends with this event; whether it is the terminal one."""
        if over := isinstance(last, Terminal):
            note_outcome(self._admitted.exchange, last.response)
        self._unnoted += 1
        if over or self._unnoted > BATCHES_A_NOTE:
            self._unnoted = 0
            self._admitted.slot.served(*self._driver.taken)
        return over


class StreamedRun(HttpResponse):
    """The streaming answer that a run makes as it is made: the outlet of its driver."""

    def __init__(
        self, driver: Driver, admitted: Admitted, settings: CoreSettings, *, obfuscate: bool, lasts: bool
    ) -> None:
        """The request's resources go at the run's end. One that `lasts` is made to its end without its client."""
        self.status_code = 200
        self.background = None
        self._driver = driver
        self._admitted, self._exchange = admitted, admitted.exchange
        self._keepalive_seconds = settings.keepalive_seconds
        self._encoder = self._exchange.dialect.encoder(obfuscate=obfuscate)
        self._lasts = lasts
        self._noting = Noting(driver, admitted)
        self._over = False

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer. Where its client goes, the run is stopped, and its turn is stored all the same."""
        with hearing(scope, receive, self._gone):
            async with self._admitted.resources:
                await send({"type": "http.response.start", "status": 200, "headers": HEADERS})
                opened = scope.get("extensions", {}).get(BODY)
                self._body: Body = AsgiBody(send) if opened is None else opened["open"]()
                with Pulse(beat_of(send, self._encoder.keep_alive), self._keepalive_seconds) as self._pulse:
                    await self._driver.make(self)
            if self._over:
                await send({"type": "http.response.body", "body": b"", "more_body": False})
        if not self._over:
            await break_off(scope, receive)

    def _gone(self) -> None:
        self._exchange.facts["client"] = "gone"
        if not self._lasts:
            self._driver.stop()

    def put(self, taken: Taken) -> bool:
        batch = taken.events
        if not batch:
            return True
        buffer = bytearray()
        self._encoder.append(batch, buffer)
        if self._noting.note(batch[-1]):
            self._over = True
            buffer += self._encoder.done
        if not buffer:  # an empty piece would end the body
            return not self._admitted.work.crowded()
        self._pulse.sent()
        return self._body.write(buffer) and not self._admitted.work.crowded()

    async def room(self) -> None:
        await self._body.drained()
        await self._admitted.work.go_on()

    async def settle(self) -> None:
        """See Outlet. Nothing is kept before the end."""


class EventStream(HttpResponse):
    """The streaming answer about a background response. It needs a follower's slot, and gives the request's back."""

    def __init__(
        self, source: Following | Iterator[list[Event]], admitted: Admitted, settings: CoreSettings, *, obfuscate: bool
    ) -> None:
        """`source` is followed; or it has substitutes for the events of a response that has ended (fold.py)."""
        self.status_code = 200
        self.background = None
        self._source = source
        self._admitted, self._exchange = admitted, admitted.exchange
        self._settings = settings
        self._encoder = self._exchange.dialect.encoder(obfuscate=obfuscate)
        if isinstance(source, Following):
            self._encoder.number = source.after

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer. An error before the first batch is raised before the answer has begun.

        It is a task of its own: each token wakes the frames of a task one by one, and those around this need not wake.
        """
        await asyncio.create_task(self._answer(scope, receive, send))

    async def _answer(self, scope: Scope, receive: Receive, send: Send) -> None:
        done = False
        with watching(receive, self._gone):
            async with aclosing(self._batches()) as batches:
                first = await anext(batches)
                await send({"type": "http.response.start", "status": 200, "headers": HEADERS})
                with Pulse(beat_of(send, self._encoder.keep_alive), self._settings.keepalive_seconds) as pulse:
                    if first:
                        done = await self._send(first, send)
                    async for batch in batches:
                        pulse.sent()
                        done = await self._send(batch, send)
            if over := not isinstance(self._source, Following) or self._source.over:
                await send(
                    {"type": "http.response.body", "body": b"" if done else self._encoder.done, "more_body": False}
                )
        if not over:
            await break_off(scope, receive)

    def _gone(self) -> None:
        self._exchange.facts["client"] = "gone"
        if isinstance(self._source, Following):
            self._source.stop()

    async def _batches(self) -> AsyncGenerator[list[Event], None]:
        """The events in batches, the first perhaps empty. Raises ApiError, StoreError where nothing is there."""
        following = self._source
        if not isinstance(following, Following):
            for batch in following:
                if batch:
                    yield batch
                else:
                    await asyncio.sleep(BRIEFLY)
            return
        with self._exchange.metrics.followers.track_inprogress():
            async with aclosing(following.events()) as batches:
                try:
                    first = await anext(batches)
                except LogGone as error:
                    raise events_gone(self._settings.stream_retention_seconds) from error
                self._admitted.follow()
                yield first
                try:
                    async for batch in batches:
                        yield batch
                except (LogGone, StoreError) as failure:
                    id, reason = following.id, str(failure)
                    event(logger, logging.WARNING, "a stream was broken off", response_id=id, reason=reason)
        if not following.over and self._exchange.facts.get("client") != "gone":
            self._exchange.facts["broke_off"] = "the rest of the events can't be had"

    async def _send(self, batch: list[Event], send: Send) -> bool:
        buffer, last = bytearray(), batch[-1]
        self._encoder.append(batch, buffer)
        if done := isinstance(last, Terminal):
            note_outcome(self._exchange, last.response)
            buffer += self._encoder.done
        await send({"type": "http.response.body", "body": bytes(buffer), "more_body": True})
        return done


def note_outcome(exchange: Exchange, response: Response) -> None:
    exchange.facts["response_status"] = response.status.value
    if response.usage is not None:
        exchange.facts["input_tokens"] = response.usage.input_tokens
        exchange.facts["cached_tokens"] = response.usage.input_tokens_details.cached_tokens
        exchange.facts["output_tokens"] = response.usage.output_tokens
