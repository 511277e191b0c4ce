"""The application, from outside: who may enter, which route answers, and how a refusal leaves.

Pure ASGI. It wraps `send`, so that every answer has the headers that SDKs read, and leaves `receive` alone, so that a
route sees at once that its client disconnected.
"""

import asyncio
import logging
import sys
from collections.abc import Awaitable, Callable
from contextlib import AbstractAsyncContextManager, nullcontext
from dataclasses import dataclass, field
from functools import partial
from typing import NamedTuple

from starlette.responses import Response
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from service import logs
from service.engine.port import EngineError, EngineUnavailable
from service.errors import ApiError, ClientGone, stopping
from service.responses.refusals import refusal_of
from service.tenants.audit import FailedLogins
from service.web.admission.slots import Slot
from service.web.auth import (
    Entrance,
    WrongKey,
    check_headers,
    check_scraper,
    refuse_foreign,
    refuse_foreign_page,
)
from service.web.body import break_off
from service.web.errors import JsonResponse
from service.web.exchange import Admitted, Exchange, admit, admit_aside, nobody_says
from service.web.http_protocol import BREAK_OFF, WHEN_GONE, WHOSE
from service.web.received import Process, Received
from service.web.routing import FoundRoute, Routes, Way, read_query
from store.errors import StoreError

logger = logging.getLogger(__name__)

REFUSALS = (ApiError, StoreError, EngineError)
"""The errors that say why a request is refused; another one is a bug."""

STRANGERS_LOGGED = 10
"""The most requests a second that are logged though they were refused before their tenant was known."""

OPEN = (Way.OPEN, Way.SCRAPED)
"""The ways in that belong to no tenant."""

GONE = 499
"""The status in the log where the client disconnected first, as nginx has it."""


class Visit(NamedTuple):
    """A WebSocket that may open: the request for it, its slot, and a check of its key, which may become invalid."""

    exchange: Exchange
    slot: Slot
    identify: Callable[[], Awaitable[None]]
    """Raises ApiError."""


@dataclass(eq=False)
class Gate:
    """The ASGI application."""

    routes: Routes
    process: Process
    entrance: Entrance
    lifespan: ASGIApp
    """Starts and stops the process."""
    sockets: Callable[[Visit, Receive, Send], Awaitable[None]] | None = None
    """Serves a WebSocket to its end."""
    failed: FailedLogins | None = None
    """Hears of keys that open nothing."""
    strangers: logs.Ration = field(default_factory=lambda: logs.Ration(STRANGERS_LOGGED))

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Let one request in, or refuse it."""
        if scope["type"] == "lifespan":
            await self.lifespan(scope, receive, _briefly(send))
            return
        exchange = Exchange(scope, self.process.service.metrics, scope.get("method", "GET"))
        found = self.routes.find(exchange.method, scope["path"])
        token = logs.request_id.set(exchange.request_id)
        answer = exchange.answering(send)
        try:
            await self._enter(exchange, found, receive, answer)
        except ClientGone:
            exchange.facts["client"] = "gone"
            await Response(status_code=GONE)(scope, receive, answer)
        except asyncio.CancelledError:  # the server stops, and the time for that is over; the turn is stored
            exchange.facts["client"] = "cut off"
            if not exchange.status:
                await exchange.answer_to(stopping())(scope, receive, answer)
            elif BREAK_OFF in scope.get("extensions", {}):
                await break_off(scope, receive)
        except Exception as error:
            if exchange.status or not isinstance(error, REFUSALS):
                logger.exception("request failed")
            if not exchange.status:
                await exchange.answer_to(exchange.refusal(error))(scope, receive, answer)
        finally:
            self._end(exchange, found)
            logs.request_id.reset(token)

    async def _enter(self, exchange: Exchange, found: FoundRoute, receive: Receive, answer: Send) -> None:
        """Serve a request whose tenant may enter. Raises ApiError for any other, and what its endpoint raises."""
        scope, route = exchange.scope, found.route
        check_headers(scope)
        if self.entrance.keys.open:
            method = exchange.method if route is not None else ""  # where nothing is, no body is read
            refuse_foreign(method, exchange.headers, uploads=route is not None and route.uploads)
        if found.way is Way.SCRAPED:
            check_scraper(self.entrance.keys, exchange.headers)
        elif found.way is not Way.OPEN:
            if scope["type"] == "websocket" and self.sockets is not None:
                if self.entrance.keys.open:
                    refuse_foreign_page(exchange.headers)
                await self._identify(exchange, "POST")
                admission = self.process.admission
                with exchange.metrics.sockets.track_inprogress(), admission.socket(exchange.tenant) as slot:
                    visit = Visit(exchange, slot, partial(self._identify, exchange, "POST"))
                    await self.sockets(visit, receive, answer)
                return
            await self._identify(exchange, exchange.method)
            exchange.trace(self.process.service.tracer)
        async with await self._place(exchange, found) as place:
            exchange.endpoint = found.template
            if route is None:
                raise self.routes.missing(exchange.method, scope["path"])
            request = Received(self.process, exchange, receive, place)
            query = () if route.query is None else read_query(request, route.query)
            answered = await route.endpoint(request, *query, **found.parts)
            await (answered if isinstance(answered, Response) else JsonResponse(answered))(scope, receive, answer)

    async def _place(self, exchange: Exchange, found: FoundRoute) -> AbstractAsyncContextManager[Admitted | None]:
        """The place of a request while it is served, for which it waits where it asks a model; none without a key."""
        admission, pacing = self.process.admission, self.process.service.tenants.pacing
        if found.way in OPEN:
            return nullcontext()
        if found.route is None or found.way is Way.ASIDE:
            return await admit_aside(exchange, admission, pacing)
        when_gone = exchange.scope.get("extensions", {}).get(WHEN_GONE, {}).get("tell", nobody_says)
        return await admit(exchange, admission, pacing, when_gone)

    async def _identify(self, exchange: Exchange, method: str) -> None:
        """Identify the caller, also later on, where its connection stays open. Raises ApiError."""
        try:
            exchange.entry = await self.entrance.entry(exchange.headers, method, exchange.scope["path"])
            exchange.tenant = exchange.entry.tenant
            exchange.scope.setdefault("extensions", {})[WHOSE] = exchange.tenant
        except StoreError as error:
            raise refusal_of(error) from error
        except WrongKey:
            if self.failed is not None:
                self.failed.note(exchange.request_id, (exchange.scope.get("client") or ("",))[0])
            raise

    def _end(self, exchange: Exchange, found: FoundRoute) -> None:
        """Log and count a request. Of strangers, only so many a second are logged, and how many more there were."""
        if found.way in OPEN:
            exchange.end(logging.DEBUG)
        elif exchange.tenant:
            exchange.end()
        else:
            without = self.strangers.take()
            also = {"not_logged": without} if without else {}
            exchange.end(None if without is None else logging.INFO, **also)


def _briefly(send: Send) -> Send:
    """`send` without the traceback of an engine that doesn't start: the log has the reason."""

    async def brief(message: Message) -> None:
        known = EngineUnavailable | asyncio.CancelledError
        if message["type"] == "lifespan.startup.failed" and isinstance(sys.exc_info()[1], known):
            message["message"] = ""
        await send(message)

    return brief
