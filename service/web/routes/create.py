"""`POST /v1/responses`: plain, streaming, and in the background.

Plain and streaming consume one run's events; the plain answer is their fold. In the background a worker makes the
response, and its stream is a follower's like any other.
"""

from fastapi import APIRouter, Request
from starlette.responses import Response as HttpResponse

from service.api.request import read_create
from service.background.submit import submit
from service.responses.prepare import Creation
from service.web.event_stream import EventStream, RunSource, follow
from service.web.routes.asked import begun, body_of, exchange_of, service_of, whole

router = APIRouter()


@router.post("/responses", summary="Create a response")
async def create(request: Request) -> HttpResponse:
    """Sample a response to `input`, on top of `previous_response_id` where one is given. Streams with `stream`."""
    exchange, settings = exchange_of(request), service_of(request).settings
    body = await body_of(request)
    wanted = read_create(body, store=settings.store, unstored_background=settings.background_without_store)
    creation = await begun(request, wanted)
    if wanted.background:
        return await _queued(request, creation)
    run = await creation.build()
    exchange.left_out(creation.left_out)
    if wanted.stream:
        return EventStream(RunSource(run, exchange), exchange, settings, obfuscate=wanted.obfuscate)
    return exchange.dialect.answer(await whole(run, request.receive, exchange))


async def _queued(request: Request, creation: Creation) -> HttpResponse:
    """The response as it waits for a worker, or its events from the first one on.

    Once it is queued nothing is refused any more: whoever was, would ask again and have it made twice.
    """
    service, exchange = service_of(request), exchange_of(request)
    streams = creation.request.stream
    if streams:
        exchange.slot.take_follower()
    response, events = await submit(service, exchange.tenant, creation)
    exchange.left_out(creation.left_out)
    exchange.facts["outcome"] = response.status.value
    if not streams:
        return exchange.dialect.answer(response)
    return follow(request, creation.id, begun=events, obfuscate=creation.request.obfuscate)
