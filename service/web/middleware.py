"""The outermost layer: authentication, the request id, the headers of all answers, the log line and the counters.

Pure ASGI. It notes when a request came and wraps `send`, and leaves `receive` alone, so that a route sees at once that
its client disconnected. Every answer is sent through here, so each has the headers that SDKs read.
"""

import asyncio
import logging
import re
import secrets
import sys
from collections.abc import AsyncGenerator, Awaitable, Callable, Mapping
from contextlib import AbstractAsyncContextManager, AsyncExitStack, asynccontextmanager
from dataclasses import InitVar, dataclass, field
from functools import partial
from time import monotonic
from typing import Any, NamedTuple

from starlette.responses import Response
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from service import logs, spans
from service.api.passed import Endpoint
from service.engine.port import EngineError, EngineUnavailable
from service.errors import ApiError, ClientGone, stopping
from service.metrics.counters import Metrics
from service.pacing import Pacing, Work
from service.responses.plan import Plan
from service.responses.prepare import Prepared
from service.responses.refusals import refusal_of
from service.responses.service import Caller
from service.spans import UNTRACED, Fact, Span, Tracer
from service.tenants.audit import FailedLogins
from service.tenants.limits import Limiter, Reservation
from service.web.admission.slots import Admission, DisconnectHook, Slot
from service.web.auth import (
    Entrance,
    Entry,
    WrongKey,
    check_headers,
    check_scraper,
    refuse_foreign,
    refuse_foreign_page,
)
from service.web.body import watch
from service.web.dialect import DIALECTS, dialect_of
from service.web.errors import envelope
from service.web.http_protocol import BREAK_OFF, WHEN_GONE
from store.errors import StoreError

logger = logging.getLogger(__name__)

REFUSALS = (ApiError, StoreError, EngineError)
"""The errors that say why a request is refused; another one is a bug."""

OPENAI_VERSION = b"2020-10-01"
OPEN_PATHS = frozenset({"/", "/docs", "/openapi.json", "/health", "/ready", "/console", "/console/"})
"""Paths that need no key. Probes have none, and learn only whether the service works; the others describe the
service, or are the program that asks for a key.
"""

OPEN_FILES = "/console/static/"
"""The prefix of the paths of the console page's files, and of nothing else."""

STRANGERS_LOGGED = 10
"""The most requests a second that are logged though they were refused before their tenant was known."""

METRICS_PATH = "/metrics"
UPLOADS = re.compile(r"/v1/containers/[^/]+/files")
"""Where a form with a file may be sent."""

ASKING = frozenset(
    {*(f"{each.prefix}{path}" for each in DIALECTS for path in ("/responses", "/responses/compact")), *Endpoint}
)
"""Where a POST asks a model for something, or queues what does. It waits for a slot; all else takes one aside."""

NO_ENDPOINT = "none"
METHODS = ("GET", "POST", "DELETE", "HEAD", "OPTIONS", "PUT", "PATCH")
CREATE = "CREATE"
"""The method's name in metrics where a WebSocket asks for a response."""

COUNTED = (*METHODS, CREATE)

PLAIN_PATH = re.compile(r"[A-Za-z0-9_./-]{0,200}")
"""The paths that a log may show."""

PARAM_START = re.compile(r"[a-z_]+(\[[0-9]+\])*")
"""The part of a param that a log may show: a field of the API and an index, but no name that the request made up."""

CLIENT_ID_CHARS = 512
LEFT_OUT = b"x-harmonium-tools-left-out"
"""Names the hosted tools of a request that the prompt leaves out, as nothing here could run them."""

ITEMS_LEFT_OUT = b"x-harmonium-items-left-out"
"""Names the kinds of items of a request that add nothing to the prompt: they hold no text for the model."""

MAX_STATE_CHARS = 512

