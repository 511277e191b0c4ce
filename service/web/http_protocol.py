"""The HTTP connection: uvicorn's httptools protocol with bounds on what may come before a request is known.

httptools has none: it keeps an endless URL, header or trailer until memory is full (64 MiB of tiny headers
made 1.4 GiB of tuples), and waits for ever for a head that comes a byte a minute, or for a client that
reads nothing of its answer. uvicorn stops its keep-alive clock at any byte, and takes as many requests ahead of
their answers as fit into one read. Bodies are the application's to bound. What is left of one behind its answer is
dropped, as many clients send all before they read: one that closed at once would reset the connection, and the refusal
would be lost (RFC 9112, section 9.6). Never read or answer a request here.
A request that opens a WebSocket goes to the protocol that is configured for these (socket/protocol.py).
"""

import asyncio
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Any, cast
from weakref import WeakKeyDictionary

import httptools
from uvicorn.config import Config
from uvicorn.protocols.http.httptools_impl import STATUS_LINE, HttpToolsProtocol, RequestResponseCycle
from uvicorn.server import ServerState
from websockets.datastructures import Headers
from websockets.exceptions import InvalidHandshake
from websockets.http11 import Request
from websockets.server import ServerProtocol

from service.errors import ApiError, InvalidRequest
from service.shares import Share
from service.web.beginnings import BEGINNINGS, Beginnings
from service.web.errors import envelope

MAX_HEAD_BYTES = 64 * 1024
"""The most of URL and headers, or of trailers, in bytes. Common servers and proxies take 8 to 64 KiB."""

MAX_HEADERS = 256

MAX_PIPELINED = 4
"""The most requests that may wait on one connection for the answer to an earlier one. Hardly any client sends two."""

BREAK_OFF = "harmonium.break_off"
"""The extension of a request's scope that has `now`, a function that ends the answer without its end: it closes the
connection. The application may return once `receive` says `http.disconnect`; uvicorn would log an error before that."""

WHEN_GONE = "harmonium.when_gone"
"""The extension that has `tell`, a function that takes what is to be called when the client disconnects, or None. It
leaves the body alone. Behind what is read ahead of a large body a disconnect isn't seen before the body is read."""

BODY = "harmonium.body"
"""The extension that has `open`, a function that gives the AnswerBody of the request."""

WHOSE = "harmonium.whose"
"""The extension that the application sets: the tenant whose request it is."""

LINGER_BYTES = 64 * 1024 * 1024
"""The most of a body that is dropped behind its answer, where bodies may have no more than half of it."""

NO_HTTP_BYTES = 1024 * 1024
"""The most that is dropped behind the refusal of what isn't HTTP, or has no bounded head."""

HEAD_BEGINS = b"HTTP/1.1 "
BODIES = frozenset({b"content-length", b"transfer-encoding"})


@dataclass(frozen=True, kw_only=True, slots=True)
class ConnectionLimits:
    """The limits of one process and its clients; the server's configuration has them as `connection_limits`."""

    connections: int = 4096
    """The most at once. For one too many, that which waits for a request the longest is closed."""

    head_seconds: float = 30.0
    """How long a head may take, from the connection or from its first byte to its end."""

    send_seconds: float = 60.0
    """How long a client may leave what was sent unread."""

    linger_bytes: int = LINGER_BYTES
    """The most of a body that is dropped behind its answer."""

    linger_seconds: float = 30.0
    """How long a client may go on with a body behind an answer that ends the connection."""

    lingering: int = 512
    """The most connections on which such clients are waited for, of which tenants, and addresses without a key, have
    shares. Like one without a request, each makes room where there are too many."""


class Clock:
    """Calls `over` so many seconds after it was started, unless it is stopped before."""

    def __init__(self, seconds: float, over: Callable[[], None]) -> None:
        self._seconds, self._over = seconds, over
        self._handle: asyncio.TimerHandle | None = None

    @property
    def runs(self) -> bool:
        return self._handle is not None

    def start(self) -> None:
        self.stop()
        self._handle = asyncio.get_running_loop().call_later(self._seconds, self._over)

    def stop(self) -> None:
        if self._handle is not None:
            self._handle.cancel()
            self._handle = None


