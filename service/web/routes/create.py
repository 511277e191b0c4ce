"""`POST /v1/responses`: plain, streaming, and in the background.

Plain and streaming consume one run's events; the plain answer is their fold. In the background a worker makes the
response, and its stream is a follower's like any other.
"""

from fastapi import APIRouter, Request
from starlette.responses import Response as HttpResponse

from service.api.request import read_create
from service.background.submit import submit
from service.responses.prepare import Creation
from service.web.follow import follow
from service.web.routes.asked import arrival_of, begun, body_of, service_of, whole
from service.web.stream import EventStream

router = APIRouter()


@router.post("/responses", summary="Create a response")
async def create(request: Request) -> HttpResponse:
    """Sample a response to `input`, on top of `previous_response_id` where one is given. Streams with `stream`."""
    arrival, settings = arrival_of(request), service_of(request).settings
    body = await body_of(request)
    wanted = read_create(body, store=settings.store, unstored_background=settings.background_without_store)
    creation = await begun(request, wanted)
    if wanted.background:
        return await _queued(request, creation)
    run = await creation.build()
    arrival.left_out(creation.left_out)
    if wanted.stream:
        return EventStream(run, arrival, settings, obfuscate=wanted.obfuscate)
    return arrival.dialect.answer(await whole(run, request.receive, arrival))


async def _queued(request: Request, creation: Creation) -> HttpResponse:
    """The response as it waits for a worker, or its events from the first one on.

    Once it is queued nothing is refused any more: whoever was, would ask again and have it made twice.
    """
    service, arrival = service_of(request), arrival_of(request)
    streams = creation.request.stream
    if streams:
        arrival.place.take_follower()
    response, events = await submit(service, arrival.tenant, creation)
    arrival.left_out(creation.left_out)
    arrival.facts["outcome"] = response.status.value
    if not streams:
        return arrival.dialect.answer(response)
    return follow(request, creation.id, begun=events, obfuscate=creation.request.obfuscate)
