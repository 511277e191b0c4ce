"""A background response as a stream of server-sent events, from any event on, for any number of clients at once.

One task follows the log and sends each batch of events as it comes. A client that lags makes nobody wait but itself:
what it misses is read from the log. One that goes away ends its following, and never the response. Where the events go
away, the store stays away, or this process is told to stop and nothing more comes, the connection is cut before the
answer's end, so that no client takes what it has for the whole; it comes back with `starting_after`.
"""

import asyncio
import logging
from collections.abc import AsyncGenerator, Callable, Sequence
from contextlib import aclosing
from typing import cast

from fastapi import Request
from starlette.responses import Response as HttpResponse
from starlette.types import Receive, Scope, Send

from service.api.events import Event, Terminal
from service.background.follow import Following, LogGone
from service.background.tasks import Background
from service.logs import event
from service.responses.refusals import events_gone
from service.responses.service import Service
from service.settings.settings import Settings
from service.web.body import watch
from service.web.http_protocol import BREAK_OFF
from service.web.middleware import Exchange
from service.web.sse import DONE, Pulse
from service.web.stream import HEADERS, note_outcome
from store.errors import StoreError

logger = logging.getLogger(__name__)


def follow(
    request: Request, id: str, after: int = -1, *, begun: Sequence[Event] = (), obfuscate: bool
) -> "FollowStream":
    """The streaming answer about a response, from the event behind number `after` on, or from its first ones, `begun`.

    The request has to have a follower's slot.
    """
    service, background = cast(Service, request.app.state.service), cast(Background, request.app.state.background)
    exchange = cast(Exchange, request.scope["exchange"])
    following = Following(
        service.log,
        service.listening,
        exchange.tenant,
        id,
        after,
        begun=begun,
        leaving=lambda: background.stopping,
    )
    return FollowStream(following, exchange, service.settings, obfuscate=obfuscate)


class FollowStream(HttpResponse):
    """The streaming answer about a background response."""

    def __init__(self, following: Following, exchange: Exchange, settings: Settings, *, obfuscate: bool) -> None:
        self.status_code = 200
        self.background = None
        self._following = following
        self._exchange = exchange
        self._settings = settings
        self._encoder = exchange.dialect.encoder(obfuscate=obfuscate)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer one request. Raises ApiError or StoreError where there is nothing to follow, before it answers."""

        def gone() -> None:
            self._exchange.facts["client"] = "gone"
            self._following.stop()

        watcher = asyncio.create_task(watch(receive, gone))
        followers = self._exchange.metrics.followers
        followers.inc()
        try:
            async with aclosing(self._following.events()) as batches:
                first = await self._begun(batches)
                await send({"type": "http.response.start", "status": 200, "headers": HEADERS})
                self._exchange.slot.follow()
                await self._go_on(first, batches, send)
            if self._following.over:
                await send({"type": "http.response.body", "body": DONE, "more_body": False})
        finally:
            followers.dec()
            watcher.cancel()
        if not self._following.over:
            await self._break_off(scope, receive)

    async def _begun(self, batches: AsyncGenerator[list[Event], None]) -> list[Event]:
        try:
            return await anext(batches)
        except LogGone as error:
            raise events_gone(self._settings.stream_retention_seconds) from error

    async def _go_on(self, first: list[Event], batches: AsyncGenerator[list[Event], None], send: Send) -> None:
        """Send what comes until the response has ended, or no more can come."""
        pulse = Pulse(send, self._settings.keepalive_seconds)
        try:
            if first:
                await self._send(first, send)
            async for batch in batches:
                await self._send(batch, send)
                pulse.sent()
        except (LogGone, StoreError) as failure:
            event(
                logger, logging.WARNING, "a stream was broken off", response_id=self._following.id, reason=str(failure)
            )
        finally:
            pulse.stop()

    async def _break_off(self, scope: Scope, receive: Receive) -> None:
        """Hang up, unless the client has, and return once that is so."""
        if self._exchange.facts.get("client") != "gone":
            self._exchange.facts["outcome"] = "broken off"
        cast(Callable[[], None], scope["extensions"][BREAK_OFF]["now"])()
        await watch(receive, lambda: None)

    async def _send(self, batch: list[Event], send: Send) -> None:
        buffer = bytearray()
        self._encoder.append(batch, buffer)
        if isinstance(batch[-1], Terminal):
            note_outcome(self._exchange, batch[-1].response)
        await send({"type": "http.response.body", "body": bytes(buffer), "more_body": True})
