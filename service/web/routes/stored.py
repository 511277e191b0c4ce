"""Stored responses: retrieve, follow, steer, delete and cancel them, and list what a response was asked.

A response that a client may have already has an ETag, and a request that names it gets a 304 without a body. The tag is
a hash of the answer as it would be sent, so it is another one once anything in the answer is: a response goes on, an
item of it is erased, the other dialect is asked for, or `include` is. Nothing is answered from memory: the response is
looked up each time, and a 404 once it is deleted. Source: RFC 9110, 8.8.3, 13.1.2 and 15.4.5.
"""

import asyncio
from collections.abc import Iterable
from hashlib import blake2b
from typing import Annotated

import msgspec
from fastapi import APIRouter
from fastapi import Query as InQuery
from pydantic import Field
from starlette.responses import Response

from service import spans
from service.api.request import MAX_INT
from service.api.response import decode_response
from service.background.control import cancel as cancel_response
from service.background.control import steer as steer_response
from service.background.follow import find
from service.errors import invalid_value
from service.responses.output.fold import unfold
from service.responses.service import Service
from service.spans import Fact, Span, conversation
from service.stability import EXPERIMENTAL
from service.web.entering import Aside
from service.web.errors import JsonResponse
from service.web.event_stream import EventStream
from service.web.idempotency import key_of
from service.web.queries import Query, parameters_of
from service.web.received import Received
from service.web.routes.included import Including, ItemsQuery, answer_page, show
from service.web.routes.input_items import page_of
from store.errors import NotCancellable, NotFound, NotTerminal
from store.turn import Found

router = APIRouter(prefix="/v1", tags=["Responses"])

STREAMED = "stream"
"""How the store calls a background response whose events may be followed."""


class RetrieveQuery(Including):
    """The query for a response, or for its events."""

    stream: bool = False
    starting_after: Annotated[int | None, Field(ge=0, le=MAX_INT)] = None
    include_obfuscation: bool | None = None


class DeleteQuery(Query):
    """The query that says how much is deleted."""

    erase: bool = False
    tree: bool = False


@router.get(
    "/responses/{response_id}",
    summary="Retrieve a response",
    operation_id="retrieveResponse",  # it reads path and query itself: FastAPI takes 12 µs for one and 50 for the other
    openapi_extra={"parameters": parameters_of("response_id", RetrieveQuery)},
)
async def retrieve(request: Aside) -> Response:
    """The response as served, or with the output so far while it runs. With the `ETag` of the last answer in
    `If-None-Match`, an unchanged response is a 304 without a body.

    With `stream`, the events of a background response that was created with it, those behind `starting_after`. Where
    they are no longer kept, its last event tells all.
    """
    query, response_id = request.query(RetrieveQuery), request.exchange.scope["path_params"]["response_id"]
    service, wanted, after = request.service, query.wanted, query.starting_after
    if query.stream:
        return await _stream(request, response_id, after, query.include_obfuscation is not False)
    if after is not None:
        raise invalid_value("starting_after", after, "It is only allowed with stream=true.")
    with fetching() as span:
        response = await _found(service, request.tenant, response_id)
        if span.kept:
            span.note(fetch_facts(response))
    response = await show(request, response, wanted)
    answer = request.with_room(request.exchange.dialect.answer(response))
    return await unless_known(request.exchange.scope["headers"], answer)


async def _found(service: Service, tenant: str, id: str) -> bytes:
    """A stored response as JSON, or one in the foreground that is made here. Raises NotFound, StoreUnavailable."""
    try:
        return await find(service.jobs, tenant, id)
    except NotFound:
        if (made := service.running.as_it_stands(tenant, id)) is None:
            return await find(service.jobs, tenant, id)  # it may have ended meanwhile
        return msgspec.json.encode(made)


async def _stream(request: Received, response_id: str, after: int | None, obfuscate: bool) -> EventStream:
    service = request.service
    with fetching(after) as span:
        found = await service.store.find(request.tenant, response_id)
        if span.kept:
            span.note(fetch_facts(found.response) | {"gen_ai.response.status": found.status.value})
    if found.background != STREAMED:
        raise invalid_value(
            "stream", "true", "Only a response that was created with background=true and stream=true can be streamed."
        )
    return stream_events(request, response_id, found, -1 if after is None else after, obfuscate=obfuscate)


def stream_events(request: Received, id: str, found: Found, after: int = -1, *, obfuscate: bool) -> EventStream:
    """The events of a response behind the one with a number: those that are kept, or else how it has ended. Raises
    ApiError 503 where there is no room for that.
    """
    if not found.logged and not found.under_way:
        request.admitted.slot.take_body(len(found.response))
        substitutes = unfold(decode_response(found.response), after)
        return EventStream(substitutes, request.admitted, request.service.settings, obfuscate=obfuscate)
    request.admitted.slot.take_follower()
    return request.follow(id, after, obfuscate=obfuscate)


