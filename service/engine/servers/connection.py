"""One connection to a server: a request goes out as bytes, and its answer comes in. One at a time.

    idle ─ send ─▶ asked ─ the end of its answer, leave ─▶ idle      any ─ leave before that, abort ─▶ closed

Nothing stands between the transport and the reader: all of a body that came with one read is one piece. While nobody
reads, no more is taken from the socket than the bound below, and the server has to wait.

httptools cuts an answer, which bounds nothing: a head, the lines between chunks and a trailer are bounded here. All
parts of the body that came with one read lie together, each as long as its chunk: a server that sends a token a chunk
costs an append for each. Nothing is decompressed, and no redirect is looked at.
"""

import asyncio
import re
import select
from collections.abc import AsyncIterator, Callable, Mapping
from typing import NamedTuple, Self, cast
from urllib.parse import quote, urlsplit

import httptools
import msgspec

from service.engine.names import PORTS, ServerAddress

MAX_UNREAD_BYTES = 256 * 1024
"""How much of an answer may wait for its reader; behind it, no more is read from the socket."""

MAX_HEAD_BYTES = 64 * 1024
"""The most bytes of a head, of those before it that only say to wait (1xx) and of a trailer; also the most that may
come in a row outside the body."""

FRAME_BYTES = len(": \r\n")
SWITCHING = 101
FIRST_FINAL = 200
"""Statuses below this one announce another head (RFC 9110, section 15.2)."""

BODILESS = (204, 304)

AGENT = "harmonium"

KEPT_IN_PATHS = "/%:@!$&'()*+,;=~"
"""Characters that stay as they are in a path (RFC 3986, section 3.3); escapes stay so, too."""

BROKEN = OSError

_TORN = re.compile(r"[\r\n\0]")
"""Characters that would end a header."""


class Peer(NamedTuple):
    tls: bool
    host: str
    port: int
    certified: str


class RequestTarget(msgspec.Struct, frozen=True):
    """The target of requests: the other end, the host that they name, and the prefix of their paths."""

    peer: Peer
    authority: str
    prefix: str


def target_of(place: ServerAddress) -> RequestTarget:
    """The target for the server at an address. Raises ValueError for a host that can't be one."""
    parts = urlsplit(place.url)
    host = parts.hostname or ""
    if not host.isascii():
        host = host.encode("idna").decode()
    port = parts.port or PORTS[parts.scheme]
    authority = f"[{host}]" if ":" in host else host
    if port != PORTS[parts.scheme]:
        authority = f"{authority}:{port}"
    peer = Peer(parts.scheme == "https", host, port, place.certified or host)
    return RequestTarget(peer, place.host or authority, quote(parts.path, safe=KEPT_IN_PATHS))


def head(method: str, target: RequestTarget, path: str, headers: Mapping[str, str], length: int | None) -> bytes:
    """The head of a request; without a `length` its body comes in chunks. Raises ValueError for a torn header."""
    lines = [f"{name}: {value}" for name, value in headers.items()]
    if "user-agent" not in headers:
        lines.append(f"user-agent: {AGENT}")
    if length is None:
        lines.append("transfer-encoding: chunked")
    elif length or method != "GET":
        lines.append(f"content-length: {length}")
    if any(map(_TORN.search, lines)):
        raise ValueError("a header has a line break, or a NUL")
    said = "\r\n".join((f"{method} {target.prefix}{path} HTTP/1.1", f"host: {target.authority}", *lines))
    return said.encode() + b"\r\n\r\n"


class Broken(OSError):
    """The connection broke, or brought no whole answer."""


class _Ahead(Exception):
    """Another answer begins that nobody asked for. Raised inside the parser, which stops there."""


