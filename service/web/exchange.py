"""A request and its answer, as they are noted: whose it is, its id, its facts for the log, its count and its span.

One over HTTP has a slot while it is served (`admit`), and so has each response that a WebSocket asks for.
"""

import logging
import re
import sys
from collections.abc import Iterable, Mapping
from contextlib import AbstractAsyncContextManager, AsyncExitStack
from dataclasses import dataclass, field
from functools import partial
from os import urandom
from time import monotonic
from typing import Any, Self

import msgspec
from starlette.types import Message, Scope, Send

from service import logs, spans
from service.api.read import READERS
from service.api.replay import BLOCKS, CHAT_PARTS, PARTS, UNKNOWN, LeftOut
from service.api.tools.hosted import HOSTED
from service.engine.port import EngineError
from service.entrance import Entrance, Entry, Reservation
from service.errors import ApiError
from service.metrics.counters import Metrics
from service.pacing import Pacing, Work
from service.responses.make import NO_KEY, Claim, Maker
from service.responses.prepare import Prepared, Recall
from service.responses.refusals import refusal_of
from service.responses.service import Caller, Service
from service.settings.engines import DEMO
from service.spans import UNTRACED, Fact, Span, Tracer
from service.web.admission.slots import Admission, DisconnectHook, Slot
from service.web.dialect import OPENAI, Dialect
from service.web.errors import JsonResponse, envelope, is_anthropics
from service.web.http_protocol import WHEN_GONE
from store.keys import id_of

logger = logging.getLogger(__name__)

OPENAI_VERSION = b"2020-10-01"

NO_ENDPOINT = "none"
METHODS = ("GET", "POST", "DELETE", "HEAD", "OPTIONS", "PUT", "PATCH")
CREATE = "CREATE"
"""The method's name in metrics where a WebSocket asks for a response."""

COUNTED = (*METHODS, CREATE)

PLAIN_PATH = re.compile(r"[A-Za-z0-9_./-]{0,200}")

PARAM_START = re.compile(r"[a-z_]+(\[[0-9]+\])*")
"""The part of a param that a log may show: a field of the API and an index, but no name that the request made up."""

CLIENT_ID_CHARS = 512
LEFT_OUT = b"x-harmonium-tools-left-out"
"""Names the hosted tools of a request that the prompt leaves out, as nothing here could run them."""

ITEMS_LEFT_OUT = b"x-harmonium-items-left-out"
"""Names the kinds of items of a request that add nothing to the prompt: they hold no text for the model."""

LOGGED = READERS.keys() | PARTS.keys() | BLOCKS.keys() | CHAT_PARTS.keys() | HOSTED
"""The kinds that a log may name: any other name was made up by a request."""

ENGINE = b"x-harmonium-engine"
"""Says `demo` where no real model answers."""

MAX_STATE_CHARS = 512

_PARENT = re.compile(rb"(?!ff)[0-9a-f]{2}-(?!0{32})[0-9a-f]{32}-(?!0{16})[0-9a-f]{16}-[0-9a-f]{2}")
"""A version that is not ff, a trace and a parent that are not all zeros, and flags."""

_STATE = re.compile(rb"[\x20-\x7e]{1,%d}" % MAX_STATE_CHARS)

SESSION_HEADERS = (b"x-session-affinity", b"x-session-id")
"""The first that is there counts, before any other `x-…-session-id`: clients name one after themselves."""

MAX_SESSION_CHARS = 256

USER_HEADERS = (b"x-openwebui-user-id", b"x-librechat-user-id", b"x-user-id")
"""The headers in which front ends with one key name their users; the first that is there counts."""

_SESSION = re.compile(rb"[\x21-\x7e]{1,%d}" % MAX_SESSION_CHARS)

_FIRST = ("http.response.start", "websocket.http.response.start", "websocket.accept")
SWITCHING = 101
"""The status of a WebSocket that was accepted."""


