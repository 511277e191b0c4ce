"""Routes of a server's own API, such as `POST /v1/chat/completions`, passed on to a server that the engine has.

A stream goes out event by event, as the client reads: one that lags makes the server wait. A client that disconnects
ends the server's work, however far that is. A stream that the server breaks off ends in an error event, and JSON that
it breaks off in a connection that is cut: never in an end that looks right. Never store, sample or translate anything
here.
"""

import asyncio
import logging
import re
from collections.abc import Mapping
from contextlib import aclosing
from hashlib import blake2b
from typing import Annotated, Any, NamedTuple

import msgspec
from fastapi import APIRouter, Depends
from fastapi import Query as InQuery
from starlette.responses import Response as HttpResponse
from starlette.types import Receive, Scope, Send

from service.engine.engines import salt_of
from service.engine.port import (
    EngineBroke,
    EngineError,
    EngineRefused,
    FormFile,
    Passed,
    PassedReply,
    PassedUsage,
)
from service.entrance import Reservation
from service.errors import ApiError, ClientGone, InvalidRequest, invalid_value
from service.features.proxy.passed import (
    CACHED,
    FORMS,
    GENERATES,
    SALTED,
    Endpoint,
    ReadPassed,
    members_of_form,
    read_passed,
)
from service.logs import event
from service.responses.plan import MODEL_CHARS
from service.responses.prepare import model_of
from service.responses.refusals import refusal_of
from service.responses.service import Service
from service.spans import Fact, SpanSide
from service.stability import EXPERIMENTAL
from service.steps import in_steps
from service.web.body import break_off, watching
from service.web.entering import Asks, UploadsAsk
from service.web.errors import MESSAGES
from service.web.event_stream import HEADERS
from service.web.exchange import Admitted
from service.web.queries import MessagesQuery
from service.web.received import Received
from service.web.sse import KEEP_ALIVE, Pulse, beat_of
from service.web.uploads import read_form
from store.spent import Spent, Unspent
from store.turn import Expense

logger = logging.getLogger(__name__)

TOKEN_BYTES = 4
"""About how many bytes of a request are a token: its server alone counts them, and tells at the end."""

router = APIRouter(prefix="/v1", tags=["Passed on"])


class KnownEndpoint(NamedTuple):
    """The facts of an endpoint whose requests are passed on."""

    summary: str
    operation_id: str
    operation: str
    """Its name in a trace, one of OpenTelemetry's GenAI conventions where these have one."""
    mark: dict[str, Any] | None = None
    """The mark of one that has met no real server."""


KNOWN: dict[str, KnownEndpoint] = {
    Endpoint.CHAT: KnownEndpoint("Create a chat completion", "createChatCompletion", "chat"),
    Endpoint.COMPLETIONS: KnownEndpoint("Create a completion", "createCompletion", "text_completion"),
    Endpoint.EMBEDDINGS: KnownEndpoint("Create embeddings", "createEmbedding", "embeddings", EXPERIMENTAL),
    Endpoint.MESSAGES: KnownEndpoint("Create a message", "createMessage", "chat"),
    Endpoint.COUNT: KnownEndpoint("Count the tokens of messages", "countMessageTokens", "count_tokens"),
    Endpoint.RERANK: KnownEndpoint("Rank documents", "createRerank", "rerank", EXPERIMENTAL),
    Endpoint.SCORE: KnownEndpoint("Score texts", "createScore", "score", EXPERIMENTAL),
    Endpoint.DECISIONS: KnownEndpoint("Decide questions", "createDecision", "decide", EXPERIMENTAL),
    Endpoint.TRANSCRIBE: KnownEndpoint("Transcribe audio", "createTranscription", "transcribe", EXPERIMENTAL),
}

HEADERS_ON = (b"anthropic-version", b"anthropic-beta")
"""Headers of Anthropic's API, which go on with its requests."""

_HEADER = re.compile(rb"[\x20-\x7e]{1,1024}")