class Incoming:
    """One answer: `status` and `headers` (names in lower case) once it is `headed`, `pieces` of its body, and whether
    it is `whole`. `keeps` is whether the server keeps its connection for another request.
    """

    def __init__(self) -> None:
        self.status = 0
        self.headers: dict[str, str] = {}
        self.headed = self.whole = self.keeps = False
        self.pieces: list[bytes] = []
        """Parts of the body that the reader hasn't taken yet; it empties the list."""
        self.on_body = self.pieces.append
        self._head_bytes = 0
        self._idle_bytes = 0
        """How many came in a row and were no part of the body."""
        self._until_end = False
        """Whether the body lasts until the connection ends."""
        self._parser = httptools.HttpResponseParser(self)
        # as sloppy as other clients are with answers: servers have been tested with those
        self._parser.set_dangerous_leniencies(
            lenient_headers=True, lenient_optional_cr_before_lf=True, lenient_spaces_after_chunk_size=True
        )

    @property
    def content_type(self) -> str:
        return self.headers.get("content-type", "").partition(";")[0].strip().lower()

    def feed(self, data: bytes) -> None:
        """The next bytes. Raises Broken where they can't be an answer; what came before stays in `pieces`."""
        if self.whole:  # nobody has asked for more
            self.keeps = False
            return
        before = len(self.pieces)
        try:
            self._parser.feed_data(data)
        except (httptools.HttpParserError, httptools.HttpParserUpgrade) as error:
            self.keeps = False
            if not self.whole:
                raise Broken(f"this is no answer over HTTP ({type(error).__name__})") from None
        if len(self.pieces) != before or self.whole:
            self._idle_bytes = 0
            return
        self._idle_bytes += len(data)
        if self._idle_bytes > MAX_HEAD_BYTES:
            raise Broken(f"more than {MAX_HEAD_BYTES} bytes came that are no part of a body")

    def end(self) -> None:
        """Nothing more comes. Raises Broken where that is too early."""
        if not self.whole:
            if not self._until_end:
                raise Broken("the connection ended before the answer")
            self.whole = True

    # The parser calls the methods below; an error raised there ends it.

    def on_message_begin(self) -> None:
        if self.whole:
            raise _Ahead

    def on_header(self, name: bytes, value: bytes) -> None:
        self._head_bytes += len(name) + len(value) + FRAME_BYTES
        if self._head_bytes > MAX_HEAD_BYTES:
            raise Broken("the head is too large")
        if not self.headed:
            known, said = name.decode("latin-1").lower(), value.decode("latin-1")
            self.headers[known] = f"{self.headers[known]}, {said}" if known in self.headers else said

    def on_headers_complete(self) -> None:
        self.status = self._parser.get_status_code()
        if self.status == SWITCHING:
            raise Broken("nobody has asked for another protocol")
        if self.status < FIRST_FINAL:
            self.headers = {}
            return
        self.headed, self.keeps = True, self._parser.should_keep_alive()
        coding = self.headers.get("transfer-encoding")
        if coding is not None:
            self._until_end = coding.rpartition(",")[2].strip().lower() != "chunked"
        else:
            self._until_end = "content-length" not in self.headers and self.status not in BODILESS

    def on_message_complete(self) -> None:
        """An answer ends, or a head that only says to wait."""
        self.whole = self.headed


Tap = Callable[[bytes], bool]
"""Takes a piece of a body; whether it wants more."""