@dataclass(eq=False)
class Exchange:
    """A request and its answer; routes add what belongs in the log line."""

    scope: Scope
    """The scope of the request, or of the WebSocket over which it came."""
    metrics: Metrics
    method: str
    tenant: str = ""
    endpoint: str = NO_ENDPOINT
    """The template of its path; `none` where there is none, or the request was refused before it was looked up."""
    request_id: str = field(default_factory=lambda: f"req_{urandom(16).hex()}")
    answer_headers: list[tuple[bytes, bytes]] = field(default_factory=list[tuple[bytes, bytes]])
    facts: dict[str, str | int | float | bool | None] = field(default_factory=dict[str, Any])
    status: int = 0
    is_open: bool = False
    span: Span = UNTRACED
    dialect: Dialect = OPENAI
    """The dialect in which it is answered, as its route says."""
    at: float = field(default_factory=monotonic)

    def __post_init__(self) -> None:
        self.headers: dict[bytes, bytes] = dict(self.scope["headers"])
        self.is_anthropics = is_anthropics(self.scope["path"], self.headers)
        if self.scope["type"] == "websocket":
            self.endpoint = self.scope["path"]  # nowhere else is one opened
        self.failure: Exception | None = None
        self._place: Admitted | None = None
        self.entry = Entry(self.tenant)
        self._left_out: dict[bytes, LeftOut] = {}

    @property
    def caller(self) -> Caller:
        """The caller of a response that it asks for. A span of ours comes between the client's and the engine's."""
        trace = self.span.headers or trace_headers(self.headers)
        return Caller(self.entry, trace, session_of(self.headers), first_named(self.headers, USER_HEADERS))

    async def reserve(
        self, entrance: Entrance, resources: AsyncExitStack, model: str, id: str, *, reads: int, writes: int
    ) -> Reservation | None:
        """A reservation for as long as `resources`; None without limits. Raises ApiError 429, StoreUnavailable."""
        within = entrance.reserving(self.entry, model, id, reads=reads, writes=writes)
        reservation = await resources.enter_async_context(within)
        if reservation is not None:
            self.answer_headers += reservation.headers
        return reservation

    def maker(
        self,
        service: Service,
        preparing: AbstractAsyncContextManager[None],
        *,
        claim: Claim = NO_KEY,
        recall: Recall | None = None,
    ) -> Maker:
        caller = self.caller
        if claim.digits:
            caller = msgspec.structs.replace(caller, response_id=id_of(claim.digits))
        reserve = partial(self.reserve, service.tenants.entrance)
        return Maker(
            service, caller, reserve, preparing, note=self._note_plan, since=self.at, recall=recall, claim=claim
        )

    def trace(self, tracer: Tracer) -> None:
        if tracer.on:
            self.span = tracer.request(self.method, trace_headers(self.headers))
            spans.current.set(self.span)

    def note_wait(self, seconds: float) -> None:
        self.facts["waited_ms"] = round(seconds * 1000, 1)

    def refusal(self, error: Exception) -> ApiError:
        """The refusal that it comes to. The log says why: not in the message's words, which may quote the request."""
        if isinstance(error, EngineError):
            self.metrics.engine_failed(error)
        refusal = refusal_of(error)
        self.dialect.word(refusal)
        self.facts["code"] = refusal.code
        if refusal.param and refusal.code != "unknown_parameter" and (known := PARAM_START.match(refusal.param)):
            self.facts["param"] = known[0]
        return refusal

    def answer_to(self, refusal: ApiError) -> JsonResponse:
        return envelope(refusal, self.request_id if self.is_anthropics else None)

    def _note_plan(self, made: Prepared) -> None:
        self.facts["response_id"] = made.plan.id
        self.left_out(made.left_out, made.items_left_out)
        if not made.real:
            self.answer_headers.append((ENGINE, DEMO.encode()))

    def left_out(self, tools: Iterable[str], items: Iterable[str]) -> None:
        """Say in the answer and in the log which hosted tools, and which kinds of items, the prompt leaves out."""
        for header, fact, kinds in ((LEFT_OUT, "tools_left_out", tools), (ITEMS_LEFT_OUT, "items_left_out", items)):
            names = self._left_out.setdefault(header, LeftOut())
            names.add_all(kinds)
            if all_names := ", ".join(names):
                self.answer_headers[:] = [each for each in self.answer_headers if each[0] != header]
                self.answer_headers.append((header, all_names.encode()))
                self.facts[fact] = ", ".join(dict.fromkeys(each if each in LOGGED else UNKNOWN for each in names))

    def answering(self, send: Send) -> Send:
        async def answer(message: Message) -> None:
            if message["type"] in _FIRST:
                self.status = message.get("status", SWITCHING)
                elapsed = round((monotonic() - self.at) * 1000)
                id = self.request_id.encode()
                message["headers"] = [
                    *message.get("headers", ()),
                    (b"x-request-id", id),
                    *([(b"request-id", id)] if self.is_anthropics else ()),
                    (b"openai-processing-ms", str(elapsed).encode()),
                    (b"openai-version", OPENAI_VERSION),
                    (b"x-content-type-options", b"nosniff"),
                    *self.answer_headers,
                ]
            await send(message)

        return answer

    async def take(self, place: "Admitted") -> "Admitted":
        self._place = await place.__aenter__()
        return place

    async def leave(self) -> None:
        place, self._place = self._place, None
        if place is not None:
            error = sys.exc_info()[1] or self.failure
            await place.__aexit__(type(error) if error else None, error, None)

    def end(self, level: int | None = logging.INFO, **also: int) -> None:
        """Log it at a level, or not at all, with what else there is to say; count it, and end its span. A response that
        failed is a warning, as its status may be 200.
        """
        seconds = monotonic() - self.at
        if level == logging.INFO and self.facts.get("response_status") == "failed":
            level = logging.WARNING
        if level is not None:
            logs.event(logger, level, "request", **self._fields(seconds), **also)
        method = self.method if self.method in COUNTED else "other"
        self.metrics.answered(self.endpoint, method, self.status, seconds)
        if self.span is not UNTRACED:
            self._end_span()

    def _fields(self, seconds: float) -> dict[str, Any]:
        """The fields of its log line. A path that may have more in it than names and ids is shown as its template."""
        scope = self.scope
        fields: dict[str, Any] = {
            "method": self.method,
            "path": scope["path"] if PLAIN_PATH.fullmatch(scope["path"]) else self.endpoint,
            "status": self.status,
            "ms": round(seconds * 1000, 1),
            "tenant": self.tenant or None,
            **self.facts,
        }
        client_id = self.headers.get(b"x-client-request-id", b"")[:CLIENT_ID_CHARS]
        if client_id:
            fields["client_request_id"] = client_id.decode("ascii", "replace")
        if self.status >= 400 and scope.get("client"):
            fields["client_address"] = scope["client"][0]
        return fields

    def _end_span(self) -> None:
        """End its span, which says how it was answered. Its path may hold anything, so only the template is told.
        Source: OpenTelemetry's conventions for HTTP.
        """
        span, method = self.span, self.method
        spans.current.set(UNTRACED)
        if not span.kept:
            return
        known = method in METHODS
        span.rename(f"{method} {self.endpoint}" if known or method == CREATE else f"HTTP {self.endpoint}")
        facts: dict[str, Fact] = {
            "http.request.method": method if known else "_OTHER",
            "http.route": self.endpoint,
            "http.response.status_code": self.status or None,
            "http.response.header.x-request-id": [self.request_id],
            "url.scheme": self.scope.get("scheme"),
        }
        span.note(facts)
        if client := self.facts.get("client"):
            span.fail(f"client_{client}", fault=False)
        elif self.status >= 400:
            span.fail(str(self.facts.get("code") or self.status), fault=self.status >= 500)
        span.end()