async def _passed_on(request: Received, endpoint: Endpoint) -> HttpResponse:
    """The server's answer to a request. Raises ApiError, EngineUnavailable."""
    service, admitted, exchange = request.service, request.admitted, request.exchange
    settings = service.settings
    read, file, reads = await (_form_read(request, endpoint) if endpoint in FORMS else _json_read(request, endpoint))
    caller = request.exchange.caller
    card = await model_of(service, caller, read.model)
    if endpoint in CACHED and service.tenants.keys.several:
        message = f"{endpoint} is available only with a single tenant, as tenants would share cached prompts there."
        raise ApiError(404, f"{message} Use POST /v1/responses or /v1/chat/completions.", param="model")
    if not service.engine.passes_on(card.id):
        message = f"No server of '{card.id}' has {endpoint}. Use POST /v1/responses, or another model."
        raise ApiError(404, message, code="model_not_found", param="model")
    priority = _priority(read, goes_first=service.tenants.keys.may_go_first(exchange.tenant))
    admitted.slot.take_answers(read.answers - 1)
    passed = Passed(
        id=exchange.request_id,
        path=endpoint,
        members=read.within(card.context_tokens, card.max_output_tokens),
        answers=read.answers,
        stream=read.stream,
        model=card.id,
        affinity=read.cache_key or caller.session or _affinity(exchange.tenant, read) or exchange.request_id,
        cache_salt=salt_of(settings.redis_prefix, exchange.tenant, read.cache_salt) if endpoint in SALTED else "",
        priority=priority,
        trace=caller.trace,
        tenant=exchange.tenant,
        headers=_headers(exchange.headers) if endpoint.startswith(MESSAGES) else (),
        file=file,
    )
    writes = settings.default_output_tokens * read.answers if endpoint in GENERATES else 0
    id = service.store.new_id()
    reads = 0 if endpoint is Endpoint.COUNT else reads
    entrance, resources = service.tenants.entrance, admitted.resources
    reserved = await exchange.reserve(entrance, resources, card.id, id, reads=reads, writes=writes)
    return PassedAnswer(service, passed, admitted, reserved)


async def _json_read(request: Received, endpoint: Endpoint) -> tuple[ReadPassed, None, int]:
    """A request in JSON, and about how many tokens it has. Raises ApiError."""
    body = await request.body()
    async with request.preparing(len(body)):
        return await in_steps(read_passed(body, endpoint)), None, len(body) // TOKEN_BYTES


async def _form_read(request: Received, endpoint: Endpoint) -> tuple[ReadPassed, FormFile, int]:
    """A request as a form, its file, and about how many tokens its fields have: of the file its server knows alone.
    Raises ApiError.
    """
    kind, body = request.header(b"content-type"), await request.body(text=False)
    async with request.preparing(len(body)):
        form = await read_form(body, kind)
        members = members_of_form(form.fields)
        read = await in_steps(read_passed(members, endpoint))
    return read, FormFile(form.name, form.kind, form.content), len(members) // TOKEN_BYTES


async def read_messages_query(_: Annotated[MessagesQuery, InQuery()]) -> None:
    """Raises InvalidRequest for a query that isn't one of Anthropic's."""


def _route(endpoint: Endpoint) -> None:
    """Adds the route of an endpoint."""

    async def pass_on(request: Asks) -> HttpResponse:
        """Passed on to the engine's server, and not stored."""
        return await _passed_on(request, endpoint)

    async def pass_on_upload(request: UploadsAsk) -> HttpResponse:
        """Passed on to the engine's server, and not stored."""
        return await _passed_on(request, endpoint)

    known = KNOWN[endpoint]
    router.add_api_route(
        endpoint.removeprefix("/v1"),
        pass_on_upload if endpoint in FORMS else pass_on,
        methods=["POST"],
        summary=known.summary,
        operation_id=known.operation_id,
        openapi_extra=known.mark,
        dependencies=[Depends(read_messages_query)] if endpoint.startswith(MESSAGES) else [],
    )


for each in Endpoint:
    _route(each)


