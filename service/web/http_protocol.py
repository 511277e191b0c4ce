"""The HTTP connection: uvicorn's httptools protocol with bounds on what may come before a request is known.

httptools has none: it keeps an endless URL, header or trailer until memory is full (64 MiB of tiny headers
made 1.4 GiB of tuples), and waits for ever for a head that comes a byte a minute, or for a client that
reads nothing of its answer. uvicorn stops its keep-alive clock at any byte, and takes as many requests ahead of
their answers as fit into one read. Bodies are the application's to bound; never read or answer a request here.
A request that opens a WebSocket goes to the protocol that is configured for these (socket/protocol.py).
"""

import asyncio
import binascii
import json
from base64 import b64decode
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, cast
from weakref import WeakKeyDictionary

import httptools
from uvicorn.config import Config
from uvicorn.protocols.http.httptools_impl import STATUS_LINE, HttpToolsProtocol, RequestResponseCycle
from uvicorn.server import ServerState

from service.settings.settings import MAX_CONNECTIONS
from service.web.dialect import SOCKET_PATHS

MAX_HEAD_BYTES = 64 * 1024
"""The most of URL and headers, or of trailers, in bytes. Common servers and proxies take 8 to 64 KiB."""

MAX_HEADERS = 256
"""The most headers and trailers of one request."""

MAX_PIPELINED = 4
"""The most requests that may wait on one connection for the answer to an earlier one. Hardly any client sends two."""

BREAK_OFF = "harmonium.break_off"
"""The extension of a request's scope that has `now`, a function that ends the answer without its end."""


WHEN_GONE = "harmonium.when_gone"
"""The extension that has `tell`, a function that takes what is to be called when the client disconnects, or None. It
leaves the body alone. Behind what is read ahead of a large body a disconnect isn't seen before the body is read."""

SOCKET_VERSION = b"13"
"""The version of WebSockets that is served (RFC 6455, section 4.1)."""

SOCKET_KEY_BYTES = 16
HEAD_BEGINS = b"HTTP/1.1 "
BODIES = frozenset({b"content-length", b"transfer-encoding"})


@dataclass(frozen=True, slots=True)
class Head:
    """The head of a request that opens a WebSocket."""

    path: str
    query: bytes
    headers: list[tuple[bytes, bytes]]
    key: bytes

    def handshake(self) -> bytes:
        """What a WebSocket's protocol needs of it: the other headers are the application's."""
        return (
            b"GET / HTTP/1.1\r\nHost: localhost\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n"
            b"Sec-WebSocket-Key: %b\r\nSec-WebSocket-Version: %b\r\n\r\n" % (self.key, SOCKET_VERSION)
        )


@dataclass(frozen=True, kw_only=True, slots=True)
class ConnectionLimits:
    """What one process and its clients may take; the server's configuration has them as `connection_limits`."""

    connections: int = MAX_CONNECTIONS
    """The most at once. For one too many, that which waits for a request the longest is closed."""

    head_seconds: float = 30.0
    """How long a head may take, from the connection or from its first byte to its end."""

    send_seconds: float = 60.0
    """How long a client may leave what was sent unread."""

    drain_bytes: int = 64 << 20
    """How much of a body is read and dropped behind the answer that refuses it. Were the connection closed at once, the
    kernel would reset it, and the answer be lost (RFC 9112, section 9.6)."""

    drain_seconds: float = 30.0
    """How long that may take, with no pause longer than an idle connection is kept."""


class _Transport:
    """A connection as the answer to one request sees it: closing it is its protocol's affair, and a head goes out with
    what comes right behind it, as each write is a call of the system.
    """

    __slots__ = ("_head", "_loop", "_transport", "close", "is_closing")

    def __init__(
        self, transport: asyncio.Transport, close: Callable[[], None], loop: asyncio.AbstractEventLoop
    ) -> None:
        self._transport, self._loop, self._head = transport, loop, b""
        self.is_closing = transport.is_closing
        self.close = close

    def write(self, data: bytes) -> None:
        """Send this. What looks like a head waits for what follows, and not beyond this turn of the loop."""
        if self._head:
            self._head, data = b"", self._head + data
        elif data.startswith(HEAD_BEGINS):
            self._head = data
            self._loop.call_soon(self.flush)
            return
        self._transport.write(data)

    def flush(self) -> None:
        """Send the head that waits, if one does."""
        head, self._head = self._head, b""
        if head and not self.is_closing():
            self._transport.write(head)


class HeadTooLarge(Exception):
    """A head passed its bounds. Raised inside the parser, which stops there."""