_PARENT = re.compile(rb"(?!ff)[0-9a-f]{2}-(?!0{32})[0-9a-f]{32}-(?!0{16})[0-9a-f]{16}-[0-9a-f]{2}")
"""A version that is not ff, a trace and a parent that are not all zeros, and flags."""

_STATE = re.compile(rb"[\x20-\x7e]{1,%d}" % MAX_STATE_CHARS)

SESSION_HEADERS = (b"x-session-affinity", b"x-session-id")
"""The first that is there counts."""

MAX_SESSION_CHARS = 256

_SESSION = re.compile(rb"[\x21-\x7e]{1,%d}" % MAX_SESSION_CHARS)


@dataclass(eq=False)
class Exchange:
    """A request and its answer; routes find it in the scope and add what belongs in the log line."""

    tenant: str
    request_id: str
    headers: dict[bytes, bytes]
    metrics: Metrics
    path: InitVar[str] = ""
    method: str = "GET"
    answer_headers: list[tuple[bytes, bytes]] = field(default_factory=list[tuple[bytes, bytes]])
    """Headers that the answer gets besides those that every one has."""
    facts: dict[str, str | int | float | bool | None] = field(default_factory=dict[str, Any])
    status: int = 0
    span: Span = UNTRACED
    at: float = field(default_factory=monotonic)

    def __post_init__(self, path: str) -> None:
        self.dialect = dialect_of(path)
        self.entry = Entry(self.tenant)
        """The caller of the request, once known."""

    @property
    def key(self) -> str:
        """The id of its key; empty where that is none of the registry's."""
        return "" if self.entry.key is None else self.entry.key.id

    @property
    def caller(self) -> Caller:
        """The caller of a response that it asks for. A span of ours comes between the client's and the engine's."""
        trace, session = self.span.headers or trace_headers(self.headers), session_of(self.headers)
        return Caller(self.tenant, trace, session, self.key, self.entry.project, self.entry.scopes)

    def reserved(self, limiter: Limiter, plan: Plan) -> AbstractAsyncContextManager[Reservation | None]:
        """A reservation as by `reserved_tokens`, for a planned response."""
        asked = plan.generation
        return self.reserved_tokens(
            limiter, asked.model, plan.id, reads=plan.input_tokens, writes=asked.sampling.max_tokens
        )

    @asynccontextmanager
    async def reserved_tokens(
        self, limiter: Limiter, model: str, id: str, *, reads: int, writes: int
    ) -> AsyncGenerator[Reservation | None]:
        """A reservation against the caller's limits for an answer, until the end of the block; None without limits.
        Raises ApiError 429, StoreUnavailable.
        """
        async with limiter.reserved(self.entry.allowance, model, id, reads=reads, writes=writes) as reservation:
            if reservation is not None:
                self.answer_headers += reservation.headers
            yield reservation

    def trace(self, tracer: Tracer) -> None:
        """Trace what is done for it from now on, in this task."""
        if tracer.on:
            self.span = tracer.request(self.method, trace_headers(self.headers))
            spans.current.set(self.span)

    def note_wait(self, seconds: float) -> None:
        """Say in the log how long it waited for a slot."""
        self.facts["waited_ms"] = round(seconds * 1000, 1)

    def refused(self, error: Exception) -> ApiError:
        """The refusal that it comes to. The log says why: not in the message's words, which may quote the request."""
        if isinstance(error, EngineError):
            self.metrics.engine_failed(error)
        refusal = refusal_of(error)
        self.facts["code"] = refusal.code
        if refusal.param and refusal.code != "unknown_parameter" and (known := PARAM_START.match(refusal.param)):
            self.facts["param"] = known[0]
        return refusal

    def planned(self, made: Prepared) -> None:
        """Note the plan of its response."""
        self.facts["response_id"] = made.plan.id
        self.left_out(made.left_out, made.items_left_out)

    def left_out(self, tools: tuple[str, ...], items: tuple[str, ...]) -> None:
        """Say in the answer and in the log which hosted tools, and items of which kinds, the prompt leaves out."""
        for header, fact, names in ((LEFT_OUT, "tools_left_out", tools), (ITEMS_LEFT_OUT, "items_left_out", items)):
            if names:
                known = ", ".join(dict.fromkeys(names))
                self.answer_headers.append((header, known.encode("ascii", "replace")))
                self.facts[fact] = known