@router.delete("/responses/{response_id}", summary="Delete a response", operation_id="deleteResponse")
async def delete(request: Aside, query: Annotated[DeleteQuery, InQuery()], response_id: str) -> Response:
    """Delete a response. Its continuations keep their history.

    With `erase` its content, and its input's, is also deleted from that history. With `tree` the whole conversation is
    deleted, with every response before and after this one and all forks.
    """
    store, tenant = request.service.store, request.tenant
    if not await request.service.running.ended(tenant, response_id, stopped=True):
        raise NotTerminal(response_id)
    if query.tree:
        await store.forget_tree(tenant, response_id)
        await request.note("response.erased", response_id, tree=True)
    else:
        await store.forget(tenant, response_id, erase=query.erase)
        await request.note("response.erased" if query.erase else "response.deleted", response_id)
    return JsonResponse({"id": response_id, "object": "response.deleted", "deleted": True})


@router.post("/responses/{response_id}/cancel", summary="Cancel a background response", operation_id="cancelResponse")
async def cancel(request: Aside, response_id: str) -> Response:
    """Cancel a background response; its output so far is kept. Cancelling it again has no effect."""
    service = request.service
    if service.running.as_it_stands(request.tenant, response_id) is not None:
        raise NotCancellable(response_id, None)
    response = await cancel_response(service, request.tenant, response_id)
    request.process.background.ended(response_id)
    return request.exchange.dialect.answer(response)


@router.post(
    "/responses/{response_id}/steer",
    summary="Steer a background response",
    operation_id="steerResponse",
    openapi_extra=EXPERIMENTAL,
)
async def steer(request: Aside, response_id: str) -> Response:
    """Send a message to a running background response: it ends at its next boundary, and a successor continues with
    the message.
    """
    body, exchange = await request.body(), request.exchange
    key = key_of(exchange.scope["headers"]) or b""
    return JsonResponse(await steer_response(request.service, exchange.entry, response_id, body, key))


@router.get(
    "/responses/{response_id}/input_items", summary="List the input items of a response", operation_id="listInputItems"
)
async def input_items(request: Aside, query: Annotated[ItemsQuery, InQuery()], response_id: str) -> Response:
    """All input of a response, page by page: the conversation before it and its own input."""
    store, tenant, wanted = request.service.store, request.tenant, query.wanted
    turns = await store.lineage(tenant, response_id)
    return await answer_page(request, await page_of(store, tenant, turns, query, asked=response_id), wanted)


class _Fetched(msgspec.Struct, frozen=True):
    id: str
    status: str
    model: str
    conversation: dict[str, str] | None = None


def fetching(cursor: int | None = None) -> Span:
    """The span of looking a response up, for its events behind a `cursor` where there is one. It has no id before there
    is a response with it: a path may hold anything.
    """
    span = spans.current.get()
    if not span.kept:
        return span
    facts: dict[str, Fact] = {"gen_ai.operation.name": "fetch_response", "gen_ai.request.stream_cursor": cursor}
    return span.child("fetch_response", facts=facts)


def fetch_facts(response: bytes) -> dict[str, Fact]:
    found = msgspec.json.decode(response, type=_Fetched)
    known = {} if found.conversation is None else conversation(found.conversation["id"])
    facts: dict[str, Fact] = {"gen_ai.response.id": found.id, "gen_ai.response.model": found.model}
    return facts | {"gen_ai.response.status": found.status} | known


TAG_BYTES = 16

BYTES_A_STEP = 1 << 20
"""How much is hashed at once, in about a millisecond."""

STORING = b"private, no-cache"
"""Lets only the client keep an answer; it has to ask each time whether it still holds."""


async def unless_known(headers: Iterable[tuple[bytes, bytes]], answer: Response) -> Response:
    """The answer with its ETag, or a 304 without a body if `headers` say, perhaps several times, that it is known."""
    hashed, body = blake2b(digest_size=TAG_BYTES), answer.body
    for start in range(0, len(body), BYTES_A_STEP):
        if start:
            await asyncio.sleep(0)
        hashed.update(body[start : start + BYTES_A_STEP])
    tag = b'"%b"' % hashed.hexdigest().encode()
    named = [value for name, value in headers if name == b"if-none-match"]
    if any(tag in value or value.strip() == b"*" for value in named):  # no other tag has this one's quotes in it
        answer = Response(status_code=304)
    answer.raw_headers += [(b"etag", tag), (b"cache-control", STORING)]
    return answer