class TooManyPipelined(Exception):
    """A connection sent too many requests ahead of their answers. Raised inside the parser, which stops there."""


_waiting: WeakKeyDictionary[ServerState, "dict[BoundedHttpProtocol, None]"] = WeakKeyDictionary()
"""Of each server the connections without a request under way, the one that waits the longest first."""


class BoundedHttpProtocol(HttpToolsProtocol):
    """One connection: its heads are bounded in bytes, in number of headers and in time, and so is what isn't read.

    Whoever opens connections and sends nothing can't keep others out: the oldest of those makes room. No protocol is
    changed but to a WebSocket: a server may ignore a wish to upgrade (RFC 9110, section 7.8), and the request is served
    as if it had none.
    """

    parser: httptools.HttpRequestParser

    def __init__(
        self,
        config: Config,
        server_state: ServerState,
        app_state: dict[str, Any],
        _loop: asyncio.AbstractEventLoop | None = None,
    ) -> None:
        super().__init__(config, server_state, app_state, _loop)
        self._in_head = True
        self._head_bytes = 0
        self._head_count = 0
        self._too_large = False
        self._progressed = False
        self._bytes_without_progress = 0
        self._head_clock: asyncio.TimerHandle | None = None
        self._limits: ConnectionLimits = getattr(config, "connection_limits", ConnectionLimits())
        self._send_clock: asyncio.TimerHandle | None = None
        self._end_clock: asyncio.TimerHandle | None = None
        self._waiting = _waiting.setdefault(server_state, {})
        self._serving: RequestResponseCycle | None = None
        """The request that is being served, or was served last; `cycle` is the one that was read last."""
        self._head_is_late = False
        self._refusal: bytes | None = None
        """What is sent behind the answers that are still to be sent."""
        self._when_gone: Callable[[], None] | None = None
        self._drain_left: int | None = None
        """How much more is dropped of a body whose request is answered; None where there is no such body."""
        self._drain_clock: asyncio.TimerHandle | None = None
        self._leaves = False
        """Whether the connection is closed once that body has come."""

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        """Accept the connection; one that never sends a request is closed. One too many takes another's place."""
        super().connection_made(transport)
        answering = _Transport(transport, self._close_answered, self.loop)
        self._answering, self._flush = cast(asyncio.Transport, answering), answering.flush
        if len(self.connections) > self._limits.connections:
            if not self._waiting:
                self.transport.close()
                return
            oldest = next(iter(self._waiting))
            oldest.transport.abort()
            oldest._leave()
        self._waiting[self] = None
        self._start_head_clock()

    def connection_lost(self, exc: Exception | None) -> None:
        """Forget the connection, and tell the request that is being served, whichever was read last."""
        self._leave()
        if self._serving is not None and self._busy:
            self._serving.disconnected = True
            self._serving.message_event.set()
        if self._when_gone is not None:
            self._when_gone()
        self.pipeline.clear()
        self._stop_head_clock()
        self._stop_send_clock()
        self._stop_draining()
        if self._end_clock is not None:
            self._end_clock.cancel()
        super().connection_lost(exc)

    def pause_writing(self) -> None:
        """The client lags. If it reads nothing for `send_seconds`, the connection is cut, whatever still waits here."""
        super().pause_writing()
        self._send_clock = self.loop.call_later(self._limits.send_seconds, self.transport.abort)

    def resume_writing(self) -> None:
        """The client has read on."""
        self._stop_send_clock()
        super().resume_writing()

    def break_off(self) -> None:
        """Close the connection in the middle of an answer, so that its client sees that it isn't complete.

        What was sent goes out first, if the client reads it in time. The application may return once `receive` says
        `http.disconnect`; uvicorn would log an error before that.
        """
        self._close()

    def tell_when_gone(self, call: Callable[[], None] | None) -> None:
        """Have this called when the client of the request that is being served disconnects; None takes that back."""
        self._when_gone = call
        if call is not None and self._serving is not None and self._serving.disconnected:
            call()

    def shutdown(self) -> None:
        """The server stops: close the connection, or have it closed behind the answers that are still to be sent."""
        if self._busy:
            super().shutdown()
        else:
            self._close()

    def timeout_keep_alive_handler(self) -> None:
        """No further request came."""
        self._close()

    def data_received(self, data: bytes) -> None:
        """Parse `data`; refuse when one URL, header or trailer is too long while it is still inside the parser."""
        if self._refusal is not None:  # nothing of what comes behind it is read
            return
        if self._drain_left is not None:
            self._drain_left -= len(data)
            if self._drain_left < 0:
                self._close()
                return
            self._start_idle_clock()
        self._progressed = False
        self._feed(data)
        self._bytes_without_progress = 0 if self._progressed else self._bytes_without_progress + len(data)
        if self._bytes_without_progress > MAX_HEAD_BYTES and not self.transport.is_closing():
            self._too_large = True
            self.send_400_response("")

    def on_message_begin(self) -> None:
        """A request begins."""
        if len(self.pipeline) >= MAX_PIPELINED:
            raise TooManyPipelined
        self._unset_keepalive_if_required()
        super().on_message_begin()
        self.scope["extensions"] = {BREAK_OFF: {"now": self.break_off}, WHEN_GONE: {"tell": self.tell_when_gone}}
        self._progressed = self._in_head = True
        self._head_bytes = self._head_count = 0
        self._start_head_clock()

    def on_url(self, url: bytes) -> None:
        """A piece of the URL."""
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
        self._progressed = True
        if self.parser.should_upgrade():  # the parser stops behind the head, and `_feed` goes on
            return
        self._in_head = False
        self._stop_head_clock()
        self._leave()
        self._unset_keepalive_if_required()
        super().on_headers_complete()
        self.cycle.transport = self._answering

    def on_body(self, body: bytes) -> None:
        """A piece of the body."""
        self._progressed = True
        super().on_body(body)

    def on_message_complete(self) -> None:
        """The request is complete."""
        if self.parser.should_upgrade():
            return
        super().on_message_complete()
        if self._drain_left is not None:
            self._stop_draining()
            if self._leaves:
                self._close()
            else:
                self._start_idle_clock()

    def on_response_complete(self) -> None:
        """The answer is out: the next request is waited for, unless it is there."""
        super().on_response_complete()
        if self.transport.is_closing():
            self._start_end_clock()
        elif not self._busy and self._refusal is not None:
            self._answering.write(self._refusal)
            self._close()
        elif not self._busy:
            self._waiting[self] = None
            if self._head_is_late:
                self._start_head_clock()
            if self._serving is not None and self._serving.more_body:
                self._start_draining()

    def send_400_response(self, msg: str) -> None:
        """Refuse what can't be parsed, by the API's error envelope, behind the answers to the requests before it."""
        status = 431 if self._too_large else 400
        message = "This is not a valid HTTP request."
        if self._too_large:
            message = f"The request's URL and headers pass {MAX_HEAD_BYTES} bytes or {MAX_HEADERS} headers."
        elif len(self.pipeline) >= MAX_PIPELINED:
            message = f"More than {MAX_PIPELINED} requests wait on this connection. Wait for their answers first."
        error = {"message": message, "type": "invalid_request_error", "param": None, "code": None}
        body = json.dumps({"error": error}).encode()
        head = b"content-type: application/json\r\nconnection: close\r\ncontent-length: %d\r\n\r\n" % len(body)
        refusal = STATUS_LINE[status] + head + body
        if self._serving is None or not self._busy:
            self._answering.write(refusal)
            self._close()
        elif self.cycle is not self._serving or not self._serving.more_body:
            self._refusal = refusal
            self.flow.pause_reading()
        else:  # the body of the request that is being served is wrong
            if not self._serving.response_started:
                self._answering.write(refusal)
            self._close()

    def _start_asgi_task(self, cycle: RequestResponseCycle, app: Any) -> None:
        self._serving = cycle
        super()._start_asgi_task(cycle, app)

    @property
    def _busy(self) -> bool:
        """Whether a request is being served."""
        return self._serving is not None and not self._serving.response_complete

    def _feed(self, data: bytes) -> None:
        """Parse `data`. Of a request that would change the protocol the head is parsed again, without that wish.

        httptools takes what follows such a head for something else than HTTP, even a body that the head announces, and
        reads nothing at all behind one that closes the connection: the head begins a parser of its own.
        """
        try:
            self.parser.feed_data(data)
        except httptools.HttpParserUpgrade as stopped:
            if self.parser.get_method() == b"CONNECT":
                self.send_400_response("")
            elif (head := self._socket_head()) is not None:
                self._open_socket(head, data[stopped.args[0] :])
            else:
                head = self._plain_head()
                self.parser = httptools.HttpRequestParser(self)
                self.parser.set_dangerous_leniencies(lenient_data_after_close=True)
                self._feed(head + data[stopped.args[0] :])
        except httptools.HttpParserError:
            self.send_400_response("")

    def _socket_head(self) -> Head | None:
        """The head that was read, if it is right for opening a WebSocket, and nothing else is under way here."""
        url, headers = httptools.parse_url(self.url), dict(self.headers)
        names = [name for name, _ in self.headers]
        right = (
            self.ws_protocol_class is not None
            and not self._busy
            and self.parser.get_method() == b"GET"
            and self.parser.get_http_version() == "1.1"
            and url.path.decode("latin-1") in SOCKET_PATHS
            and headers.get(b"upgrade", b"").lower() == b"websocket"
            and headers.get(b"sec-websocket-version") == SOCKET_VERSION
            and _is_key(headers.get(b"sec-websocket-key", b""))
            and all(names.count(name) == 1 for name in (b"upgrade", b"sec-websocket-version", b"sec-websocket-key"))
            and not BODIES.intersection(names)
        )
        if not right:
            return None
        return Head(url.path.decode("ascii"), url.query or b"", self.headers, headers[b"sec-websocket-key"])

    def _open_socket(self, head: Head, behind: bytes) -> None:
        """Hand the connection over."""
        self._leave()
        self._stop_head_clock()
        self._unset_keepalive_if_required()
        self.connections.discard(self)
        self._flush()
        protocol: Any = self.ws_protocol_class(self.config, self.server_state, self.app_state)  # type: ignore[misc]
        protocol.begin(self.transport, head, behind)

    def _plain_head(self) -> bytes:
        """The head that was read, without a wish for another protocol."""
        lines = [b"%s %s HTTP/%s" % (self.parser.get_method(), self.url, self.parser.get_http_version().encode())]
        for name, value in self.headers:
            if name == b"connection":
                value = b",".join(token for token in value.split(b",") if token.strip().lower() != b"upgrade")
            if name != b"upgrade":
                lines.append(name + b": " + value)
        return b"\r\n".join([*lines, b"", b""])

    def _leave(self) -> None:
        """No longer wait for a request."""
        self._waiting.pop(self, None)

    def _count(self, size: int) -> None:
        self._head_bytes += size
        if self._head_bytes > MAX_HEAD_BYTES or self._head_count > MAX_HEADERS:
            self._too_large = True
            raise HeadTooLarge

    def _close(self) -> None:
        """Close the connection once all is sent; what its client doesn't read in time is dropped."""
        self._flush()
        self.transport.close()
        self._start_end_clock()

    def _start_end_clock(self) -> None:
        if self._end_clock is None:
            self._end_clock = self.loop.call_later(self._limits.send_seconds, self.transport.abort)

    def _close_answered(self) -> None:
        """Close the connection behind an answer, or once what is left of its request's body has come."""
        self._flush()
        self._leaves = self._serving is not None and self._serving.response_complete and self._serving.more_body
        if not self._leaves:
            self.transport.close()
        elif self.transport.can_write_eof():
            self.transport.write_eof()

    def _start_draining(self) -> None:
        """Read what is left of a body whose request is answered, and drop it."""
        self._drain_left = self._limits.drain_bytes
        self._drain_clock = self.loop.call_later(self._limits.drain_seconds, self._close)

    def _start_idle_clock(self) -> None:
        """Have the connection closed unless more comes in time."""
        self._unset_keepalive_if_required()
        self.timeout_keep_alive_task = self.loop.call_later(self.timeout_keep_alive, self.timeout_keep_alive_handler)

    def _stop_draining(self) -> None:
        self._drain_left = None
        if self._drain_clock is not None:
            self._drain_clock.cancel()
            self._drain_clock = None

    def _start_head_clock(self) -> None:
        self._stop_head_clock()
        self._head_is_late = False
        self._head_clock = self.loop.call_later(self._limits.head_seconds, self._head_late)

    def _head_late(self) -> None:
        """A head took too long, unless the connection was busy: nothing is read while requests wait."""
        self._head_is_late = True
        if not self._busy:
            self._close()

    def _stop_send_clock(self) -> None:
        if self._send_clock is not None:
            self._send_clock.cancel()
            self._send_clock = None

    def _stop_head_clock(self) -> None:
        self._head_is_late = False
        if self._head_clock is not None:
            self._head_clock.cancel()
            self._head_clock = None


def _is_key(key: bytes) -> bool:
    """Whether this can be the key of a handshake (RFC 6455, section 4.1): 16 bytes as base64."""
    try:
        return len(b64decode(key.strip(), validate=True)) == SOCKET_KEY_BYTES
    except binascii.Error:
        return False
