"""The HTTP connection: uvicorn's httptools protocol with bounds on what may come before a request is known.

httptools has none: it keeps an endless URL, header or trailer until memory is full (64 MiB of tiny headers
made 1.4 GiB of tuples), and waits for ever for a head that comes a byte a minute, or for a client that
reads nothing of its answer. Bodies are the application's to bound; never read or answer a request here.
"""

import asyncio
import json
from dataclasses import dataclass
from typing import Any

from uvicorn.config import Config
from uvicorn.protocols.http.httptools_impl import STATUS_LINE, HttpToolsProtocol
from uvicorn.server import ServerState

from service.settings.settings import MAX_CONNECTIONS

MAX_HEAD_BYTES = 64 * 1024
"""The most of URL and headers, or of trailers, in bytes. Common servers and proxies take 8 to 64 KiB."""

MAX_HEADERS = 256
"""The most headers and trailers of one request."""

BREAK_OFF = "harmonium.break_off"
"""The extension of a request's scope that has `now`, a function that ends the answer without its end."""


@dataclass(frozen=True, kw_only=True, slots=True)
class ConnectionLimits:
    """What one process and its clients may take; the server's configuration has them as `connection_limits`."""

    connections: int = MAX_CONNECTIONS
    """The most at once; one too many is closed."""

    head_seconds: float = 30.0
    """How long a head may take, from the connection or from its first byte to its end."""

    send_seconds: float = 60.0
    """How long a client may leave what was sent unread."""


class HeadTooLarge(Exception):
    """A head passed its bounds. Raised inside the parser, which stops there."""


class BoundedHttpProtocol(HttpToolsProtocol):
    """One connection: its heads are bounded in bytes, in number of headers and in time, and so is what isn't read."""

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

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        """Accept the connection; one that never sends a request is closed, and so is one too many."""
        super().connection_made(transport)
        if len(self.connections) > self._limits.connections:
            self.transport.close()
            return
        self._head_clock = self.loop.call_later(self._limits.head_seconds, self.transport.close)

    def connection_lost(self, exc: Exception | None) -> None:
        """Forget the connection."""
        self._stop_clock()
        self._stop_send_clock()
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
        if not self.transport.is_closing():
            self.transport.close()
            self._end_clock = self.loop.call_later(self._limits.send_seconds, self.transport.abort)

    def data_received(self, data: bytes) -> None:
        """Parse `data`; refuse when one URL, header or trailer is too long while it is still inside the parser."""
        self._progressed = False
        super().data_received(data)
        self._bytes_without_progress = 0 if self._progressed else self._bytes_without_progress + len(data)
        if self._bytes_without_progress > MAX_HEAD_BYTES and not self.transport.is_closing():
            self._too_large = True
            self.send_400_response("")

    def on_message_begin(self) -> None:
        """A request begins."""
        super().on_message_begin()
        self.scope["extensions"] = {BREAK_OFF: {"now": self.break_off}}
        self._progressed = self._in_head = True
        self._head_bytes = self._head_count = 0
        self._stop_clock()
        self._head_clock = self.loop.call_later(self._limits.head_seconds, self.transport.close)

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
        self._in_head = False
        self._stop_clock()
        super().on_headers_complete()

    def on_body(self, body: bytes) -> None:
        """A piece of the body."""
        self._progressed = True
        super().on_body(body)

    def send_400_response(self, msg: str) -> None:
        """Refuse what can't be parsed, by the API's error envelope; only close if an answer has begun."""
        if self.cycle and self.cycle.response_started and not self.cycle.response_complete:
            self.transport.close()
            return
        status = 431 if self._too_large else 400
        message = (
            f"The request's URL and headers pass {MAX_HEAD_BYTES} bytes or {MAX_HEADERS} headers."
            if self._too_large
            else "This is not a valid HTTP request."
        )
        error = {"message": message, "type": "invalid_request_error", "param": None, "code": None}
        body = json.dumps({"error": error}).encode()
        head = b"content-type: application/json\r\nconnection: close\r\ncontent-length: %d\r\n\r\n" % len(body)
        self.transport.write(STATUS_LINE[status] + head + body)
        self.transport.close()

    def _count(self, size: int) -> None:
        self._head_bytes += size
        if self._head_bytes > MAX_HEAD_BYTES or self._head_count > MAX_HEADERS:
            self._too_large = True
            raise HeadTooLarge

    def _stop_send_clock(self) -> None:
        if self._send_clock is not None:
            self._send_clock.cancel()
            self._send_clock = None

    def _stop_clock(self) -> None:
        if self._head_clock is not None:
            self._head_clock.cancel()
            self._head_clock = None
