"""What the endpoints that sample have in common: the request's body, its beginning, and its response in one piece."""

import asyncio
from typing import cast

from fastapi import Request
from starlette.types import Receive

from service.api.request import CreateRequest
from service.api.response import Response
from service.responses.output.fold import Fold
from service.responses.prepare import Creation, begin
from service.responses.refusals import nothing_said, store_refusal
from service.responses.run import Run
from service.responses.service import Caller, Service
from service.web.body import read_body, watch
from service.web.event_stream import count_outcome, note_outcome
from service.web.middleware import Exchange
from service.web.trace import trace_headers
from store.errors import StoreFull


def service_of(request: Request) -> Service:
    """What this process serves with."""
    return cast(Service, request.app.state.service)


def exchange_of(request: Request) -> Exchange:
    """The request as the gate saw it."""
    return cast(Exchange, request.scope["exchange"])


async def body_of(request: Request) -> bytes:
    """The whole body, in time and of a bounded size. Raises ApiError, ClientGone."""
    settings = service_of(request).settings
    return await read_body(
        request.receive,
        exchange_of(request).headers.get(b"content-length"),
        limit=settings.max_body_bytes,
        seconds=settings.body_seconds,
    )


async def begun(request: Request, wanted: CreateRequest) -> Creation:
    """The creation of what is wanted, on behalf of whoever sent the request. Raises ApiError, EngineUnavailable."""
    exchange = exchange_of(request)
    creation = await begin(service_of(request), Caller(exchange.tenant, trace_headers(exchange.headers)), wanted)
    exchange.facts["response_id"] = creation.id
    return creation


async def whole(run: Run, receive: Receive, exchange: Exchange) -> Response:
    """The response of a run. Raises ApiError if it failed before anything was said, or if the store is full."""
    fold = Fold()

    def gone() -> None:
        exchange.facts["client"] = "gone"
        run.stop()

    watcher = asyncio.create_task(watch(receive, gone))
    try:
        async for batch in run.events():
            exchange.pace.note(batch)
            fold.add(batch)
    finally:
        watcher.cancel()
    response = fold.response
    note_outcome(exchange, response)
    count_outcome(exchange, response, run, "plain")
    if isinstance(run.unstored, StoreFull) or (run.unstored is not None and not response.output):
        raise store_refusal(run.unstored)
    if response.error is not None and not response.output:
        raise nothing_said(response.error.message, run.failure, timed_out=run.timed_out)
    return response