class ServerConnection(asyncio.Protocol):
    """A connection. `on_free` is called when it can be used again, and `on_lost` once it is closed."""

    def __init__(
        self, on_free: "Callable[[ServerConnection], None]", on_lost: "Callable[[ServerConnection], None]"
    ) -> None:
        self._on_free, self._on_lost = on_free, on_lost
        self.answer = Incoming()
        self._asked = False
        self._unread = 0
        """The bytes received since the last read; those between the parts of a body are counted with them."""
        self._paused = False
        self._full = False
        """Whether the other end takes less than was sent."""
        self._trouble = ""
        """The reason why nothing more comes, though more should; empty if there is none."""
        self._news: asyncio.Future[None] | None = None
        self._tap: Tap | None = None
        """Takes the body as it comes, until it wants no more."""
        self._fault: BaseException | None = None

    @property
    def closed(self) -> bool:
        return self._transport.is_closing()

    @property
    def quiet(self) -> bool:
        """Whether it is open, and nothing waits to be read: an end, or an answer that would be taken for the next."""
        if self.closed:
            return False
        unread = select.poll()
        unread.register(self._transport.get_extra_info("socket").fileno(), select.POLLIN)
        return not unread.poll(0)

    @property
    def at_eof(self) -> bool:
        """Whether the answer was read to its end."""
        return self.answer.whole and not self.answer.pieces

    def send(self, head: bytes, body: bytes) -> None:
        self.answer, self._asked, self._unread = Incoming(), True, 0
        self._transport.writelines((head, body))

    async def send_parts(self, head: bytes, parts: AsyncIterator[bytes], stall_seconds: float) -> None:
        """Send a request whose body comes in parts, up to an answer before its end. Raises Broken, TimeoutError where
        the other end takes nothing for so long, and what the parts raise.
        """
        self.send(head, b"")
        async for part in parts:
            if self.answer.headed:
                self.answer.keeps = False  # what was not sent of the body would be taken for another request
                return
            if part:
                self._transport.writelines((b"%x\r\n" % len(part), part, b"\r\n"))
            await asyncio.sleep(0)  # a transport says only in the loop's next turn that it is full
            async with asyncio.timeout(stall_seconds):
                while self._full and not self.answer.headed:
                    await self._more()
        self._transport.write(b"0\r\n\r\n")

    async def head(self) -> Self:
        """Itself, once the answer's head is there. Raises Broken."""
        while not self.answer.headed:
            await self._more()
        return self

    async def read(self) -> bytes:
        """The bytes of the body received since the last read, at least one; empty at its end. Raises Broken."""
        while not self.answer.pieces:
            if self.answer.whole:
                return b""
            await self._more()
        return self._take_pieces()

    async def pour(self, tap: Tap) -> bool:
        """Have what has come of the body taken by `tap`, and the rest as it comes, from within the read that brings it,
        until `tap` wants no more. Whether it wanted all, and all has come. Raises Broken, and what `tap` raises.
        """
        self._tap = tap
        try:
            while self._offer() and not self.answer.whole:
                await self._more()
            if self._fault is not None:
                raise self._fault
            return self._tap is not None
        finally:
            self._tap = self._fault = None

    def _offer(self) -> bool:
        """Have the tap take what has come; whether it wants more. Nothing is raised here, into the event loop."""
        tap = self._tap
        if tap is None or not self.answer.pieces:
            return tap is not None
        try:
            if tap(self._take_pieces()):
                return True
        except BaseException as error:
            self._fault = error
        self._tap = None
        return False

    def _take_pieces(self) -> bytes:
        pieces = self.answer.pieces
        data = pieces[0] if len(pieces) == 1 else b"".join(pieces)
        pieces.clear()
        self._unread = 0
        self._resume()
        return data

    def leave(self) -> None:
        """Leave the answer. One that wasn't read to its end closes the connection, which tells the server to stop."""
        self._asked = False
        if self.closed or not self.at_eof or not self.answer.keeps or self._transport.get_write_buffer_size():
            self.abort()
        else:
            self._resume()
            self._on_free(self)

    def abort(self) -> None:
        self._fail("it was closed here")

    def _more(self) -> asyncio.Future[None]:
        """A future, done once something has come; each waiter makes a new one. Raises Broken where nothing will."""
        if self._trouble:
            raise Broken(self._trouble)
        self._news = asyncio.get_running_loop().create_future()
        return self._news

    def _tell(self) -> None:
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

    # The event loop calls the methods below.

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast(asyncio.Transport, transport)

    def data_received(self, data: bytes) -> None:
        if not self._asked:  # nobody asked for this
            self.abort()
            return
        try:
            self.answer.feed(data)
        except Broken as error:
            self._fail(str(error))
            return
        self._unread += len(data)
        if self._tap is not None and self._offer() and not self.answer.whole:
            return  # its reader need not wake
        if self._unread > MAX_UNREAD_BYTES and not self._paused:
            self._paused = True
            self._transport.pause_reading()
        self._tell()

    def pause_writing(self) -> None:
        self._full = True

    def resume_writing(self) -> None:
        self._full = False
        self._tell()

    def eof_received(self) -> None:
        """The server sends no more; the transport closes itself."""
        self._end()

    def connection_lost(self, exc: Exception | None) -> None:
        if exc is None:
            self._end()
        self._trouble = self._trouble or "the connection was lost"
        self._tell()
        self._on_lost(self)

    def _end(self) -> None:
        if self._trouble:
            return
        try:
            self.answer.end()
        except Broken as error:
            self._trouble = str(error)
        self._tell()
