"""The routes that make a prompt: `POST /v1/responses`, `/v1/responses/compact` and `/v1/responses/input_tokens`, and
`/v1/chat/completions`, `/v1/messages` and `/v1/messages/count_tokens` where those aren't passed on.

    body ─▶ checked request ─▶ Plan ─┬─▶ Driver ─▶ events ─▶ one answer, or a stream of them
                                     └─▶ queue, for a worker

A compaction is a response in one piece that is never stored; a count has the same plan and never runs. A request for a
chat completion or a message is translated, and then one for a response, whose answer has another form.
"""

from collections.abc import Callable, Generator
from contextlib import AsyncExitStack
from functools import partial
from typing import Literal, TypeVar

import msgspec
from starlette.responses import Response as HttpResponse

from service.api.chat import ChatLimits, TranslatedChat, read_chat
from service.api.messages import Told, read_messages
from service.api.request import ChatBody, CreateBody, CreateRequest, read_count, read_create
from service.api.response import Compaction, Response, ResponseStatus
from service.background.follow import find
from service.background.submit import submit
from service.errors import ApiError, InvalidRequest, brief
from service.responses.append import AppendSink
from service.responses.drive import Driver
from service.responses.make import Maker, Queued, Ran, make
from service.responses.output.fold import Fold
from service.responses.prepare import prepare
from service.responses.prompt.compaction import Compacted, read_compact, window
from service.responses.prompt.read import MAX_ITEMS, MAX_TOOLS, MAX_TOOLS_BYTES
from service.responses.refusals import not_compacted, nothing_said, refusal_of
from service.responses.run import Taken
from service.steps import in_steps
from service.tenants.permissions import check_scope
from service.web.admission.slots import Slot
from service.web.body import watching
from service.web.dialect import ChatCompletions, Dialect, Messages
from service.web.event_stream import StreamedRun, note_outcome
from service.web.idempotency import taken_over
from service.web.received import Received
from service.web.routes.proxy import MessagesQuery
from service.web.routes.stored import stream_events
from service.web.routing import Router, Way
from store.errors import Conflict, StoreFull
from store.keys import id_of

router = Router("Responses")
chats = Router("Chat Completions")
"""The routes to chat completions and messages that are made here."""


Read = Callable[[bytes], CreateRequest]
"""Reads and checks the body of a request."""

Form = TypeVar("Form", TranslatedChat, Told)
"""A request of another API that was translated."""


class InputTokens(msgspec.Struct):
    """How long a prompt is."""

    input_tokens: int
    object: Literal["response.input_tokens"] = "response.input_tokens"


@router.route("POST", "/responses", "Create a response", "createResponse", way=Way.ASKS)
async def create(request: Received) -> object:
    """Sample a response to `input`, on top of `previous_response_id` where one is given. Streams with `stream`."""
    return await _create(request, await request.body(), CreateBody)


@chats.route("POST", "/chat/completions", "Create a chat completion", "createChatCompletion", way=Way.ASKS)
async def complete(request: Received) -> object:
    """Sample the next message of a conversation. It is stored as any response, unless `store` is false."""
    return await _create(request, await _translate(request, read_chat, ChatCompletions), ChatBody)


@chats.route("POST", "/messages", "Create a message", "createMessage", query=MessagesQuery, way=Way.ASKS)
async def answer(request: Received, _: MessagesQuery | None = None) -> object:
    """Sample the next message of a conversation, and store it as any response, unless `store` is false."""
    return await _create(request, await _translate(request, read_messages, Messages), ChatBody)


@chats.route(
    "POST", "/messages/count_tokens", "Count the tokens of messages", "countMessageTokens", query=MessagesQuery
)
async def count_messages(request: Received, _: MessagesQuery | None = None) -> object:
    """The tokens of the prompt that a message would be answered from."""
    body = await _translate(request, partial(read_messages, counts=True), Messages)
    return {"input_tokens": await _count(request, body)}


async def _translate(
    request: Received,
    read: Callable[[bytes, ChatLimits], Generator[None, None, Form]],
    dialect: Callable[[Form], Dialect],
) -> bytes:
    """The body of the create request that one of another API is, whose scope it asks for; from here on it is answered
    in its `dialect`. Nobody else has the body, so that a run doesn't hold it. Raises ApiError, ClientGone.
    """
    check_scope(request.exchange.entry.scopes, "api.responses.write")
    body = await request.body()
    limits = ChatLimits(MAX_ITEMS, MAX_TOOLS, MAX_TOOLS_BYTES, refuses=request.service.settings.picture_bounds is None)
    async with request.preparing(len(body)):
        translated = await in_steps(read(body, limits))
    request.exchange.dialect = dialect(translated)
    request.exchange.left_out(translated.tools_left_out, translated.left_out)
    return translated.body


async def _create(request: Received, body: bytes, kind: type[CreateBody]) -> object:
    """The answer to the body of a create request, in the exchange's dialect. Raises ApiError, StoreError, EngineError,
    ClientGone.
    """
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


@router.route("GET", "/responses", "Open a WebSocket", "openWebSocket")
async def open_socket(_: Received) -> object:
    """Make many responses over one connection. A request that opens no WebSocket, or not in the right way, is a 426."""
    raise ApiError(
        426,
        "GET /v1/responses opens a WebSocket: send Upgrade: websocket, Connection: Upgrade, Sec-WebSocket-Version: 13 "
        "and a Sec-WebSocket-Key of 16 bytes as base64, over HTTP/1.1. A proxy may have taken them away. Else POST.",
        code="upgrade_required",
    )


@router.route("POST", "/responses/compact", "Compact a conversation", "compactConversation", way=Way.ASKS)
async def compact(request: Received) -> object:
    """The user's messages of a conversation word by word, and all else of it as one sealed item."""
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


@router.route("POST", "/responses/input_tokens", "Count the tokens of a request", "countInputTokens")
async def count(request: Received) -> object:
    """The tokens of the prompt that a create request would be answered from, its whole conversation included."""
    length = await _count(request, await request.body())
    return request.exchange.dialect.answer(InputTokens(length))


async def _count(request: Received, body: bytes) -> int:
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
    """The result of an earlier request with the same key, as this one wants it: the response as it stands, or its
    events. Raises ApiError, StoreError.
    """
    service, exchange = request.service, request.exchange
    exchange.facts["response_id"] = id
    async with request.preparing(len(body)):
        wanted = read(body)
    if wanted.stream:
        return stream_events(request, id, await service.store.find(exchange.tenant, id), obfuscate=wanted.obfuscate)
    found = await find(service.jobs, exchange.tenant, id)
    return request.with_room(exchange.dialect.answer(found))


DETACH = b"x-detach"
"""The header of a request whose stream goes on when its client goes."""


def _detached(request: Received) -> bool:
    """Whether a stream is to go on when its client goes. Raises InvalidRequest."""
    value = request.header(DETACH).strip().lower()
    if value not in ("", "true", "false"):
        raise InvalidRequest(f"The header 'X-Detach' is '{brief(value)}'. Send true or false.", code="invalid_value")
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
    exchange.facts["outcome"] = response.status.value
    if not stream:
        return exchange.dialect.answer(response)
    return request.follow(response.id, begun=events, obfuscate=obfuscate)


class Folded:
    """The outlet of a plain answer: what its events come to."""

    def __init__(self, driver: Driver, slot: Slot) -> None:
        self.fold = Fold()
        self._driver, self._slot = driver, slot

    def put(self, taken: Taken) -> bool:
        """See Outlet."""
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

    with watching(request.receive, gone):
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
