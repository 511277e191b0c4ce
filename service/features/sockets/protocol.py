"""The wire of a WebSocket: uvicorn's protocol over websockets, with bounds on what a client may send or leave unread.

By itself it has few: it keeps millions of empty fragments of a message, answers pings of a client that reads no answers
until memory is full, parses 256 KB of tiny frames in one go, which takes half a second, and closes at once when the
server stops. Here frames are parsed in pieces, what a client has sent and nobody read is paid for out of the room for
bodies, and who doesn't read isn't read from. Never look into a message here.
"""

import asyncio
import logging
from collections.abc import Callable, Iterable
from time import perf_counter
from typing import Any, cast

from uvicorn.config import Config
from uvicorn.protocols.utils import ClientDisconnected
from uvicorn.protocols.websockets.websockets_sansio_impl import WebSocketsSansIOProtocol
from uvicorn.server import ServerState
from websockets.exceptions import InvalidState
from websockets.frames import CloseCode, Frame
from websockets.http11 import Request
from websockets.server import ServerProtocol

from service.errors import ApiError
from service.web.admission.slots import Slot
from service.web.http_protocol import Clock, ConnectionLimits

WIRE = "harmonium.wire"
"""The extension of a WebSocket's scope that has its protocol."""

HANDSHAKE = (
    b"GET / HTTP/1.1\r\nHost: localhost\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n"
    b"Sec-WebSocket-Key: %b\r\nSec-WebSocket-Version: 13\r\n\r\n"
)

PIECE_BYTES = 2048
"""How much is parsed at a time: at most some 300 frames."""

BRIEF_SECONDS = 0.002
"""How long frames are parsed before others run."""

MAX_FRAGMENTS = 4096
"""The most frames of one message."""

MESSAGE_BYTES = 512
"""The approximate size of a message or a fragment beside its bytes."""

CONTROLS_A_MINUTE = 600
"""The most pings and pongs of a client in a minute. Clients send a few."""

logger = logging.getLogger(__name__)
logger.setLevel(logging.WARNING)
"""Below this level uvicorn and websockets log queries and frames, which are the clients'."""