def _headers(headers: Mapping[bytes, bytes]) -> tuple[tuple[str, str], ...]:
    """The headers that go on with a request. Raises InvalidRequest for one that a server may read otherwise."""
    for name in HEADERS_ON:
        if name in headers and not _HEADER.fullmatch(headers[name]):
            raise InvalidRequest(f"The header '{name.decode()}' isn't 1 to 1024 printable characters of ASCII.")
    return tuple((name.decode(), headers[name].decode()) for name in HEADERS_ON if name in headers)


def _priority(read: ReadPassed, *, goes_first: bool) -> int:
    """Its place in the server's queue. Raises ApiError for one before other tenants', unless this one `goes_first`."""
    if read.priority is None:
        return read.tier if goes_first else max(0, read.tier)
    if read.priority < 0 and not goes_first:
        raise invalid_value("priority", read.priority, "Below 0 it would overtake other tenants' requests.")
    return read.priority


def _affinity(tenant: str, read: ReadPassed) -> str:
    """The key that requests of one conversation share where nothing else names it: a digest of its beginning. Tenants
    share no conversation.
    """
    return blake2b(read.beginning, key=tenant.encode()[:64], digest_size=16).hexdigest() if read.beginning else ""


WHOLE_BYTES = 256 * 1024
"""An answer in JSON up to this size is sent once it is whole, so that one that breaks off can be an error instead."""

DATA = b"data: "
"""The prefix of an event; most servers send one for each token."""

_ANY = msgspec.json.Decoder(msgspec.Raw)


