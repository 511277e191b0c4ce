"""The routes that make a prompt: `POST /v1/responses`, `/v1/responses/compact` and `/v1/responses/input_tokens`.

    body ─▶ checked request ─▶ Plan ─┬─▶ Driver ─▶ events ─▶ one answer, or a stream of them
                                     └─▶ queue, for a worker

A compaction is a response in one piece that is never stored; a count has the same plan and never runs.
"""

from collections.abc import Callable
from contextlib import AsyncExitStack
from functools import partial
from typing import Literal

import msgspec
from fastapi import APIRouter
from starlette.responses import Response as HttpResponse

from service.api.request import CreateBody, CreateRequest, read_count, read_create
from service.api.response import Compaction, Response, ResponseStatus
from service.background.follow import find
from service.background.submit import submit
from service.errors import InvalidRequest, brief
from service.responses.append import AppendSink
from service.responses.drive import Driver
from service.responses.make import Maker, Queued, Ran, make
from service.responses.output.fold import Fold
from service.responses.prepare import prepare
from service.responses.prompt.compaction import Compacted, read_compact, window
from service.responses.refusals import not_compacted, nothing_said, refusal_of
from service.responses.run import Taken
from service.web.admission.slots import Slot
from service.web.body import hearing
from service.web.entering import Aside, Asks
from service.web.event_stream import StreamedRun, note_outcome
from service.web.idempotency import taken_over
from service.web.received import Received
from service.web.routes.stored import stream_events
from store.errors import Conflict, StoreFull
from store.keys import id_of

router, others = APIRouter(prefix="/v1", tags=["Responses"]), APIRouter(prefix="/v1", tags=["Responses"])
"""The route of most requests, and the others."""

Read = Callable[[bytes], CreateRequest]


class InputTokens(msgspec.Struct):
    """The length of a prompt."""

    input_tokens: int
    object: Literal["response.input_tokens"] = "response.input_tokens"


@router.post("/responses", summary="Create a response", operation_id="createResponse")
async def create(request: Asks) -> HttpResponse:
    """Sample a response to `input`, which can continue `previous_response_id`. Streams with `stream`."""
    return await answer_create(request, await request.body(), CreateBody)


async def answer_create(request: Received, body: bytes, kind: type[CreateBody]) -> HttpResponse:
    """The answer to a create request, in its dialect. Raises ApiError, StoreError, EngineError, ClientGone."""
    settings = request.service.settings
    unstored, detached = settings.background_without_store, _detached(request)
    read = partial(read_create, store=settings.store, unstored_background=unstored, detached=detached, kind=kind)
    async with AsyncExitStack() as resources:
        claim = await resources.enter_async_context(request.claim(body))
        if claim.made:
            return await _again(request, body, read, id_of(claim.made))
        maker = request.exchange.maker(request.service, request.preparing(len(body)), claim=claim)
        made = await make(maker, partial(read, body), resources)
        del body
        if isinstance(made, Queued):
            return await _answer_queued(request, maker, made, waits=not detached)
        stream, obfuscate, driver, sink = made.prepared.stream, made.prepared.obfuscate, made.driver, made.sink
        del made, maker  # the items of its input: the plan has them as JSON
        if stream:
            request.admitted.resources.push_async_exit(resources.pop_all())
            return StreamedRun(driver, request.admitted, settings, obfuscate=obfuscate, lasts=claim.lasts)
        return request.exchange.dialect.answer(await _whole(request, driver, sink, lasts=claim.lasts))


@others.post("/responses/compact", summary="Compact a conversation", operation_id="compactConversation")
async def compact(request: Asks) -> HttpResponse:
    """The user's messages of a conversation unchanged, and a summary of everything else as one sealed item."""
    settings = request.service.settings
    async with AsyncExitStack() as resources:
        body = await request.body()
        maker = request.exchange.maker(request.service, request.preparing(len(body)))
        made = await make(maker, partial(read_compact, body, store=settings.store), resources)
        assert isinstance(made, Ran)  # a compaction is never queued
        response = await _whole(request, made.driver, made.sink)
    compactions = [item for item in response.output if isinstance(item, Compaction)]
    if response.status is not ResponseStatus.COMPLETED or not compactions:
        raise not_compacted(response)
    items, rules = made.prepared.items, made.prepared.plan.rules
    output = window(response.id, items, rules.kept_messages, compactions[-1])
    return request.exchange.dialect.answer(Compacted(response.id, response.created_at, output, response.usage))


