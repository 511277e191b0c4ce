"""Forms (multipart/form-data): a file and the fields beside it, read within bounds.

A form is given whole, as the bounds of bodies hold it. The first part called `file` is the file, as the bytes that were
sent, whatever they are said to be; all others are fields. Never use a name of a file as a path.
"""

import asyncio
import re
from typing import TYPE_CHECKING, NamedTuple

from python_multipart.exceptions import FormParserError
from python_multipart.multipart import MultipartParser, parse_options_header

from service.errors import InvalidRequest, invalid_value, missing

if TYPE_CHECKING:
    from python_multipart.multipart import MultipartCallbacks

PARSED_IN_THREAD_BYTES = 65_536
"""Forms from this size on are read in a thread."""

MULTIPART = b"multipart/form-data"
_UNSEEN = re.compile(r"[\x00-\x1f\x7f-\x9f\u2028-\u202e\u2066-\u2069]")
"""Characters that show a name as another one: controls, ends of lines and changes of direction."""

MAX_TYPE_BYTES = 1_024
"""The longest Content-Type of a form."""

MAX_PARTS = 64
"""The most parts of a form, of which one is its file."""

MAX_FIELDS_BYTES = 1_048_576
"""The most bytes of all parts but the file."""

_AS_IT_IS = (b"7bit", b"8bit", b"binary")
"""Transfer encodings of a part whose content is the file's."""

_FORM = "Send a form (multipart/form-data; boundary=…) with it in the part 'file'."


class Form(NamedTuple):
    """A form: the name of its file, what that is said to be, its bytes, and the other parts as they came."""

    name: str
    kind: bytes
    content: bytes
    fields: tuple[tuple[bytes, bytes], ...] = ()


async def read_form(body: bytes, content_type: bytes) -> Form:
    """The form of a body, a long one read in a thread. Raises InvalidRequest."""
    if len(body) > PARSED_IN_THREAD_BYTES:
        return await asyncio.to_thread(parse_form, body, content_type)
    return parse_form(body, content_type)


def parse_form(body: bytes, content_type: bytes) -> Form:
    """The form of a body. Raises InvalidRequest."""
    kind, options = parse_options_header(content_type[:MAX_TYPE_BYTES])
    if kind != MULTIPART or len(content_type) > MAX_TYPE_BYTES or not options.get(b"boundary"):
        raise invalid_value("file", content_type.decode("latin-1"), _FORM)
    parts = _Parts()
    try:
        MultipartParser(options[b"boundary"], parts.callbacks).write(body)
    except FormParserError as error:
        raise _refusal(f"can't be read: {error}") from None
    if parts.name is None:
        raise missing("file", _FORM)
    if not parts.whole:
        raise _refusal("has no end")
    fields = tuple((name, bytes(content)) for name, content in parts.fields)
    return Form(parts.name, parts.kind, bytes(parts.content), fields)


def _refusal(why: str) -> InvalidRequest:
    return InvalidRequest(f"The form {why}.", code="invalid_value", param="file")


class _Parts:
    """A form as its parser, which is given all of it at once, tells of it."""

    def __init__(self) -> None:
        self.name: str | None = None
        self.kind = b""
        self.content = bytearray()
        self.fields: list[tuple[bytes, bytearray]] = []
        self.whole = False
        """Whether its end was there."""
        self._parts = self._fields_bytes = 0
        self._headers: dict[bytes, bytes] = {}
        """The headers of the part that is being read."""
        self._header = b""
        self._in_file = False
        """Whether that part is the file."""

    @property
    def callbacks(self) -> "MultipartCallbacks":
        """The callbacks of a parser."""
        return {
            "on_part_begin": self._begin,
            "on_header_field": self._name_header,
            "on_header_value": self._set_header,
            "on_headers_finished": self._open,
            "on_part_data": self._take,
            "on_end": self._end,
        }

    def _begin(self) -> None:
        self._parts += 1
        if self._parts > MAX_PARTS:
            raise _refusal(f"has more than {MAX_PARTS} parts")
        self._headers = {}

    def _name_header(self, sent: bytes, start: int, end: int) -> None:
        self._header = sent[start:end].lower()

    def _set_header(self, sent: bytes, start: int, end: int) -> None:
        self._headers[self._header] = sent[start:end]

    def _open(self) -> None:
        _, told = parse_options_header(self._headers.get(b"content-disposition"))
        name = told.get(b"name", b"")
        self._in_file = self.name is None and name == b"file"
        if not self._in_file:
            self.fields.append((name, bytearray()))
            return
        self.name, self.kind = _file_name(told.get(b"filename", b"")), self._headers.get(b"content-type", b"")
        encoding = self._headers.get(b"content-transfer-encoding", b"binary").strip().lower()
        if encoding not in _AS_IT_IS:
            raise _refusal(f"has the file as {encoding.decode('latin-1')[:80]!r}: send its bytes as they are")

    def _take(self, sent: bytes, start: int, end: int) -> None:
        if self._in_file:
            self.content += sent[start:end]
            return
        self._fields_bytes += end - start
        if self._fields_bytes > MAX_FIELDS_BYTES:
            raise _refusal(f"has more than {MAX_FIELDS_BYTES} bytes beside its file")
        self.fields[-1][1].extend(sent[start:end])

    def _end(self) -> None:
        self.whole = True


def _file_name(sent: bytes) -> str:
    """The last part of the path that a form gives a file. Raises InvalidRequest."""
    try:
        name = sent.decode().replace("\\", "/").rpartition("/")[2]
    except UnicodeDecodeError:
        raise _refusal("has a name of the file that is not UTF-8") from None
    if _UNSEEN.search(name):
        raise _refusal("has control characters in the name of the file")
    if not name.strip():
        raise InvalidRequest("The file has no name.", code="invalid_value", param="file")
    return name
