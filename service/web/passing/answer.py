"""The answer to a request that is passed on: the server's, as it comes.

A stream goes out event by event, as the client reads: one that lags makes the server wait. A client that disconnects
ends the server's work, however far that is. A stream that the server breaks off ends in an error event, and JSON that
it breaks off in a connection that is cut: never in an end that looks right.
"""

import asyncio
import logging
from collections.abc import Callable
from contextlib import aclosing
from typing import cast

import msgspec
from starlette.responses import Response as HttpResponse
from starlette.types import Receive, Scope, Send

from service.engine.pass_through import Passed, PassedReply, PassesOn
from service.engine.port import EngineBroke, EngineError, EngineRefused
from service.errors import ApiError
from service.logs import event
from service.responses.refusals import engine_refusal
from service.settings.settings import Settings
from service.web.body import ClientGone, watch
from service.web.errors import envelope
from service.web.event_stream import HEADERS
from service.web.http_protocol import BREAK_OFF
from service.web.middleware import Exchange
from service.web.sse import Pulse

logger = logging.getLogger(__name__)

WHOLE_BYTES = 256 * 1024
"""Up to here an answer in JSON is sent once it is there, so that one that breaks off can be an error instead."""

JSON = (b"content-type", b"application/json")

_ANY = msgspec.json.Decoder(msgspec.Raw)


class PassedAnswer(HttpResponse):
    """The answer to one request."""

    def __init__(self, engine: PassesOn, passed: Passed, exchange: Exchange, settings: Settings) -> None:
        self.status_code = 200
        self.background = None
        self._engine = engine
        self._passed = passed
        self._exchange = exchange
        self._seconds = settings.request_seconds
        self._keepalive_seconds = settings.keepalive_seconds
        self._gone = False

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer. What goes wrong before the answer has begun is raised."""
        answering = asyncio.create_task(self._answer(send))

        def gone() -> None:
            self._gone = True
            self._exchange.facts["client"] = "gone"
            answering.cancel()

        watching = asyncio.create_task(watch(receive, gone))
        try:
            right = await answering
        except asyncio.CancelledError:
            if not self._gone:
                raise
            if not self._exchange.status:
                raise ClientGone from None
            return
        finally:
            watching.cancel()
        if not right:
            cast(Callable[[], None], scope["extensions"][BREAK_OFF]["now"])()
            await watch(receive, lambda: None)  # uvicorn would log an error if this returned before

    async def _answer(self, send: Send) -> bool:
        """Send all; whether the answer has its end."""
        facts, stream = self._exchange.facts, False
        try:
            async with asyncio.timeout(self._seconds), self._engine.pass_on(self._passed) as reply:
                stream = reply.events
                try:
                    await (self._stream(reply, send) if stream else self._whole(reply, send))
                finally:
                    self._count(reply)
            facts["outcome"] = "completed"
            return True
        except TimeoutError:
            message = f"The answer took longer than {self._seconds:g} s. Ask for less output."
            failure = ApiError(504, message, type="server_error", code="timeout")
        except EngineError as error:
            self._note(error)
            if not self._exchange.status:
                raise
            self._exchange.metrics.engine_failed(error)
            failure = engine_refusal(error)
        if not self._exchange.status:
            raise failure
        facts["outcome"] = "failed"
        if stream:
            last = b"data: " + envelope(failure).body + b"\n\n"
            await send({"type": "http.response.body", "body": last, "more_body": False})
        return stream

    async def _stream(self, reply: PassedReply, send: Send) -> None:
        """Send events as they come. Raises EngineError."""
        await send({"type": "http.response.start", "status": 200, "headers": HEADERS})
        pulse = Pulse(send, self._keepalive_seconds)
        try:
            async with aclosing(reply.pieces()) as pieces:
                async for piece in pieces:
                    await send({"type": "http.response.body", "body": piece, "more_body": True})
                    pulse.sent()
                    await self._exchange.work.go_on()
        finally:
            pulse.stop()
        await send({"type": "http.response.body", "body": b"", "more_body": False})
        await reply.end()

    async def _whole(self, reply: PassedReply, send: Send) -> None:
        """Send JSON, a long one as it comes. Raises EngineError."""
        held = bytearray()
        async with aclosing(reply.pieces()) as pieces:
            async for piece in pieces:
                held += piece
                if len(held) > WHOLE_BYTES:
                    if not self._exchange.status:
                        await send({"type": "http.response.start", "status": 200, "headers": [JSON]})
                    await send({"type": "http.response.body", "body": bytes(held), "more_body": True})
                    held.clear()
                    await self._exchange.work.go_on()
        if not self._exchange.status:
            _check(bytes(held))
            head = [JSON, (b"content-length", b"%d" % len(held))]
            await send({"type": "http.response.start", "status": 200, "headers": head})
        await send({"type": "http.response.body", "body": bytes(held), "more_body": False})

    def _count(self, reply: PassedReply) -> None:
        """Count the tokens that the answer tells of."""
        if (usage := reply.usage) is None:
            return
        facts, metrics = self._exchange.facts, self._exchange.metrics
        facts |= {"input_tokens": usage.input_tokens, "cached_tokens": usage.cached_tokens}
        facts["output_tokens"] = usage.output_tokens
        metrics.input_tokens.inc(usage.input_tokens)
        metrics.cached_tokens.inc(usage.cached_tokens)
        metrics.output_tokens.inc(usage.output_tokens)

    def _note(self, failure: EngineError) -> None:
        """Log what the engine failed with; not the words of a refusal, which may quote the request."""
        if not isinstance(failure, EngineRefused):
            event(logger, logging.ERROR, "the engine failed", reason=str(failure))


def _check(body: bytes) -> None:
    """Raises EngineBroke where this isn't all of an answer."""
    try:
        _ANY.decode(body)
    except (msgspec.DecodeError, RecursionError) as error:
        raise EngineBroke("the engine's server sent something that is no JSON") from error