@dataclass(frozen=True, slots=True)
class Admitted:
    """A request that is served: its slots, and its work among its tenant's."""

    exchange: Exchange
    slot: Slot
    work: Work
    resources: AsyncExitStack = field(default_factory=AsyncExitStack)
    """The resources of an answer that outlives its route's call. The answer's place is given up after them."""

    def follow(self) -> None:
        """Only follow a background response from now on, which takes no slot of a request, and is little work."""
        self.slot.follow()
        self.work.close()


class Visit(NamedTuple):
    """A WebSocket that is open: its slot, and a check of its caller's key, which may become invalid meanwhile."""

    slot: Slot
    identify: Callable[[], Awaitable[None]]
    """Raises ApiError."""


@dataclass(eq=False)
class Gate:
    """Wraps the application."""

    app: ASGIApp
    entrance: Entrance
    admission: Admission
    pacing: Pacing
    metrics: Metrics
    tracer: Tracer
    sockets: ASGIApp | None = None
    """Serves WebSockets."""
    failed: FailedLogins | None = None
    """Hears of keys that open nothing."""
    strangers: logs.Ration = field(default_factory=lambda: logs.Ration(STRANGERS_LOGGED))

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Let one request in, or refuse it."""
        if scope["type"] == "lifespan":
            await self.app(scope, receive, _briefly(send))
            return
        exchange = Exchange(
            "", new_request_id(), dict(scope["headers"]), self.metrics, scope["path"], scope.get("method", "GET")
        )
        scope["exchange"] = exchange
        token = logs.request_id.set(exchange.request_id)
        answer = _answering(exchange, send)
        try:
            await self._enter(exchange, scope, receive, answer)
        except ClientGone:
            exchange.facts["client"] = "gone"
            await Response(status_code=GONE)(scope, receive, answer)
        except asyncio.CancelledError:  # the server stops, and the time for that is over; the turn is stored
            exchange.facts["client"] = "cut off"
            if not exchange.status:
                await envelope(stopping())(scope, receive, answer)
            elif (known := scope.get("extensions", {}).get(BREAK_OFF)) is not None:
                known["now"]()
                await watch(receive, lambda: None)  # uvicorn would log an error if this returned before
        except Exception as error:
            if exchange.status or not isinstance(error, REFUSALS):
                logger.exception("request failed")
            if not exchange.status:
                await envelope(exchange.refused(error))(scope, receive, answer)
        finally:
            self._log(scope, exchange)
            _count(scope, exchange)
            _end_span(scope, exchange)
            logs.request_id.reset(token)

    async def _enter(self, exchange: Exchange, scope: Scope, receive: Receive, answer: Send) -> None:
        """Serve a request whose tenant may enter. Raises ApiError for any other."""
        check_headers(scope)
        if self.entrance.keys.open:
            refuse_foreign(exchange.method, exchange.headers, uploads=UPLOADS.fullmatch(scope["path"]) is not None)
        if is_open(scope["path"]):
            await self.app(scope, receive, answer)
        elif scope["path"] == METRICS_PATH:
            check_scraper(self.entrance.keys, exchange.headers)
            await self.app(scope, receive, answer)
        elif scope["type"] == "websocket" and self.sockets is not None:
            if self.entrance.keys.open:
                refuse_foreign_page(exchange.headers)
            await self._identify(exchange, scope, "POST")
            with self.metrics.sockets.track_inprogress(), self.admission.socket(exchange.tenant) as slot:
                scope["visit"] = Visit(slot, partial(self._identify, exchange, scope, "POST"))
                await self.sockets(scope, receive, answer)
        else:
            await self._identify(exchange, scope, exchange.method)
            exchange.trace(self.tracer)
            if exchange.method == "POST" and scope["path"] in ASKING:
                when_gone = scope.get("extensions", {}).get(WHEN_GONE, {}).get("tell", _nobody_says)
                async with admitted(exchange, self.admission, self.pacing, when_gone) as scope["admitted"]:
                    await self.app(scope, receive, answer)
                return
            work = await self.pacing.begin(exchange.tenant)
            in_progress = self.metrics.requests_in_progress.track_inprogress()
            with work, in_progress, self.admission.slot(exchange.tenant) as slot:
                scope["admitted"] = Admitted(exchange, slot, work)
                await self.app(scope, receive, answer)

    async def _identify(self, exchange: Exchange, scope: Scope, method: str) -> None:
        """Identify the caller, also later on, where its connection stays open. Raises ApiError."""
        try:
            exchange.entry = await self.entrance.entry(exchange.headers, method, scope["path"])
            exchange.tenant = exchange.entry.tenant
        except StoreError as error:
            raise refusal_of(error) from error
        except WrongKey:
            if self.failed is not None:
                self.failed.note(exchange.request_id, (scope.get("client") or ("",))[0])
            raise

    def _log(self, scope: Scope, exchange: Exchange) -> None:
        fields = _fields(scope, exchange)
        if is_open(scope["path"]) or scope["path"] == METRICS_PATH:
            logs.event(logger, logging.DEBUG, "request", **fields)
            return
        if not exchange.tenant:
            without = self.strangers.take()
            if without is None:
                return
            if without:
                fields["not_logged"] = without
        logs.event(logger, logging.INFO, "request", **fields)


def is_open(path: str) -> bool:
    """Whether a path needs no key."""
    return path in OPEN_PATHS or path.startswith(OPEN_FILES)


def _nobody_says(call: Callable[[], None] | None) -> None:
    """Nobody says when a client disconnects."""


@asynccontextmanager
async def admitted(
    exchange: Exchange, admission: Admission, pacing: Pacing, when_gone: DisconnectHook = _nobody_says
) -> AsyncGenerator[Admitted]:
    """A request for a response while it is served, which begins once it is its turn. Raises ApiError, ClientGone, as
    the admission does.
    """
    async with admission.slot_in_line(exchange.tenant, exchange.note_wait, when_gone) as slot:
        work = await pacing.begin(exchange.tenant)
        with work, exchange.metrics.requests_in_progress.track_inprogress():
            made = Admitted(exchange, slot, work)
            async with made.resources:
                yield made


def _briefly(send: Send) -> Send:
    """`send` without the traceback of an engine that doesn't start: the log has the reason."""

    async def brief(message: Message) -> None:
        known = EngineUnavailable | asyncio.CancelledError
        if message["type"] == "lifespan.startup.failed" and isinstance(sys.exc_info()[1], known):
            message["message"] = ""
        await send(message)

    return brief


