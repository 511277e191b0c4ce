"""The form in which a client uploads a file: read within bounds, as whoever sends it may be hostile."""

import re
from typing import TYPE_CHECKING, NamedTuple

from python_multipart.exceptions import FormParserError
from python_multipart.multipart import MultipartParser, parse_options_header

from service.errors import InvalidRequest, invalid_value, missing

if TYPE_CHECKING:
    from python_multipart.multipart import MultipartCallbacks

MULTIPART = b"multipart/form-data"
_UNSEEN = re.compile(r"[\x00-\x1f\x7f-\x9f\u2028-\u202e\u2066-\u2069]")
"""Characters that show a name as another one: controls, ends of lines and changes of direction."""

MAX_TYPE_BYTES = 1_024
"""The longest Content-Type of a form."""

MAX_PARTS = 64
"""The most parts of a form, of which one is used."""

_AS_IT_IS = (b"7bit", b"8bit", b"binary")
"""Transfer encodings of a part whose content is the file's."""


class Upload(NamedTuple):
    """A file that a user sends: its name and what it has."""

    name: str
    content: bytes


def read_upload(body: bytes, content_type: bytes) -> Upload:
    """The file of a form. Raises InvalidRequest."""
    kind, options = parse_options_header(content_type[:MAX_TYPE_BYTES])
    if kind != MULTIPART or len(content_type) > MAX_TYPE_BYTES or not options.get(b"boundary"):
        raise invalid_value("file", content_type.decode("latin-1"), _FORM)
    form = _Form()
    try:
        MultipartParser(options[b"boundary"], form.callbacks).write(body)
    except FormParserError as error:
        raise _refused(f"can't be read: {error}") from None
    if form.name is None:
        raise missing("file", _FORM)
    if not form.whole:
        raise _refused("has no end")
    return Upload(form.name, bytes(form.content))


_FORM = "Send a form (multipart/form-data; boundary=…) with it in the part 'file'."


def _refused(why: str) -> InvalidRequest:
    return InvalidRequest(f"The form {why}.", code="invalid_value", param="file")


class _Form:
    """A form as its parser, which is given all of it at once, tells of it: the first part that is called `file`."""

    def __init__(self) -> None:
        self.name: str | None = None
        self.content = bytearray()
        self.whole = False
        """Whether its end was there."""
        self._parts = 0
        self._headers: dict[bytes, bytes] = {}
        """Of the part that is being read."""
        self._header = b""
        self._taking = False
        """Whether that part is the file."""

    @property
    def callbacks(self) -> "MultipartCallbacks":
        """What a parser calls."""
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
            raise _refused(f"has more than {MAX_PARTS} parts")
        self._headers = {}

    def _name_header(self, sent: bytes, start: int, end: int) -> None:
        self._header = sent[start:end].lower()

    def _set_header(self, sent: bytes, start: int, end: int) -> None:
        self._headers[self._header] = sent[start:end]

    def _open(self) -> None:
        _, said = parse_options_header(self._headers.get(b"content-disposition"))
        self._taking = self.name is None and said.get(b"name") == b"file"
        if self._taking:
            self.name = _file_name(said.get(b"filename", b""))
            encoding = self._headers.get(b"content-transfer-encoding", b"binary").strip().lower()
            if encoding not in _AS_IT_IS:
                raise _refused(f"has the file as {encoding.decode('latin-1')[:80]!r}: send its bytes as they are")

    def _take(self, sent: bytes, start: int, end: int) -> None:
        if self._taking:
            self.content += sent[start:end]

    def _end(self) -> None:
        self.whole = True


def _file_name(sent: bytes) -> str:
    """The last part of the path that a form gives a file. Raises InvalidRequest."""
    try:
        name = sent.decode().replace("\\", "/").rpartition("/")[2]
    except UnicodeDecodeError:
        raise _refused("has a name of the file that is not UTF-8") from None
    if _UNSEEN.search(name):
        raise _refused("has control characters in the name of the file")
    if not name.strip():
        raise InvalidRequest("The file has no name.", code="invalid_value", param="file")
    return name
