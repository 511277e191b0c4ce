"""What a route has of its request: the service, the exchange as the middleware saw it, the body, what it follows."""

from collections.abc import Sequence
from contextlib import AbstractAsyncContextManager
from typing import cast

from fastapi import Request

from service.api.events import Event
from service.api.response import Response
from service.background.follow import Following
from service.background.tasks import Background
from service.responses.service import Caller, Service
from service.web.admission import Admission
from service.web.body import read_body
from service.web.event_stream import EndedSource, EventStream, FollowSource
from service.web.middleware import Exchange
from service.web.trace import session_of, trace_headers


def service_of(request: Request) -> Service:
    """What this process serves with."""
    return cast(Service, request.app.state.service)


def background_of(request: Request) -> Background:
    """What this process does beside requests."""
    return cast(Background, request.app.state.background)


def exchange_of(request: Request) -> Exchange:
    """The request as the middleware saw it."""
    return cast(Exchange, request.scope["exchange"])


def caller_of(request: Request) -> Caller:
    """On whose behalf the request is made."""
    exchange = exchange_of(request)
    return Caller(exchange.tenant, trace_headers(exchange.headers), session_of(exchange.headers))


async def body_of(request: Request, *, text: bool = True) -> bytes:
    """The whole body, in time and of a bounded size: JSON, or with `text` false any bytes.

    Raises ApiError, ClientGone.
    """
    settings, exchange = service_of(request).settings, exchange_of(request)
    return await read_body(
        request.receive,
        exchange.headers.get(b"content-length"),
        limit=settings.max_body_bytes,
        seconds=settings.body_seconds,
        take=exchange.slot.take_body,
        text=text,
    )


def preparing(request: Request, body: bytes) -> AbstractAsyncContextManager[None]:
    """Waits until a prompt may be made of a body, which is made until the end of the block."""
    admission = cast(Admission, request.app.state.admission)
    return admission.preparing(exchange_of(request).tenant, len(body))


def tell_end(request: Request, response: Response, after: int, *, obfuscate: bool) -> EventStream:
    """The streaming answer about a response that has ended, of whose events none is kept."""
    exchange = exchange_of(request)
    return EventStream(
        EndedSource(response, after, exchange), exchange, service_of(request).settings, obfuscate=obfuscate
    )


def follow(request: Request, id: str, after: int = -1, *, begun: Sequence[Event] = (), obfuscate: bool) -> EventStream:
    """The streaming answer about a response, from the event behind number `after` on, or from its first ones, `begun`.

    The request needs a follower's slot.
    """
    service, background, exchange = service_of(request), background_of(request), exchange_of(request)
    following = Following(
        service.log,
        service.listening,
        exchange.tenant,
        id,
        after,
        begun=begun,
        leaving=lambda: background.stopping,
        settled=lambda: service.store.settle(exchange.tenant, id),
    )
    source = FollowSource(following, exchange, service.settings.stream_retention_seconds)
    return EventStream(source, exchange, service.settings, obfuscate=obfuscate)
