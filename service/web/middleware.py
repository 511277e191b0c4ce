"""The outermost layer: who may enter, under which request id, with which headers, what is logged and counted of it.

Pure ASGI. It notes when a request came and wraps `send`, and leaves `receive` alone, so that a route sees at once that
its client disconnected. Every answer is sent through here, so each has the headers that SDKs read.
"""

import asyncio
import logging
import re
import secrets
import sys
from collections.abc import Callable
from time import monotonic
from typing import Any

from starlette.types import ASGIApp, Message, Receive, Scope, Send

from service import logs
from service.engine.port import EngineUnavailable
from service.errors import ApiError, fault, unavailable
from service.metrics.counters import Metrics
from service.pacing import Pacing, Work
from service.settings.keys import Keys
from service.web.admission import Admission, Slot, SocketSlot
from service.web.auth import check_headers, check_scraper, refuse_foreign, refuse_foreign_page, tenant_of
from service.web.body import watch
from service.web.dialect import DIALECTS, dialect_of
from service.web.errors import envelope
from service.web.http_protocol import BREAK_OFF

logger = logging.getLogger(__name__)

OPENAI_VERSION = b"2020-10-01"
OPEN_PATHS = frozenset({"/", "/docs", "/openapi.json", "/health", "/ready"})
"""What needs no key: probes have none, and learn only whether the service works; the others say what this is."""

STRANGERS_LOGGED = 10
"""How many requests a second are logged that were refused before it was known whose they are."""

METRICS_PATH = "/metrics"
UPLOADS = re.compile(r"/v1/containers/[^/]+/files")
"""Where a form with a file may be sent."""

NO_ENDPOINT = "none"
METHODS = ("GET", "POST", "DELETE", "HEAD", "OPTIONS", "PUT", "PATCH")
CREATE = "CREATE"
"""What stands for a method where a WebSocket asks for a response."""

COUNTED = (*METHODS, CREATE)

PLAIN_PATH = re.compile(r"[A-Za-z0-9_./-]{0,200}")
"""What a log may have of a path."""

PARAM_START = re.compile(r"[a-z_]+(\[[0-9]+\])*")
"""What a log may have of a param: a field of the API and a place in it, but no name that the request made up."""

CLIENT_ID_CHARS = 512
LEFT_OUT = b"x-harmonium-tools-left-out"
"""Names the hosted tools of a request that the prompt leaves out, as nothing here could run them."""

ITEMS_LEFT_OUT = b"x-harmonium-items-left-out"
"""Names the kinds of items of a request that add nothing to the prompt: they hold no text for the model."""


class Exchange:
    """A request and its answer; routes find it in the scope and add what belongs in the log line."""

    slot: Slot
    work: Work
    """Both set once the gate has let it in, or where it is a WebSocket the next one."""
    socket: SocketSlot

    def __init__(
        self,
        tenant: str,
        request_id: str,
        headers: dict[bytes, bytes],
        metrics: Metrics,
        path: str = "",
        method: str = "GET",
    ) -> None:
        self.at = monotonic()
        self.method = method
        self.metrics = metrics
        self.tenant = tenant
        self.dialect = dialect_of(path)
        self.request_id = request_id
        self.headers = headers
        self.answer_headers: list[tuple[bytes, bytes]] = []
        """Headers that the answer gets besides those that every one has."""
        self.facts: dict[str, str | int | float | bool | None] = {}
        self.status = 0

    def follow(self) -> None:
        """Only follow a background response from now on, which takes no slot of a request, and is little work."""
        self.slot.follow()
        self.work.end()

    def refused(self, error: ApiError) -> None:
        """Say in the log why it was refused: not in the message's words, which may quote the request."""
        self.facts["code"] = error.code
        if error.param and error.code != "unknown_parameter" and (known := PARAM_START.match(error.param)):
            self.facts["param"] = known[0]

    def left_out(self, tools: tuple[str, ...], items: tuple[str, ...]) -> None:
        """Say in the answer and in the log which hosted tools, and items of which kinds, the prompt leaves out."""
        for header, fact, names in ((LEFT_OUT, "tools_left_out", tools), (ITEMS_LEFT_OUT, "items_left_out", items)):
            if names:
                known = ", ".join(dict.fromkeys(names))
                self.answer_headers.append((header, known.encode("ascii", "replace")))
                self.facts[fact] = known


class Ration:
    """So many a second, and how many went without: whoever has no key fills no log."""

    def __init__(self, a_second: int, now: Callable[[], float] = monotonic) -> None:
        self._a_second = a_second
        self._now = now
        self._second = 0
        self._given = self._without = 0

    def take(self) -> int | None:
        """How many went without since the last one that didn't; None where this one does."""
        second = int(self._now())
        if second != self._second:
            self._second, self._given = second, 0
        if self._given >= self._a_second:
            self._without += 1
            return None
        self._given += 1
        without, self._without = self._without, 0
        return without


