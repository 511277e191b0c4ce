"""One connection to a server: a request goes out, and its answer comes in. One at a time.

    idle ─ send ─▶ asked ─ the end of its answer, leave ─▶ idle      any ─ leave before that, abort ─▶ closed

There is nothing between the transport and who reads: all of a body that came with one read is one piece. Where nobody
reads, no more is taken from the socket than is named here, and the server has to wait.
"""

import asyncio
from collections.abc import Callable
from typing import Self, cast

from service.engine.connections.incoming import Broken, Incoming

MAX_UNREAD_BYTES = 256 * 1024
"""How much of an answer may wait for its reader; behind it, no more is read from the socket."""


class Connection(asyncio.Protocol):
    """A connection. `on_free` is called when it can be used again, and `on_lost` once it is closed."""

    def __init__(
        self,
        on_free: "Callable[[Connection], None]",
        on_lost: "Callable[[Connection], None]",
        *,
        max_unread_bytes: int = MAX_UNREAD_BYTES,
    ) -> None:
        self._on_free = on_free
        self._on_lost = on_lost
        self._max_unread_bytes = max_unread_bytes
        self._answer = Incoming()
        self._asked = False
        self._unread = 0
        """How many bytes came since somebody read; those between the parts of a body are counted with them."""
        self._paused = False
        self._trouble = ""
        """Why nothing more comes, though more should; empty is nothing of the kind."""
        self._news: asyncio.Future[None] | None = None
        """What the one who reads waits for."""

    @property
    def answer(self) -> Incoming:
        """The answer to the last request, as far as it came."""
        return self._answer

    @property
    def closed(self) -> bool:
        """Whether it is closed, or is about to be."""
        return self._transport.is_closing()

    @property
    def at_eof(self) -> bool:
        """Whether the answer was read to its end."""
        return self._answer.whole and not self._answer.pieces

    def send(self, head: bytes, body: bytes) -> None:
        """Send a request."""
        self._answer, self._asked, self._unread = Incoming(), True, 0
        self._transport.writelines((head, body))

    async def head(self) -> Self:
        """Itself, once the answer's head is there. Raises Broken."""
        while not self._answer.headed:
            await self._more()
        return self

    async def read(self) -> bytes:
        """What has come of the body, as soon as there is something; nothing at its end. Raises Broken."""
        answer = self._answer
        while not answer.pieces:
            if answer.whole:
                return b""
            await self._more()
        pieces = answer.pieces
        data = pieces[0] if len(pieces) == 1 else b"".join(pieces)
        pieces.clear()
        self._unread = 0
        if self._paused:
            self._resume()
        return data

    def leave(self) -> None:
        """Be done with the answer. If that was read to its end, the connection may be used again; else it is closed,
        by which a server notices that nobody wants what it generates.
        """
        self._asked = False
        if self.closed or not self.at_eof or not self._answer.keeps or self._transport.get_write_buffer_size():
            self.abort()
        else:
            self._resume()
            self._on_free(self)

    def abort(self) -> None:
        """Close it, whatever is under way."""
        self._fail("it was closed here")

    def _more(self) -> asyncio.Future[None]:
        """What is done once something has come: each who waits makes a new one. Raises Broken where nothing will."""
        if self._trouble:
            raise Broken(self._trouble)
        self._news = asyncio.get_running_loop().create_future()
        return self._news

    def _tell(self) -> None:
        """Wake who waits."""
        if self._news is not None and not self._news.done():
            self._news.set_result(None)

    def _fail(self, trouble: str) -> None:
        self._trouble = self._trouble or trouble
        self._transport.abort()
        self._tell()

    def _resume(self) -> None:
        if self._paused and not self.closed:
            self._paused = False
            self._transport.resume_reading()

    # What follows is called by the event loop.

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """It is open."""
        self._transport = cast(asyncio.Transport, transport)

    def data_received(self, data: bytes) -> None:
        """What one read brought."""
        if not self._asked:  # nobody knows what this answers
            self.abort()
            return
        try:
            self._answer.feed(data)
        except Broken as error:
            self._fail(str(error))
            return
        self._unread += len(data)
        if self._unread > self._max_unread_bytes and not self._paused:
            self._paused = True
            self._transport.pause_reading()
        self._tell()

    def eof_received(self) -> None:
        """The server sends no more; the transport closes itself."""
        self._end()

    def connection_lost(self, exc: Exception | None) -> None:
        """It is closed."""
        if exc is None:
            self._end()
        self._trouble = self._trouble or "the connection was lost"
        self._tell()
        self._on_lost(self)

    def _end(self) -> None:
        """Take what has come for all that comes."""
        if self._trouble:
            return
        try:
            self._answer.end()
        except Broken as error:
            self._trouble = str(error)
        self._tell()