class PassedAnswer(HttpResponse):
    """The answer to one request."""

    def __init__(self, service: Service, passed: Passed, admitted: Admitted, reserved: Reservation | None) -> None:
        """The answer says what it took, which settles what is `reserved` of limits."""
        self.status_code = 200
        self.background = None
        self._service = service
        self._passed = passed
        self._admitted, self._exchange = admitted, admitted.exchange
        self._gone = False
        self._usage: PassedUsage | None = None
        self._reserved = reserved
        self._prompt = sum(len(memoryview(each)) for each in passed.members.values()) // TOKEN_BYTES
        self._events = 0
        """How many came of a stream, which says in its end alone how many tokens it took, if at all."""

    @property
    def spent(self) -> Spent | Unspent:
        """Its cost against limits, as reported by its server; without a report, an estimate from the stream's
        events."""
        usage = self._usage
        if self._passed.path == Endpoint.COUNT:
            return Spent(0, 0)
        if usage is not None:
            return Spent(usage.input_tokens, usage.output_tokens)
        return Spent(self._prompt, self._events) if self._events else Unspent.UNKNOWN

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer. An error before the answer has begun is raised."""
        answering = asyncio.create_task(self._trace(send))

        def gone() -> None:
            self._gone = True
            self._exchange.facts["client"] = "gone"
            answering.cancel()

        try:
            with watching(receive, gone):
                right = await answering
        except asyncio.CancelledError:
            if not self._gone:
                raise
            if not self._exchange.status:
                raise ClientGone from None
            return
        finally:
            if self._reserved is not None:
                self._reserved.settle()
            if (usage := self._usage) is not None:
                service, caller = self._service, self._exchange.caller
                tokens = (usage.input_tokens, usage.cached_tokens, usage.output_tokens)
                expense = Expense(caller.entry.key, self._passed.model[:MODEL_CHARS], *tokens)
                await service.tenants.entrance.count(caller.tenant, service.store.new_id(), expense)
        if not right:
            await break_off(scope, receive)

    async def _trace(self, send: Send) -> bool:
        """Send all, as `_answer` does, with a span around what the engine is asked where that is traced."""
        span, passed = self._exchange.span, self._passed
        if not span.kept:
            return await self._answer(send)
        operation = KNOWN[passed.path].operation
        facts: dict[str, Fact] = {"gen_ai.operation.name": operation, "gen_ai.request.model": passed.model}
        with span.child(f"{operation} {passed.model}", SpanSide.CLIENT, facts) as asking:
            self._passed = msgspec.structs.replace(passed, trace=asking.headers)
            try:
                return await self._answer(send)
            finally:
                known = self._exchange.facts
                used = {f"gen_ai.usage.{name}": known.get(name) for name in ("input_tokens", "output_tokens")}
                asking.note({**used, "gen_ai.usage.cache_read.input_tokens": known.get("cached_tokens")})

    async def _answer(self, send: Send) -> bool:
        """Send all; whether the answer has its end."""
        facts, stream, seconds = self._exchange.facts, False, self._service.settings.request_seconds
        try:
            async with asyncio.timeout(seconds), self._service.engine.pass_on(self._passed) as reply:
                if self._reserved is not None:
                    self._reserved.work = self
                stream = reply.events
                try:
                    await (self._stream(reply, send) if stream else self._whole(reply, send))
                finally:
                    self._count(reply)
            facts["response_status"] = "completed"
            return True
        except TimeoutError:
            message = f"The answer took longer than {seconds:g} s. Ask for less output."
            failure = ApiError(504, message, type="server_error", code="timeout")
        except EngineError as error:
            if not isinstance(error, EngineRefused):  # whose words may quote the request
                event(logger, logging.ERROR, "the engine failed", reason=str(error))
            if not self._exchange.status:
                raise
            self._exchange.metrics.engine_failed(error)
            failure = refusal_of(error)
        if not self._exchange.status:
            raise failure
        facts["response_status"] = "failed"
        if stream:
            told = bytes(self._exchange.answer_to(failure).body)
            last = (b"event: error\n" if self._passed.path == Endpoint.MESSAGES else b"") + DATA + told + b"\n\n"
            await send({"type": "http.response.body", "body": last, "more_body": False})
        return stream

    async def _stream(self, reply: PassedReply, send: Send) -> None:
        """Send events as they come. Raises EngineError."""
        await send({"type": "http.response.start", "status": 200, "headers": HEADERS})
        with Pulse(beat_of(send, lambda: KEEP_ALIVE), self._service.settings.keepalive_seconds) as pulse:
            async with aclosing(reply.pieces()) as pieces:
                async for piece in pieces:
                    await send({"type": "http.response.body", "body": piece, "more_body": True})
                    pulse.sent()
                    self._events += piece.count(DATA)
                    self._admitted.slot.served(self._prompt, self._events)
                    await self._admitted.work.go_on()
        await send({"type": "http.response.body", "body": b"", "more_body": False})
        await reply.end()

    async def _whole(self, reply: PassedReply, send: Send) -> None:
        """Send a whole answer, a long one as it comes. Raises EngineError."""
        self._admitted.slot.served(self._prompt, 0)
        held = bytearray()
        async with aclosing(reply.pieces()) as pieces:
            async for piece in pieces:
                held += piece
                if len(held) > WHOLE_BYTES:
                    if not self._exchange.status:
                        head = [(b"content-type", reply.content_type.encode())]
                        await send({"type": "http.response.start", "status": 200, "headers": head})
                    await send({"type": "http.response.body", "body": bytes(held), "more_body": True})
                    held.clear()
                    await self._admitted.work.go_on()
        if not self._exchange.status:
            if reply.content_type == "application/json":
                try:
                    _ANY.decode(held)
                except (msgspec.DecodeError, RecursionError) as error:
                    raise EngineBroke("the engine's server sent invalid JSON") from error
            head = [(b"content-type", reply.content_type.encode()), (b"content-length", b"%d" % len(held))]
            await send({"type": "http.response.start", "status": 200, "headers": head})
        await send({"type": "http.response.body", "body": bytes(held), "more_body": False})

    def _count(self, reply: PassedReply) -> None:
        """Count the tokens that the answer tells of."""
        self._usage = usage = reply.usage
        if usage is None:
            return
        self._admitted.slot.served(usage.input_tokens, usage.output_tokens)
        self._exchange.facts.update(msgspec.structs.asdict(usage))
        tokens = (usage.input_tokens, usage.cached_tokens, usage.output_tokens)
        self._exchange.metrics.took(self._passed.model, *tokens)
