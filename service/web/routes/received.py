"""What a route has of its request: the service, the exchange as the middleware saw it, and the body."""

from typing import cast

from fastapi import Request

from service.responses.service import Caller, Service
from service.web.body import read_body
from service.web.middleware import Exchange
from service.web.trace import trace_headers


def service_of(request: Request) -> Service:
    """What this process serves with."""
    return cast(Service, request.app.state.service)


def exchange_of(request: Request) -> Exchange:
    """The request as the middleware saw it."""
    return cast(Exchange, request.scope["exchange"])


def caller_of(request: Request) -> Caller:
    """On whose behalf the request is made."""
    exchange = exchange_of(request)
    return Caller(exchange.tenant, trace_headers(exchange.headers))


async def body_of(request: Request) -> bytes:
    """The whole body, in time and of a bounded size. Raises ApiError, ClientGone."""
    settings = service_of(request).settings
    return await read_body(
        request.receive,
        exchange_of(request).headers.get(b"content-length"),
        limit=settings.max_body_bytes,
        seconds=settings.body_seconds,
    )