class Gate:
    """Wraps the application."""

    def __init__(
        self,
        app: ASGIApp,
        keys: Keys,
        admission: Admission,
        pacing: Pacing,
        metrics: Metrics,
        sockets: ASGIApp | None = None,
    ) -> None:
        """`keys` say who may enter. `sockets` serves WebSockets."""
        self._app = app
        self._sockets = sockets
        self._admission = admission
        self._pacing = pacing
        self._keys = keys
        self._metrics = metrics
        self._strangers = Ration(STRANGERS_LOGGED)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Let one request in, or refuse it."""
        if scope["type"] == "lifespan":
            await self._app(scope, receive, _briefly(send))
            return
        exchange = Exchange(
            "", new_request_id(), dict(scope["headers"]), self._metrics, scope["path"], scope.get("method", "GET")
        )
        scope["exchange"] = exchange
        token = logs.request_id.set(exchange.request_id)
        answer = _answering(exchange, send)
        try:
            await self._enter(exchange, scope, receive, answer)
        except ApiError as error:
            exchange.refused(error)
            await envelope(error)(scope, receive, answer)
        except asyncio.CancelledError:  # the server stops, and the time for that is over; the turn is stored
            exchange.facts["client"] = "cut off"
            if not exchange.status:
                await envelope(unavailable("The service is stopping. Try again in a moment."))(scope, receive, answer)
            elif (known := scope.get("extensions", {}).get(BREAK_OFF)) is not None:
                known["now"]()
                await watch(receive, lambda: None)  # uvicorn would log an error if this returned before
        except Exception:
            logger.exception("request failed")
            if not exchange.status:
                await envelope(fault())(scope, receive, answer)
        finally:
            self._log(scope, exchange)
            _count(scope, exchange)
            logs.request_id.reset(token)

    async def _enter(self, exchange: Exchange, scope: Scope, receive: Receive, answer: Send) -> None:
        """Serve a request whose tenant may enter. Raises ApiError for any other."""
        check_headers(scope)
        if self._keys.open:
            refuse_foreign(exchange.method, exchange.headers, uploads=UPLOADS.fullmatch(scope["path"]) is not None)
        if scope["path"] in OPEN_PATHS:
            await self._app(scope, receive, answer)
        elif scope["path"] == METRICS_PATH:
            check_scraper(self._keys, exchange.headers)
            await self._app(scope, receive, answer)
        elif scope["type"] == "websocket" and self._sockets is not None:
            if self._keys.open:
                refuse_foreign_page(exchange.headers)
            exchange.tenant = tenant_of(self._keys, exchange.headers)
            with (
                self._metrics.sockets.track_inprogress(),
                self._admission.socket(exchange.tenant) as exchange.socket,
            ):
                await self._sockets(scope, receive, answer)
        else:
            exchange.tenant = tenant_of(self._keys, exchange.headers)
            exchange.work = await self._pacing.begin(exchange.tenant)
            with (
                exchange.work,
                self._metrics.requests_in_progress.track_inprogress(),
                self._admission.slot(exchange.tenant) as exchange.slot,
            ):
                await self._app(scope, receive, answer)

    def _log(self, scope: Scope, exchange: Exchange) -> None:
        fields = _fields(scope, exchange)
        if scope["path"] in OPEN_PATHS or scope["path"] == METRICS_PATH:
            logs.event(logger, logging.DEBUG, "request", **fields)
            return
        if not exchange.tenant:
            without = self._strangers.take()
            if without is None:
                return
            if without:
                fields["not_logged"] = without
        logs.event(logger, logging.INFO, "request", **fields)


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


def new_request_id() -> str:
    """An id for a request."""
    return f"req_{secrets.token_hex(16)}"


def note_create(scope: Scope, exchange: Exchange) -> None:
    """Log and count a response that the WebSocket of `scope` asked for, as a request of its own."""
    logs.event(logger, logging.INFO, "request", **_fields(scope, exchange))
    _count(scope, exchange)


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
                *exchange.answer_headers,
            ]
        await send(message)

    return answer


def _fields(scope: Scope, exchange: Exchange) -> dict[str, Any]:
    """What the log says of a request."""
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
    exchange.metrics.requests.labels(endpoint, method, str(exchange.status)).inc()
    exchange.metrics.request_seconds.labels(endpoint, method).observe(monotonic() - exchange.at)


def _endpoint(scope: Scope) -> str:
    """The template of the path; `none` where there is none, or where the request was refused before it was looked up.

    Depending on FastAPI's version the template lacks the prefix under which its router was included.
    """
    if scope["type"] == "websocket":
        return scope["path"]  # nowhere else is one opened
    template = getattr(scope.get("route"), "path", NO_ENDPOINT)
    for dialect in DIALECTS:
        if scope["path"].startswith(f"{dialect.prefix}/") and template != NO_ENDPOINT:
            return dialect.prefix + template.removeprefix(dialect.prefix)
    return template
