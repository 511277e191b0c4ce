"""`POST /v1/responses`: plain, streaming, and in the background.

Plain and streaming consume one run's events; the plain answer is their fold. In the background a worker makes the
response, and its stream is a follower's like any other.
"""

import asyncio
from typing import cast

from fastapi import APIRouter, Request
from starlette.responses import Response as HttpResponse
from starlette.types import Receive

from service.body import read_body, watch
from service.creation import Caller, Creation, Service, begin
from service.endpoints.follow import follow
from service.endpoints.stream import EventStream, count_outcome, note_outcome
from service.errors import JsonResponse, nothing_said, store_refusal
from service.gate import Arrival
from service.protocol.fold import Fold
from service.protocol.wire import read_create
from service.run import Run
from service.submission import submit
from service.trace import trace_headers
from store.errors import StoreFull

router = APIRouter()


@router.post("/responses", summary="Create a response")
async def create(request: Request) -> HttpResponse:
    """Sample a response to `input`, on top of `previous_response_id` where one is given. Streams with `stream`."""
    service = cast(Service, request.app.state.service)
    arrival = cast(Arrival, request.scope["arrival"])
    limits = service.settings
    body = await read_body(
        request.receive,
        arrival.headers.get(b"content-length"),
        limit=limits.max_body_bytes,
        seconds=limits.body_seconds,
    )
    wanted = read_create(body, store=limits.store, unstored_background=limits.background_without_store)
    creation = await begin(service, Caller(arrival.tenant, trace_headers(arrival.headers)), wanted)
    arrival.facts["response_id"] = creation.id
    if wanted.background:
        return await _queued(request, creation)
    run = await creation.build()
    if wanted.stream:
        return EventStream(run, arrival, limits, obfuscate=wanted.obfuscate)
    return await _plain(run, request.receive, arrival)


async def _queued(request: Request, creation: Creation) -> HttpResponse:
    """The response as it waits for a worker, or its events from the first one on.

    Once it is queued nothing is refused any more: whoever was, would ask again and have it made twice.
    """
    service, arrival = cast(Service, request.app.state.service), cast(Arrival, request.scope["arrival"])
    streams = creation.request.stream
    if streams:
        arrival.place.take_follower()
    response, events = await submit(service, arrival.tenant, creation)
    arrival.facts["outcome"] = response.status.value
    if not streams:
        return JsonResponse(response)
    return follow(request, creation.id, begun=events, obfuscate=creation.request.obfuscate)


async def _plain(run: Run, receive: Receive, arrival: Arrival) -> HttpResponse:
    """The whole response at once. Raises ApiError if it failed before anything was said, or if the store is full."""
    fold = Fold()

    def gone() -> None:
        arrival.facts["client"] = "gone"
        run.stop()

    watcher = asyncio.create_task(watch(receive, gone))
    try:
        async for batch in run.events():
            arrival.pace.note(batch)
            fold.add(batch)
    finally:
        watcher.cancel()
    response = fold.response
    note_outcome(arrival, response)
    count_outcome(arrival, response, run, "plain")
    if isinstance(run.unstored, StoreFull) or (run.unstored is not None and not response.output):
        raise store_refusal(run.unstored)
    if response.error is not None and not response.output:
        raise nothing_said(response.error.message, run.failure, timed_out=run.timed_out)
    return JsonResponse(response)