_FIRST = ("http.response.start", "websocket.http.response.start", "websocket.accept")
SWITCHING = 101
"""The status of a WebSocket that was accepted."""

GONE = 499
"""The status in the log where the client disconnected first, as nginx has it."""


def new_request_id() -> str:
    """An id for a request."""
    return f"req_{secrets.token_hex(16)}"


def note_create(scope: Scope, exchange: Exchange) -> None:
    """Log and count a response that the WebSocket of `scope` asked for, as a request of its own."""
    logs.event(logger, logging.INFO, "request", **_fields(scope, exchange))
    _count(scope, exchange)
    _end_span(scope, exchange)


def _answering(exchange: Exchange, send: Send) -> Send:
    """`send` with our headers on the first message."""

    async def answer(message: Message) -> None:
        if message["type"] in _FIRST:
            exchange.status = message.get("status", SWITCHING)
            elapsed = round((monotonic() - exchange.at) * 1000)
            message["headers"] = [
                *message.get("headers", ()),
                (b"x-request-id", exchange.request_id.encode()),
                (b"openai-processing-ms", str(elapsed).encode()),
                (b"openai-version", OPENAI_VERSION),
                (b"x-content-type-options", b"nosniff"),
                *exchange.answer_headers,
            ]
        await send(message)

    return answer