@dataclass(frozen=True, slots=True)
class Admitted:
    """A request that is served, until the end of a block: its slots, and its work among its tenant's."""

    exchange: Exchange
    slot: Slot
    work: Work
    resources: AsyncExitStack = field(default_factory=AsyncExitStack)
    """The resources of an answer that outlives its route's call. The answer's place is given up after them."""

    async def __aenter__(self) -> Self:
        self.exchange.metrics.requests_in_progress.inc()
        return self

    async def __aexit__(self, *failure: Any) -> None:
        try:
            await self.resources.__aexit__(*failure)
        finally:
            self.exchange.metrics.requests_in_progress.dec()
            self.work.close()
            self.slot.leave()

    def follow(self) -> None:
        """Only follow a background response from now on, which takes no slot of a request, and is little work."""
        self.slot.follow()
        self.work.close()


async def admit(exchange: Exchange, admission: Admission, pacing: Pacing) -> Admitted:
    """A request for a response, once it is its turn. Raises ApiError, ClientGone, as the admission does."""
    told: dict[str, DisconnectHook] = exchange.scope.get("extensions", {}).get(WHEN_GONE, {})
    slot = await admission.slot_in_line(exchange.tenant, exchange.note_wait, told.get("tell"))
    try:
        return Admitted(exchange, slot, await pacing.begin(exchange.tenant))
    except BaseException:
        slot.leave()
        raise


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
    named = (name for name in headers if name.startswith(b"x-") and name.endswith(b"-session-id"))
    return first_named(headers, (*SESSION_HEADERS, *named))


def first_named(headers: Mapping[bytes, bytes], names: Iterable[bytes]) -> str:
    """The first of these headers that can name somebody or something, else empty."""
    values = (headers.get(name, b"") for name in names)
    return next((value.decode() for value in values if _SESSION.fullmatch(value)), "")
