"""The routes that make a prompt: `POST /v1/responses`, `/v1/responses/compact` and `/v1/responses/input_tokens`.

    body ─▶ checked request ─▶ Plan ─┬─▶ Run ─▶ events ─▶ one answer, or a stream of them
                                     └─▶ queue, for a worker

A compaction is a response in one piece that is never stored; a count has the same plan and never runs.
"""

import asyncio
from collections.abc import Callable
from contextlib import AsyncExitStack
from typing import Literal

import msgspec
from fastapi import APIRouter, Request
from starlette.responses import Response as HttpResponse

from service.api.request import CreateRequest, read_count, read_create
from service.api.response import Compaction, Response, ResponseStatus
from service.background.submit import submit
from service.errors import ApiError
from service.metrics.counters import Mode
from service.responses.compaction.request import Compacted, read_compact, window
from service.responses.output.fold import Fold
from service.responses.prepare import Prepared, prepared
from service.responses.refusals import not_compacted, nothing_said, store_refusal
from service.responses.run import AppendSink, Run, foreground, storable
from service.web.body import watch
from service.web.event_stream import EventStream, RunSource, note_outcome
from service.web.routes.query import StrictRoute
from service.web.routes.received import body_of, caller_of, exchange_of, follow, preparing, service_of
from store.errors import StoreFull

router = APIRouter(route_class=StrictRoute, tags=["Responses"])


class InputTokens(msgspec.Struct):
    """How long a prompt is."""

    input_tokens: int
    object: Literal["response.input_tokens"] = "response.input_tokens"


class _Wanted(msgspec.Struct, frozen=True):
    """What the answer needs to know of a request, once its plan is made."""

    background: bool
    stream: bool
    obfuscate: bool


@router.post("/responses", summary="Create a response", operation_id="createResponse")
async def create(request: Request) -> HttpResponse:
    """Sample a response to `input`, on top of `previous_response_id` where one is given. Streams with `stream`."""
    settings = service_of(request).settings

    def read(body: bytes) -> CreateRequest:
        return read_create(body, store=settings.store, unstored_background=settings.background_without_store)

    async with AsyncExitStack() as resources:
        planned, wanted = await _plan(request, read, resources)
        if wanted.background:
            return await _queued(request, planned, wanted)
        run, sink = await _run_of(request, planned, "stream" if wanted.stream else "plain")
        del planned  # its items: the plan has them as JSON
        if wanted.stream:
            source = RunSource(run, resources.pop_all(), exchange_of(request))
            return EventStream(source, exchange_of(request), settings, obfuscate=wanted.obfuscate)
        return exchange_of(request).dialect.answer(await _whole(request, run, sink))


@router.get("/responses", summary="Open a WebSocket", operation_id="openWebSocket")
async def open_socket() -> HttpResponse:
    """Make many responses over one connection. What asks for no WebSocket, or not in the right way, is a 426."""
    raise ApiError(
        426,
        "GET /v1/responses opens a WebSocket: send Upgrade: websocket, Connection: Upgrade, Sec-WebSocket-Version: 13 "
        "and a Sec-WebSocket-Key of 16 bytes as base64, over HTTP/1.1. A proxy may have taken them away. Else POST.",
        code="upgrade_required",
    )


@router.post("/responses/compact", summary="Compact a conversation", operation_id="compactConversation")
async def compact(request: Request) -> HttpResponse:
    """The user's messages of a conversation word by word, and all else of it as one sealed item."""
    settings = service_of(request).settings
    async with AsyncExitStack() as resources:
        planned, _ = await _plan(request, lambda body: read_compact(body, store=settings.store), resources)
        response = await _whole(request, *await _run_of(request, planned, "plain"))
    made = [item for item in response.output if isinstance(item, Compaction)]
    if response.status is not ResponseStatus.COMPLETED or not made:
        raise not_compacted(response)
    output = window(response.id, planned.items, planned.plan.rules.kept_messages, made[-1])
    return exchange_of(request).dialect.answer(Compacted(response.id, response.created_at, output, response.usage))


@router.post("/responses/input_tokens", summary="Count the tokens of a request", operation_id="countInputTokens")
async def count(request: Request) -> HttpResponse:
    """The tokens of the prompt that a create request would be answered from, its whole conversation included."""
    exchange, service = exchange_of(request), service_of(request)
    body = await body_of(request)
    async with (
        preparing(request, body),
        prepared(service, caller_of(request), read_count(body, store=service.settings.store)) as planned,
    ):
        length = planned.plan.input_tokens
    exchange.left_out(planned.left_out, planned.items_left_out)
    exchange.facts["input_tokens"] = length
    return exchange.dialect.answer(InputTokens(length))


async def _plan(
    request: Request, read: Callable[[bytes], CreateRequest], resources: AsyncExitStack
) -> tuple[Prepared, _Wanted]:
    """The plan of a request, whose parent is pinned as long as its `resources`; the body and what was read of it go
    here.

    Raises ApiError, StoreError, EngineUnavailable.
    """
    exchange, body = exchange_of(request), await body_of(request)
    async with preparing(request, body):
        wanted = read(body)
        planned = await resources.enter_async_context(prepared(service_of(request), caller_of(request), wanted))
    exchange.facts["response_id"] = planned.plan.id
    exchange.left_out(planned.left_out, planned.items_left_out)
    return planned, _Wanted(wanted.background, wanted.stream, wanted.obfuscate)


async def _run_of(request: Request, planned: Prepared, mode: Mode) -> tuple[Run, AppendSink]:
    """The run of a plan in this process, and where it is kept.

    Raises StoreUnavailable, also where the response is to be stored and the store is known to be away.
    """
    exchange = exchange_of(request)
    return await foreground(service_of(request), exchange.tenant, planned, mode, since=exchange.at)


async def _queued(request: Request, planned: Prepared, wanted: _Wanted) -> HttpResponse:
    """The response as it waits for a worker, or its events from the first one on.

    Once it is queued nothing is refused any more: whoever was, would ask again and have it made twice.
    """
    service, exchange = service_of(request), exchange_of(request)
    await storable(service, planned.plan)
    if wanted.stream:
        exchange.slot.take_follower()
    response, events = await submit(service.jobs, service.metrics, exchange.tenant, planned, streams=wanted.stream)
    exchange.facts["outcome"] = response.status.value
    if not wanted.stream:
        return exchange.dialect.answer(response)
    return follow(request, response.id, begun=events, obfuscate=wanted.obfuscate)


async def _whole(request: Request, run: Run, sink: AppendSink) -> Response:
    """The response of a run. Raises ApiError if it failed before anything was said, or if the store is full."""
    exchange, fold = exchange_of(request), Fold()

    def gone() -> None:
        exchange.facts["client"] = "gone"
        run.stop()

    watcher = asyncio.create_task(watch(request.receive, gone))
    try:
        async for batch in run.events():
            fold.add(batch)
    finally:
        watcher.cancel()
    response = fold.response
    note_outcome(exchange, response)
    if isinstance(sink.unstored, StoreFull) or (sink.unstored is not None and not response.output):
        raise store_refusal(sink.unstored)
    if response.error is not None and not response.output:
        raise nothing_said(response.error.message, run.failure, timed_out=run.timed_out)
    return response
