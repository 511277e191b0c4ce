"""Forms (multipart/form-data): a file, which goes on in chunks as it comes, and the fields before and behind it.

All parts but `file` are fields. Never use a name of a file as a path, and never put a form on a disk: Starlette's own
reader does that with each file.
"""

import asyncio
import logging
import re
from collections.abc import AsyncGenerator, AsyncIterator
from functools import partial
from typing import NamedTuple

from python_multipart.exceptions import FormParserError
from python_multipart.multipart import MultipartParser, parse_options_header

from service.errors import InvalidRequest, invalid_value, missing

logging.getLogger("python_multipart").setLevel(logging.ERROR)  # it logs what clients send; the refusal says it to them

STEP_BYTES = 65_536
"""How much of a form is read before others have their turn: a millisecond or two."""

MULTIPART = "multipart/form-data"
_UNSEEN = re.compile(r"[\x00-\x1f\x7f-\x9f\u2028-\u202e\u2066-\u2069]")
"""Characters that show a name as another one: controls, ends of lines and changes of direction."""

MOST_FIELDS = 63
MOST_FIELD_BYTES = 1_048_576
"""The most parts of a form besides its file, and the bytes of all of them with their names."""

_AS_IT_IS = (b"7bit", b"8bit", b"binary")
"""Transfer encodings of a part whose content is the file's."""

_FORM = "Send a form (multipart/form-data; boundary=…) with it in the part 'file'."


class UploadForm:
    """A form of which `file` is read once; its `name` and `kind` are known then, and all `fields` at its end."""

    def __init__(self, content_type: str, chunks: AsyncIterator[bytes]) -> None:
        """`chunks` are the body as it comes. Raises InvalidRequest for another type."""
        self.name = self.kind = ""
        self.fields = list[tuple[str, str]]()
        self._chunks, self._is_whole, self._field_bytes = chunks, False, 0
        self._header, self._headers = (bytearray(), bytearray()), dict[bytes, bytes]()
        self._field: str | None = None
        self._value, self._file = bytearray(), list[bytes]()
        callbacks = {
            "on_part_begin": self._begin,
            "on_header_field": partial(_extend, self._header[0]),
            "on_header_value": partial(_extend, self._header[1]),
            "on_header_end": self._end_header,
            "on_headers_finished": self._begin_content,
            "on_part_data": self._take,
            "on_part_end": self._end_part,
            "on_end": self._end,
        }
        kind, options = parse_options_header(content_type)
        try:
            if kind != MULTIPART.encode() or not options.get(b"boundary"):
                raise FormParserError
            self._parser = MultipartParser(options[b"boundary"], callbacks)  # type: ignore[arg-type]
        except FormParserError:
            raise invalid_value("file", content_type, _FORM) from None

    async def file(self) -> AsyncGenerator[bytes]:
        """The bytes of the file, to the end of the form. Raises InvalidRequest, and the errors of the body."""
        try:
            async for chunk in self._chunks:
                self._parser.write(chunk)
                for piece in self._file:
                    yield piece
                self._file.clear()
                await asyncio.sleep(0)
        except FormParserError:
            raise _refusal("can't be read") from None
        if not self._is_whole:
            raise _refusal("has no end: it broke off, or is empty")
        if not self.name:
            raise missing("file", _FORM)

    # --- the parser's callbacks ---

    def _begin(self) -> None:
        self._headers, self._field, self._value = {}, None, bytearray()

    def _end_header(self) -> None:
        name, value = self._header
        self._headers[bytes(name).lower()] = bytes(value)
        name.clear()
        value.clear()

    def _begin_content(self) -> None:
        _, options = parse_options_header(self._headers.get(b"content-disposition", b""))
        name, file = options.get(b"name", b"").decode("utf-8", "replace"), options.get(b"filename")
        if name == "file" and not self.name:
            self.name = file_name((file or b"").decode("utf-8", "replace"))
            self.kind = self._headers.get(b"content-type", b"").decode("latin-1")
            encoding = self._headers.get(b"content-transfer-encoding", b"binary").strip().lower()
            if encoding not in _AS_IT_IS:
                raise _refusal(f"has the file as {encoding.decode('latin-1')[:80]!r}: send its bytes as they are")
        elif name == "file":
            raise _refusal("has more than one file")
        elif file is not None:
            raise _refusal("has a file in another part than 'file'")
        elif len(self.fields) == MOST_FIELDS:
            raise _refusal(f"has more than {MOST_FIELDS} fields")
        else:
            self._field = name

    def _take(self, data: bytes, start: int, end: int) -> None:
        if self._field is None:
            self._file.append(bytes(data[start:end]))
            return
        self._value += data[start:end]
        self._field_bytes += end - start
        if self._field_bytes > MOST_FIELD_BYTES:
            raise _refusal(f"has more than {MOST_FIELD_BYTES:,} bytes beside its file")

    def _end_part(self) -> None:
        if self._field is not None:
            self.fields.append((self._field, self._value.decode("utf-8", "replace")))

    def _end(self) -> None:
        self._is_whole = True


class Form(NamedTuple):
    """A form in memory: the name of its file, what that is said to be, its bytes, and the other parts."""

    name: str
    kind: str
    content: bytes
    fields: tuple[tuple[str, str], ...] = ()


async def read_form(body: bytes, content_type: str) -> Form:
    """The form of a body. Raises InvalidRequest."""
    form = UploadForm(content_type, _pieces(body))
    content = b"".join([piece async for piece in form.file()])
    return Form(form.name, form.kind, content, tuple(form.fields))


async def _pieces(body: bytes) -> AsyncGenerator[bytes]:
    for start in range(0, len(body), STEP_BYTES):
        yield body[start : start + STEP_BYTES]


def _extend(kept: bytearray, data: bytes, start: int, end: int) -> None:
    kept += data[start:end]


def _refusal(why: str) -> InvalidRequest:
    return InvalidRequest(f"The form {why}.", code="invalid_value", param="file")


def file_name(sent: str) -> str:
    """The last part of the path that a form gives a file. Raises InvalidRequest."""
    name = sent.replace("\\", "/").rpartition("/")[2]
    if _UNSEEN.search(name):
        raise _refusal("has control characters in the name of the file")
    if not name.strip():
        raise InvalidRequest("The file has no name.", code="invalid_value", param="file")
    return name