@others.post("/responses/input_tokens", summary="Count the tokens of a request", operation_id="countInputTokens")
async def count(request: Aside) -> HttpResponse:
    """The number of tokens in the prompt of a create request, its whole conversation included."""
    length = await count_tokens(request, await request.body())
    return request.exchange.dialect.answer(InputTokens(length))


async def count_tokens(request: Received, body: bytes) -> int:
    """The tokens of the prompt for a body. Raises ApiError, StoreError, EngineError."""
    exchange, service = request.exchange, request.service
    async with request.preparing(len(body)), AsyncExitStack() as resources:
        wanted = read_count(body, store=service.settings.store)
        planned = await prepare(service, request.exchange.caller, wanted, resources, reserves=False)
        length = planned.plan.input_tokens
    exchange.left_out(planned.left_out, planned.items_left_out)
    exchange.facts["input_tokens"] = length
    return length


async def _again(request: Received, body: bytes, read: Read, id: str) -> HttpResponse:
    """The response of an earlier request with the same key, or its events. Raises ApiError, StoreError."""
    service, exchange = request.service, request.exchange
    exchange.facts["response_id"] = id
    async with request.preparing(len(body)):
        wanted = read(body)
    if wanted.stream:
        return stream_events(request, id, await service.store.find(exchange.tenant, id), obfuscate=wanted.obfuscate)
    found = await find(service.jobs, exchange.tenant, id)
    return request.with_room(exchange.dialect.answer(found))


DETACH = b"x-harmonium-detach"
"""The header of a request whose stream goes on when its client goes."""


def _detached(request: Received) -> bool:
    """Whether a stream is to go on when its client goes. Raises InvalidRequest."""
    value = request.header(DETACH).strip().lower()
    if value not in ("", "true", "false"):
        raise InvalidRequest(
            f"The header 'X-Harmonium-Detach' is '{brief(value)}'. Send true or false.", code="invalid_value"
        )
    return value == "true"


async def _answer_queued(request: Received, maker: Maker, made: Queued, *, waits: bool) -> HttpResponse:
    """The response as it waits for a worker, or its events from the first one on. One that doesn't wait is begun before
    those that do.

    Once it is queued nothing is refused any more: a refused client would ask again and have it made twice.
    """
    exchange, stream, obfuscate = request.exchange, made.prepared.stream, made.prepared.obfuscate
    if stream:
        request.admitted.slot.take_follower()
    response, events = await submit(maker, made, waits=waits)
    exchange.facts["response_status"] = response.status.value
    if not stream:
        return exchange.dialect.answer(response)
    return request.follow(response.id, begun=events, obfuscate=obfuscate)


class Folded:
    """The outlet of a plain answer: what its events come to."""

    def __init__(self, driver: Driver, slot: Slot) -> None:
        self.fold = Fold()
        self._driver, self._slot = driver, slot

    def put(self, taken: Taken) -> bool:
        if taken.events:
            self.fold.add(taken.events)
            self._slot.served(*self._driver.taken)
        return True

    async def room(self) -> None:
        """See Outlet. There always is."""

    async def settle(self) -> None:
        """See Outlet. Nothing is kept before the end."""


async def _whole(request: Received, driver: Driver, sink: AppendSink, *, lasts: bool = False) -> Response:
    """The response of a run, which `lasts` though its client is gone, or ends then.

    Raises ApiError if it failed before anything was said, if the store is full, or if another request with its key has
    stored it.
    """
    exchange, outlet = request.exchange, Folded(driver, request.admitted.slot)

    def gone() -> None:
        exchange.facts["client"] = "gone"
        if not lasts:
            driver.stop()

    with hearing(exchange.scope, request.receive, gone):
        await driver.make(outlet)
    if driver.response is None:
        raise taken_over()
    response = outlet.fold.response
    note_outcome(exchange, response)
    if isinstance(sink.unstored, StoreFull | Conflict) or (sink.unstored is not None and not response.output):
        raise refusal_of(sink.unstored)
    if response.error is not None and not response.output:
        raise nothing_said(response.error.message, driver.run.failure, timed_out=driver.timed_out)
    return response
