"""The parts of a request for its route: the service, the middleware's exchange, the body, the turn that it follows."""

from collections.abc import Sequence
from contextlib import AbstractAsyncContextManager, nullcontext
from typing import cast

from fastapi import Request

from service.api.events import Event
from service.api.response import Response
from service.background.follow import Following
from service.background.tasks import Background
from service.responses.make import NO_KEY, Claim
from service.responses.service import Caller, Service
from service.tenants.audit import Actor, AuditEvent, note
from service.tenants.records import static_project
from service.web.admission.slots import Admission
from service.web.body import read_body
from service.web.errors import JsonResponse
from service.web.event_stream import EndedSource, EventStream, FollowSource
from service.web.idempotency import HEADER, claim, key_of
from service.web.middleware import Admitted, Exchange


def service_of(request: Request) -> Service:
    """The service of this process."""
    return cast(Service, request.app.state.service)


def background_of(request: Request) -> Background:
    """The work of this process beside requests."""
    return cast(Background, request.app.state.background)


def exchange_of(request: Request) -> Exchange:
    """The request as the middleware saw it."""
    return cast(Exchange, request.scope["exchange"])


def admitted_of(request: Request) -> Admitted:
    """The request as it was admitted."""
    return cast(Admitted, request.scope["admitted"])


def caller_of(request: Request) -> Caller:
    """The caller of the request."""
    return exchange_of(request).caller


def tenant_of(request: Request) -> str:
    """The tenant of the request."""
    return exchange_of(request).tenant


def with_room(request: Request, answer: JsonResponse) -> JsonResponse:
    """An answer that stays in memory until its client has read it. Raises ApiError 503 where that is too much."""
    admitted_of(request).slot.take_body(len(answer.body))
    return answer


async def noted(request: Request, type: str, id: str, **data: object) -> None:
    """Have the audit log say that this request has done something, where there are projects. It never fails."""
    tenants, entry = service_of(request).tenants, exchange_of(request).entry
    if tenants.key_ring is None:
        return
    actor = Actor(entry.tenant) if entry.key is None else Actor.of(entry.key)
    project = entry.project or static_project(entry.tenant)
    await note(tenants.directory.registry, entry.tenant, actor, AuditEvent(type, id, project, data or None))


async def body_of(request: Request, *, text: bool = True, times: int = 1) -> bytes:
    """The whole body, in time and of at most so many `times` the size that bodies may have: JSON, or with `text` false
    any bytes.

    Raises ApiError, ClientGone.
    """
    settings, exchange = service_of(request).settings, exchange_of(request)
    return await read_body(
        request.receive,
        exchange.headers.get(b"content-length"),
        limit=times * settings.max_body_bytes,
        seconds=settings.send_seconds,
        take=admitted_of(request).slot.take_body,
        text=text,
    )


def preparing(request: Request, size: int) -> AbstractAsyncContextManager[None]:
    """Waits until work on so many bytes may begin, such as a prompt that is made of a body; it lasts until the end of
    the block.
    """
    admission = cast(Admission, request.app.state.admission)
    return admission.preparing(exchange_of(request).tenant, size)


def claim_of(request: Request, body: bytes) -> AbstractAsyncContextManager[Claim]:
    """The claim on what a request asks for, until the end of the block: once for all that have its Idempotency-Key.

    Raises ApiError for one that can't be a key; entering it ApiError, StoreUnavailable, ClientGone.
    """
    exchange = exchange_of(request)
    if HEADER not in exchange.headers:
        return nullcontext(NO_KEY)
    key, background = key_of(request.scope["headers"]), background_of(request)
    return claim(
        service_of(request),
        exchange,
        (request.scope["path"], key or b"", body),
        receive=request.receive,
        leaving=lambda: background.stopping,
    )


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
        service.jobs.log,
        service.store.listening,
        exchange.tenant,
        id,
        after,
        begun=begun,
        leaving=lambda: background.stopping,
        settled=lambda: service.store.settle(exchange.tenant, id),
    )
    source = FollowSource(following, admitted_of(request), service.settings.stream_retention_seconds)
    return EventStream(source, exchange, service.settings, obfuscate=obfuscate)
