"""The application, from outside: what every request and every answer has, and how it is noted at its end.

Pure ASGI. It wraps `send`, so that every answer has the headers that SDKs read, and leaves `receive` alone, so that a
route sees at once that its client disconnected. Refusals leave through FastAPI's exception handlers (`refuse`).
"""

import asyncio
import logging
import sys
from dataclasses import dataclass, field

from fastapi.exceptions import RequestValidationError
from starlette.requests import HTTPConnection
from starlette.responses import Response
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from service import logs
from service.engine.port import EngineError, EngineUnavailable
from service.errors import ApiError, ClientGone, stopping
from service.metrics.counters import Metrics
from service.web.auth import check_headers
from service.web.body import break_off
from service.web.exchange import Exchange
from service.web.http_protocol import BREAK_OFF
from service.web.queries import invalid_parameter
from service.web.received import EXCHANGE
from store.errors import StoreError

logger = logging.getLogger(__name__)

REFUSALS = (ApiError, StoreError, EngineError)
"""The errors that say why a request is refused; another one is a bug."""

STRANGERS_LOGGED = 10
"""The most requests a second that are logged though they were refused before their tenant was known."""

GONE = 499
"""The status in the log where the client disconnected first, as nginx has it."""


async def refuse(connection: HTTPConnection, error: Exception) -> Response:
    """The answer to a request that raised an error. Raises the error where an answer has begun already."""
    exchange: Exchange = connection.scope[EXCHANGE]
    if exchange.status:
        raise error
    exchange.failure = error
    if isinstance(error, ClientGone):
        exchange.facts["client"] = "gone"
        return Response(status_code=GONE)
    if isinstance(error, RequestValidationError):
        error = invalid_parameter(error.errors())
    return exchange.answer_to(exchange.refusal(error))


HANDLERS = dict.fromkeys((*REFUSALS, ClientGone, RequestValidationError, Exception), refuse)


@dataclass(eq=False)
class Gate:
    """The ASGI application around FastAPI's."""

    app: ASGIApp
    metrics: Metrics
    strangers: logs.Ration = field(default_factory=lambda: logs.Ration(STRANGERS_LOGGED))

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "lifespan":
            await self.app(scope, receive, _briefly(send))
            return
        exchange = scope[EXCHANGE] = Exchange(scope, self.metrics, scope.get("method", "GET"))
        token = logs.request_id.set(exchange.request_id)
        answer = exchange.answering(send)
        try:
            try:
                check_headers(scope)
            except ApiError as error:
                await exchange.answer_to(exchange.refusal(error))(scope, receive, answer)
            else:
                try:
                    await self.app(scope, receive, answer)
                finally:
                    await exchange.leave()
        except asyncio.CancelledError:  # the server stops, and the time for that is over; the turn is stored
            exchange.facts["client"] = "cut_off"
            if not exchange.status:
                await exchange.answer_to(stopping())(scope, receive, answer)
            elif BREAK_OFF in scope.get("extensions", {}):
                await break_off(scope, receive)
        except Exception as error:
            amid = exchange.failure is None and isinstance(error.__cause__, REFUSALS)  # Starlette puts it into another
            if amid and BREAK_OFF in scope.get("extensions", {}):
                exchange.facts["broke_off"] = str(error.__cause__)
                await break_off(scope, receive)
            else:
                logger.exception("request failed")
        finally:
            self._end(exchange)
            logs.request_id.reset(token)
            del scope[EXCHANGE]  # they know each other: so both go now, and wait for no garbage collection

    def _end(self, exchange: Exchange) -> None:
        """Log and count a request. Of strangers, only so many a second are logged, and how many more there were."""
        if exchange.is_open:
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