class SocketProtocol(WebSocketsSansIOProtocol):
    """One WebSocket, as ASGI knows it, and as the extension WIRE: `use`, `send_texts`, `keep`, `close_now`."""

    def __init__(
        self,
        config: Config,
        server_state: ServerState,
        app_state: dict[str, Any],
        _loop: asyncio.AbstractEventLoop | None = None,
    ) -> None:
        super().__init__(config, server_state, app_state, _loop)
        self.logger = logger
        self.conn = ServerProtocol(max_size=config.ws_max_size, logger=logger)
        limits: ConnectionLimits = getattr(config, "connection_limits", ConnectionLimits())
        self._unread_clock = Clock(limits.send_seconds, lambda: self.transport.abort())
        self._head: dict[str, Any] = {}
        self._unparsed = bytearray()
        self._parsing: asyncio.Handle | None = None
        self._fragments_bytes = 0
        self._queued_bytes = 0
        self._charged = 0
        self._room: Slot | None = None
        self._stop: Callable[[], None] | None = None
        self._controls, self._minute = 0, 0.0
        self._sending = asyncio.Lock()
        self._unsent: list[bytes] = []
        """The messages that wait until the client has read enough, in order."""

    # --- the beginning ---

    def begin(self, transport: asyncio.Transport, head: dict[str, Any], behind: bytes) -> None:
        """Take a connection over from HTTP: what the scope has of the head of its last request, and what came behind
        that. websockets is told of a head with no more than it needs.
        """
        self._head = head
        self.connection_made(transport)
        transport.set_write_buffer_limits(high=0)  # whatever is unread has `send_seconds`, also behind a close
        transport.set_protocol(self)
        super().data_received(HANDSHAKE % dict(head["headers"])[b"sec-websocket-key"])
        self.data_received(behind)

    def handle_connect(self, event: Request) -> None:
        """Hand the request to the application."""
        super().handle_connect(event)
        scope = cast(dict[str, Any], self.scope)
        scope.update(self._head)
        scope["extensions"][WIRE] = self

    def use(self, room: Slot, stop: Callable[[], None]) -> None:
        """Begin to read; whatever was sent and not read takes `room` for bodies. `stop` is called when the server
        stops, and is to close this then.
        """
        self._room, self._stop = room, stop
        self._parse()

    def use_no_more(self) -> None:
        """The application is done. Of what still comes only the client's close is read."""
        if self._room is not None:
            self._room.give_back(self._charged)
        self._charged, self._room = 0, None

    # --- reading ---

    def data_received(self, data: bytes) -> None:
        """Parse `data`, a piece at a time; nothing before the connection is accepted."""
        self._unparsed += data
        if self._parsing is None:
            self._parse()

    def _parse(self) -> None:
        self._parsing = None
        began = perf_counter()
        used = self._room is not None or self.close_sent
        while self._unparsed and used and not self.transport.is_closing():
            if perf_counter() - began > BRIEF_SECONDS:
                self._parsing = self.loop.call_soon(self._parse)
                break
            piece = bytes(self._unparsed[:PIECE_BYTES])
            del self._unparsed[:PIECE_BYTES]
            super().data_received(piece)
        self._pay()
        self._read_or_wait()

    def _read_or_wait(self) -> None:
        """Read on, unless something waits: a message to be taken, frames to be parsed, or what the client leaves
        unread.
        """
        if self.transport.is_closing():
            return
        if self._unparsed or self.read_paused or not self.writable.is_set():
            self.transport.pause_reading()
        else:
            self.transport.resume_reading()

    def _pay(self) -> None:
        """Have room for what is there and unread; where there is none, the connection is closed."""
        room = self._room
        if room is None:
            return
        unread = len(self._unparsed) + len(self.conn.reader.buffer) + self._fragments_bytes + self._queued_bytes
        wanted = unread - self._charged
        if wanted < 0:
            room.give_back(-wanted)
        elif wanted > 0:
            try:
                room.take_body(wanted)
            except ApiError:
                self._fail(CloseCode.TRY_AGAIN_LATER, "Too many bytes of messages wait. Try again in a moment.")
                return
        self._charged = unread

    def handle_text(self, event: Frame) -> None:
        """A message, or its first fragment."""
        self._fragments_bytes = len(event.data) + MESSAGE_BYTES
        super().handle_text(event)

    def handle_bytes(self, event: Frame) -> None:
        """A binary message, or its first fragment."""
        self._fragments_bytes = len(event.data) + MESSAGE_BYTES
        super().handle_bytes(event)

    def handle_cont(self, event: Frame) -> None:
        """A further fragment of a message."""
        self._fragments_bytes += len(event.data) + MESSAGE_BYTES
        if len(self.frames) >= MAX_FRAGMENTS:
            self._fail(CloseCode.MESSAGE_TOO_BIG, f"A message has more than {MAX_FRAGMENTS} fragments.")
            return
        super().handle_cont(event)

    def send_receive_event_to_app(self) -> None:
        """Queue a message that is complete."""
        data = self.frames[0] if len(self.frames) == 1 else b"".join(self.frames)
        self.frames, self._fragments_bytes = [], 0
        if self.close_sent:
            return
        if self.curr_msg_data_type == "text":
            try:
                message: Any = {"type": "websocket.receive", "text": bytes(data).decode(), "size": len(data)}
            except UnicodeDecodeError:
                self._fail(CloseCode.INVALID_DATA, "A text message is not UTF-8.")
                return
        else:
            message = {"type": "websocket.receive", "bytes": bytes(data), "size": len(data)}
        self.queue.put_nowait(message)
        self._queued_bytes += len(data) + MESSAGE_BYTES
        self.read_paused = True

    async def receive(self) -> Any:
        """The next message. Its room is given back: a caller that keeps it takes its own."""
        message: Any = await self.queue.get()
        if message["type"] == "websocket.receive":
            self._queued_bytes -= message["size"] + MESSAGE_BYTES
            self.read_paused = not self.queue.empty()
            self._pay()
            self._read_or_wait()
        return message

    def handle_ping(self) -> None:
        """Answer a ping."""
        self._count_control()
        super().handle_ping()

    def handle_pong(self, event: Frame) -> None:
        """A pong, asked for or not."""
        self._count_control()
        super().handle_pong(event)

    def _count_control(self) -> None:
        now = self.loop.time()
        if now - self._minute >= 60:
            self._controls, self._minute = 0, now
        self._controls += 1
        if self._controls > CONTROLS_A_MINUTE:
            self._fail(CloseCode.POLICY_VIOLATION, f"More than {CONTROLS_A_MINUTE} pings and pongs came in a minute.")

    # --- writing ---

    async def send(self, message: Any) -> None:
        """Send as uvicorn does, which would take a refusal for a forgotten handshake, and log an error of ours."""
        await super().send(message)
        self.handshake_complete = self.handshake_complete or self.close_sent

    @property
    def ready(self) -> bool:
        """Whether what is written goes out at once, behind nothing else."""
        return self.writable.is_set() and not self._unsent

    def keep(self, texts: Iterable[bytes]) -> None:
        """Have messages go out in front of what is sent next: their place is that of this call."""
        self._unsent += texts

    async def send_texts(self, texts: Iterable[bytes] = ()) -> None:
        """Send messages together, each whole, once the client has read enough, and behind all that were to be sent
        before. Raises ClientDisconnected.
        """
        self.keep(texts)
        async with self._sending:
            if self._unsent:
                await self.writable.wait()
            unsent, self._unsent = self._unsent, []
            self.write(unsent)

    def write(self, texts: Iterable[bytes]) -> None:
        """Send messages now. Raises ClientDisconnected."""
        if self.disconnected or self.close_sent:
            raise ClientDisconnected
        try:
            for text in texts:
                self.conn.send_text(text)
        except InvalidState:
            raise ClientDisconnected from None
        self.transport.write(b"".join(self.conn.data_to_send()))

    def pause_writing(self) -> None:
        """The client lags: it isn't read from, and if it reads nothing for `send_seconds`, it is cut off."""
        super().pause_writing()
        self._unread_clock.start()
        self._read_or_wait()

    def resume_writing(self) -> None:
        """The client has read on."""
        self._unread_clock.stop()
        super().resume_writing()
        self._read_or_wait()

    # --- the end ---

    def shutdown(self) -> None:
        """The server stops: the application closes this, once what is under way has ended."""
        if self._stop is not None and not self.close_sent and not self.transport.is_closing():
            self._stop()
        else:
            super().shutdown()

    def cut_off_if_lagging(self) -> None:
        """Cut off a client that hasn't read everything that was sent."""
        if not self.writable.is_set():
            self.transport.abort()

    def close_now(self, code: int, reason: str) -> None:
        """Close at once, without a wait for what the client hasn't read."""
        if not self.disconnected and not self.close_sent and not self.transport.is_closing():
            self._fail(code, reason)

    def _fail(self, code: int, reason: str) -> None:
        """Say why, and close."""
        if self.transport.is_closing():
            return
        self.stop_keepalive()
        self.conn.fail(code, reason)
        self.handle_parser_exception()

    def connection_lost(self, exc: Exception | None) -> None:
        """The connection is gone, and with it what was unread."""
        self._unread_clock.stop()
        self._unparsed.clear()
        self.use_no_more()
        super().connection_lost(exc)