def _fields(scope: Scope, exchange: Exchange) -> dict[str, Any]:
    """The fields of a request's log line."""
    fields: dict[str, Any] = {
        "method": exchange.method,
        "path": _path(scope),
        "status": exchange.status,
        "ms": round((monotonic() - exchange.at) * 1000, 1),
        "tenant": exchange.tenant or None,
        **exchange.facts,
    }
    client_id = exchange.headers.get(b"x-client-request-id", b"")[:CLIENT_ID_CHARS]
    if client_id:
        fields["client_request_id"] = client_id.decode("ascii", "replace")
    if exchange.status >= 400 and scope.get("client"):
        fields["client_address"] = scope["client"][0]
    return fields


def _path(scope: Scope) -> str:
    """The path, or where it may have more in it than names and ids, the template of its route."""
    return scope["path"] if PLAIN_PATH.fullmatch(scope["path"]) else _endpoint(scope)


def _count(scope: Scope, exchange: Exchange) -> None:
    method = exchange.method if exchange.method in COUNTED else "other"
    endpoint = _endpoint(scope)
    exchange.metrics.answered(endpoint, method, exchange.status, monotonic() - exchange.at)


def _end_span(scope: Scope, exchange: Exchange) -> None:
    """End the span of a request, which says how it was answered. Its path may hold anything, so only the
    template is told. Source: OpenTelemetry's conventions for HTTP.
    """
    span = exchange.span
    if span is UNTRACED:
        return
    spans.current.set(UNTRACED)
    if not span.kept:
        return
    endpoint, known = _endpoint(scope), exchange.method in METHODS
    span.rename(f"{exchange.method} {endpoint}" if known or exchange.method == CREATE else f"HTTP {endpoint}")
    facts: dict[str, Fact] = {
        "http.request.method": exchange.method if known else "_OTHER",
        "http.route": endpoint,
        "http.response.status_code": exchange.status or None,
        "http.response.header.x-request-id": [exchange.request_id],
        "url.scheme": scope.get("scheme"),
    }
    span.note(facts)
    if client := exchange.facts.get("client"):
        span.fail(f"client {client}".replace(" ", "_"), fault=False)
    elif exchange.status >= 400:
        code = exchange.facts.get("code") or exchange.status
        span.fail(str(code), fault=exchange.status >= 500)
    span.end()


def _endpoint(scope: Scope) -> str:
    """The template of the path; `none` where there is none, or the request was refused before it was looked up."""
    if scope["type"] == "websocket":
        return scope["path"]  # nowhere else is one opened
    return getattr(scope.get("route"), "path", NO_ENDPOINT)


def trace_headers(headers: Mapping[bytes, bytes]) -> tuple[tuple[str, str], ...]:
    """`traceparent`, and `tracestate` where there is one too, of a request with these lower-case headers. A malformed
    one is left out: it goes into somebody else's request. Source: https://www.w3.org/TR/trace-context/.
    """
    parent, state = headers.get(b"traceparent", b""), headers.get(b"tracestate", b"")
    if not _PARENT.fullmatch(parent):
        return ()
    passed = [("traceparent", parent.decode())]
    if _STATE.fullmatch(state):
        passed.append(("tracestate", state.decode()))
    return tuple(passed)


def session_of(headers: Mapping[bytes, bytes]) -> str:
    """The session that a request with these lower-case headers belongs to, empty where it doesn't say."""
    for name in SESSION_HEADERS:
        if _SESSION.fullmatch(session := headers.get(name, b"")):
            return session.decode()
    return ""