class _Transport:
    """A connection on which a head goes out with what comes right behind it, as each write is a call of the system, and
    that may linger where it is closed: nothing more is sent then, and what comes is dropped.
    """

    def __init__(self, transport: asyncio.Transport, linger: Callable[[], bool]) -> None:
        """`linger` says whether it is to linger, and sees to its end."""
        self.itself, self._head, self._linger = transport, b"", linger
        self.lingers = False

    def is_closing(self) -> bool:
        return self.lingers or self.itself.is_closing()

    def __getattr__(self, name: str) -> Any:
        return getattr(self.itself, name)

    def write(self, data: bytes) -> None:
        """Send this. A head waits for the bytes after it, but not beyond this turn of the loop."""
        if self._head:
            self._head, data = b"", self._head + data
        elif data.startswith(HEAD_BEGINS):
            self._head = data
            asyncio.get_running_loop().call_soon(self.flush)
            return
        self.itself.write(data)

    def flush(self) -> None:
        head, self._head = self._head, b""
        if head and not self.is_closing():
            self.itself.write(head)

    def close(self) -> None:
        """Close the connection once all is sent; one that lingers at once."""
        self.flush()
        if self.is_closing() or not self._linger():
            self.itself.close()
            return
        self.lingers = True
        if self.itself.can_write_eof():
            self.itself.write_eof()


class AnswerBody:
    """The body of an answer whose head was sent, without a length: each piece is written at once, and no task wakes."""

    __slots__ = ("_cycle",)

    def __init__(self, cycle: RequestResponseCycle) -> None:
        self._cycle = cycle

    def write(self, data: bytes | bytearray) -> bool:
        """Send a piece, unless the client is gone; False where `drained` is to be awaited before another one."""
        cycle = self._cycle
        if cycle.disconnected:
            return True
        cycle.transport.write(b"%x\r\n%b\r\n" % (len(data), data))
        return not cycle.flow.write_paused

    async def drained(self) -> None:
        """Return once the client has read enough, or is gone."""
        if self._cycle.flow.write_paused and not self._cycle.disconnected:
            await self._cycle.flow.drain()


_waiting: WeakKeyDictionary[ServerState, "dict[BoundedHttpProtocol, None]"] = WeakKeyDictionary()
"""The connections of each server without a request under way, the one that waits the longest first."""

_lingering: WeakKeyDictionary[ServerState, Share] = WeakKeyDictionary()


