"""An answer over HTTP/1.1 as its bytes come. Pure: it is fed, and knows no socket.

httptools cuts it, which bounds nothing: a head, the lines between chunks and a trailer are bounded here. All parts of
the body that came with one read lie together, each as long as its chunk: a server that sends a token a chunk costs an
append for each. Nothing is decompressed, and no redirect is looked at.
"""

import httptools

MAX_HEAD_BYTES = 64 * 1024
"""The most of a head, of those before it that only say to wait (1xx) and of a trailer, in bytes; also the most that may
come in a row and be no part of a body."""

FRAME_BYTES = len(": \r\n")
"""What a header has besides its name and its value."""

SWITCHING = 101
FIRST_FINAL = 200
"""Statuses below this one announce another head (RFC 9110, section 15.2)."""

BODILESS = (204, 304)


class Broken(OSError):
    """The connection broke, or what came over it was no whole answer."""


class _Ahead(Exception):
    """Another answer begins, that nobody has asked for. Raised inside the parser, which stops there."""


class Incoming:
    """One answer: `status` and `headers` (names in lower case) once it is `headed`, `pieces` of its body, and whether
    it is `whole`. `keeps` is whether the server keeps its connection for another request.
    """

    def __init__(self, max_head_bytes: int = MAX_HEAD_BYTES) -> None:
        self.status = 0
        self.headers: dict[str, str] = {}
        self.headed = self.whole = self.keeps = False
        self.pieces: list[bytes] = []
        """Parts of the body that nobody has taken yet; whoever takes them empties the list."""
        self.on_body = self.pieces.append
        self._max_head_bytes = max_head_bytes
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
        """The media type of the body, without parameters."""
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
        if self._idle_bytes > self._max_head_bytes:
            raise Broken(f"more than {self._max_head_bytes} bytes came that are no part of a body")

    def end(self) -> None:
        """Nothing more comes. Raises Broken where that is too early."""
        if not self.whole:
            if not self._until_end:
                raise Broken("the connection ended before the answer")
            self.whole = True

    # What follows is called by the parser; what is raised there ends it.

    def on_message_begin(self) -> None:
        """A head begins."""
        if self.whole:
            raise _Ahead

    def on_header(self, name: bytes, value: bytes) -> None:
        """A header, or one of a trailer, which is left out."""
        self._head_bytes += len(name) + len(value) + FRAME_BYTES
        if self._head_bytes > self._max_head_bytes:
            raise Broken("the head is too large")
        if not self.headed:
            known, said = name.decode("latin-1").lower(), value.decode("latin-1")
            self.headers[known] = f"{self.headers[known]}, {said}" if known in self.headers else said

    def on_headers_complete(self) -> None:
        """A head ends."""
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