class BoundedHttpProtocol(HttpToolsProtocol):
    """One connection: its heads are bounded in bytes, in number of headers and in time, and so is what isn't read.

    A client that opens connections and sends nothing can't keep others out: the oldest of those makes room. No protocol
    is changed but to a WebSocket: a server may ignore a wish to upgrade (RFC 9110, section 7.8), and the request is
    served as if it had none.
    """

    parser: httptools.HttpRequestParser
    transport: Any

    def __init__(
        self,
        config: Config,
        server_state: ServerState,
        app_state: dict[str, Any],
        _loop: asyncio.AbstractEventLoop | None = None,
    ) -> None:
        super().__init__(config, server_state, app_state, _loop)
        self._limits: ConnectionLimits = getattr(config, "connection_limits", ConnectionLimits())
        self._socket_paths: frozenset[str] = getattr(config, "socket_paths", frozenset())
        self._waiting = _waiting.setdefault(server_state, {})
        self._beginnings: Beginnings = app_state.get(BEGINNINGS) or Beginnings()
        self._in_head = True
        self._head_bytes = self._head_count = 0
        self._unparsed_bytes = 0
        """How many have come since the parser told of something."""
        self._head_clock = Clock(self._limits.head_seconds, self._head_late)
        self._unread_clock = Clock(self._limits.send_seconds, lambda: self.transport.abort())
        self._serving: RequestResponseCycle | None = None
        """The request that is being served, or was served last; `cycle` is the one that was read last."""
        self._linger_clock = Clock(self._limits.linger_seconds, lambda: self.transport.close())
        self._lingering = _lingering.setdefault(server_state, Share(self._limits.lingering, several=lambda: True))
        self._lingers_for: str | None = None
        """The tenant, or the address, of whose places among those that linger it has one."""
        self._patient = True
        self._left = 0
        """How much more may be dropped."""
        self._refusal: ApiError | None = None
        """The refusal that is sent behind the answers that are still to be sent."""
        self._when_gone: Callable[[], None] | None = None

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        """Accept the connection; one that never sends a request is closed. One too many takes another's place."""
        super().connection_made(cast(asyncio.Transport, _Transport(transport, self._linger)))
        transport.set_write_buffer_limits(high=0)  # whatever is unread has `send_seconds`, also behind a close
        if len(self.connections) > self._limits.connections:
            if not self._waiting:
                self.transport.close()
                return
            oldest = next(iter(self._waiting))
            oldest.transport.abort()
            oldest._leave()
        self._waiting[self] = None
        self._head_clock.start()

    def connection_lost(self, exc: Exception | None) -> None:
        """Forget the connection, and tell the request that is being served, whichever was read last."""
        self._leave()
        self._tell_gone()
        self.pipeline.clear()
        for clock in (self._head_clock, self._unread_clock, self._linger_clock):
            clock.stop()
        if self._lingers_for is not None:
            self._lingering.give_back(self._lingers_for, 1)
        super().connection_lost(exc)

    def _tell_gone(self) -> None:
        if self._serving is not None and self._busy:
            self._serving.disconnected = True
            self._serving.message_event.set()
        call, self._when_gone = self._when_gone, None
        if call is not None:
            call()

    def shutdown(self) -> None:
        """The server stops, and waits for no client that still sends a body."""
        self._patient = False
        self._beginnings.hurry()
        if self.transport.lingers:
            self.transport.close()
        else:
            super().shutdown()

    def timeout_keep_alive_handler(self) -> None:
        """The time for another request is over, and that for the rest of a body."""
        self._patient = False
        super().timeout_keep_alive_handler()

    def _linger(self) -> bool:
        """Have the connection linger, which is to be closed, where its client is still to send, and there is room."""
        cycle = self._serving
        unread = self._refusal is not None or (cycle is not None and cycle.response_complete and cycle.more_body)
        if not self._patient or not unread:
            return False
        whose = self._whose
        if not self._lingering.fits(whose):
            return False
        self._lingering.take(whose, 1)
        self._lingers_for = whose
        self._left = self._limits.linger_bytes if self._refusal is None else NO_HTTP_BYTES
        self._linger_clock.start()
        self._waiting[self] = None
        self._head_clock.stop()
        self._unset_keepalive_if_required()
        if self._refusal is not None:
            self._tell_gone()
        if cycle is not None:
            cycle.body.clear()
        self.flow.resume_reading()
        return True

    def pause_writing(self) -> None:
        """The client lags. If it reads nothing for `send_seconds`, the connection is cut, with all that waits here."""
        super().pause_writing()
        self._unread_clock.start()

    def resume_writing(self) -> None:
        self._unread_clock.stop()
        super().resume_writing()

    def tell_when_gone(self, call: Callable[[], None] | None) -> None:
        """Have this called when the client of the request that is being served disconnects; None takes that back."""
        self._when_gone = call
        if call is not None and self._serving is not None and self._serving.disconnected:
            call()

    def open_body(self) -> AnswerBody:
        assert self._serving is not None
        return AnswerBody(self._serving)

    @property
    def _whose(self) -> str:
        """The tenant of the request that was served last, or the address where none is known."""
        scope = {} if self._serving is None else cast(dict[str, Any], self._serving.scope)
        extensions: dict[str, str] = scope.get("extensions", {})
        return extensions.get(WHOSE) or f"\0{self.client[0] if self.client else ''}"  # no tenant is called so

    def data_received(self, data: bytes) -> None:
        """Parse `data`, now or in a later turn of the loop if too many requests begin in this one."""
        if self not in self._waiting or self.transport.is_closing() or self._beginnings.may(whose := self._whose):
            self._parse(data)
            return
        self.flow.pause_reading()
        self._unset_keepalive_if_required()
        self._beginnings.leave(whose, partial(self._begin, data))

    def _begin(self, data: bytes) -> None:
        if not self.transport.is_closing():
            self.flow.resume_reading()
            self._parse(data)

    def _parse(self, data: bytes) -> None:
        """Parse `data`; refuse when one URL, header or trailer is too long while it is still inside the parser."""
        if self.transport.lingers:
            self._left -= len(data)
            if self._left < 0:
                self.transport.close()
            return
        if self._refusal is not None:  # nothing of what comes behind it is read
            return
        self._unparsed_bytes += len(data)
        try:
            self._feed(data)
            if self._unparsed_bytes > MAX_HEAD_BYTES and not self.transport.is_closing():
                raise _too_large()
            if self._in_head and not self._head_clock.runs:  # a head that came as a whole needs no clock
                self._head_clock.start()
        except ApiError as refusal:
            self._refuse(refusal)

    def on_message_begin(self) -> None:
        """A request begins."""
        if len(self.pipeline) >= MAX_PIPELINED:
            raise InvalidRequest(
                f"More than {MAX_PIPELINED} requests wait on this connection. Wait for their answers first."
            )
        self._unset_keepalive_if_required()
        super().on_message_begin()
        self.scope["extensions"] = {
            BREAK_OFF: {"now": self.transport.close},
            WHEN_GONE: {"tell": self.tell_when_gone},
            BODY: {"open": self.open_body},
        }
        self._in_head = True
        self._unparsed_bytes = self._head_bytes = self._head_count = 0

    def on_url(self, url: bytes) -> None:
        self._count(len(url))
        super().on_url(url)

    def on_header(self, name: bytes, value: bytes) -> None:
        """A header, or after the body a trailer, which is dropped."""
        self._head_count += 1
        self._count(len(name) + len(value))
        if self._in_head:
            super().on_header(name, value)

    def on_headers_complete(self) -> None:
        """The head is complete."""
        self._unparsed_bytes = 0
        if self.parser.should_upgrade():  # the parser stops behind the head, and `_feed` goes on
            return
        self._in_head = False
        self._head_clock.stop()
        self._leave()
        self._unset_keepalive_if_required()
        self._left = self._limits.linger_bytes
        super().on_headers_complete()

    def on_body(self, body: bytes) -> None:
        """A piece of the body; what comes behind the answer is dropped."""
        self._unparsed_bytes = 0
        super().on_body(body)
        if self.cycle.response_complete:
            self._left -= len(body)
            if self._left < 0:
                self._patient = False
                self.transport.close()

    def on_message_complete(self) -> None:
        if not self.parser.should_upgrade():
            super().on_message_complete()

    def on_response_complete(self) -> None:
        """The answer is out: the next request is waited for, unless it is there."""
        super().on_response_complete()
        if self._busy or self.transport.is_closing():
            return
        if self._refusal is not None:
            self._refuse(self._refusal)
        else:
            self._waiting[self] = None

    def _refuse(self, refusal: ApiError) -> None:
        """Refuse what can't be parsed, behind the answers to the requests before it."""
        broken = self._serving if self._busy else None
        if broken is not None and (self.cycle is not broken or not broken.more_body):
            self._refusal = refusal
            self.flow.pause_reading()
            return
        if broken is None or not broken.response_started:
            body = bytes(envelope(refusal).body)
            head = b"content-type: application/json\r\nconnection: close\r\ncontent-length: %d\r\n\r\n" % len(body)
            self.transport.write(STATUS_LINE[refusal.status] + head + body)
            self._refusal = refusal
        self.transport.close()

    def _start_asgi_task(self, cycle: RequestResponseCycle, app: Any) -> None:
        self._serving = cycle
        super()._start_asgi_task(cycle, app)

    @property
    def _busy(self) -> bool:
        return self._serving is not None and not self._serving.response_complete

    def _feed(self, data: bytes) -> None:
        """Parse `data`. Of a request that would change the protocol the head is parsed again, without that wish. Raises
        ApiError.

        httptools takes what follows such a head for something else than HTTP, even a body that the head announces, and
        reads nothing at all behind one that closes the connection: the head begins a parser of its own.
        """
        try:
            self.parser.feed_data(data)
        except httptools.HttpParserUpgrade as stopped:
            behind = data[stopped.args[0] :]
            if self.parser.get_method() == b"CONNECT":
                raise _not_http() from None
            if self._opens_socket():
                self._open_socket(behind)
            else:
                head = self._plain_head()
                self.parser = httptools.HttpRequestParser(self)
                self.parser.set_dangerous_leniencies(lenient_data_after_close=True)
                self._feed(head + behind)
        except httptools.HttpParserError as error:
            raise error.__context__ if isinstance(error.__context__, ApiError) else _not_http() from None

    def _opens_socket(self) -> bool:
        """Whether the head that was read is right for opening a WebSocket, and nothing else is under way here."""
        if (
            self.ws_protocol_class is None
            or self._busy
            or self.parser.get_method() != b"GET"
            or self.parser.get_http_version() != "1.1"
            or httptools.parse_url(self.url).path.decode("latin-1") not in self._socket_paths
            or BODIES.intersection(name for name, _ in self.headers)
        ):
            return False
        headers = Headers((name.decode("latin-1"), value.decode("latin-1")) for name, value in self.headers)
        try:
            ServerProtocol().process_request(Request("/", headers))
        except InvalidHandshake:
            return False
        return True

    def _open_socket(self, behind: bytes) -> None:
        self._leave()
        self._in_head = False
        self._head_clock.stop()
        self._unset_keepalive_if_required()
        self.connections.discard(self)
        self.transport.flush()
        url = httptools.parse_url(self.url)
        head = {"path": url.path.decode(), "raw_path": url.path, "query_string": url.query or b""}
        protocol: Any = self.ws_protocol_class(self.config, self.server_state, self.app_state)  # type: ignore[misc]
        protocol.begin(self.transport.itself, {**head, "headers": self.headers}, behind)

    def _plain_head(self) -> bytes:
        """The head that was read, without a wish for another protocol."""
        lines = [b"%s %s HTTP/%s" % (self.parser.get_method(), self.url, self.parser.get_http_version().encode())]
        lines += [name + b": " + value for name, value in self.headers if name not in (b"connection", b"upgrade")]
        if not self.parser.should_keep_alive():
            lines.append(b"connection: close")
        return b"\r\n".join([*lines, b"", b""])

    def _leave(self) -> None:
        self._waiting.pop(self, None)

    def _count(self, size: int) -> None:
        self._head_bytes += size
        if self._head_bytes > MAX_HEAD_BYTES or self._head_count > MAX_HEADERS:
            raise _too_large()

    def _head_late(self) -> None:
        """A head took too long. While requests wait nothing is read: then it has its time from the answer on."""
        if self._busy:
            self._head_clock.start()
        else:
            self.transport.close()


def _too_large() -> ApiError:
    return ApiError(431, f"The request's URL and headers pass {MAX_HEAD_BYTES} bytes or {MAX_HEADERS} headers.")


def _not_http() -> ApiError:
    return InvalidRequest("This is not a valid HTTP request.")
