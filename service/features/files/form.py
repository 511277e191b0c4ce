"""A form with a file, read as it comes: the file goes on in chunks, and the fields may be before and behind it.

service/web/uploads.py reads forms that are in memory as a whole.
"""

import asyncio
from collections.abc import AsyncGenerator, AsyncIterator
from functools import partial
from typing import Any

import msgspec
from python_multipart.exceptions import FormParserError
from python_multipart.multipart import MultipartParser, parse_options_header

from service.errors import InvalidRequest, invalid_value, missing
from service.web.uploads import MULTIPART, file_name

MOST_FIELDS = 16
MOST_FIELD_BYTES = 4_096
"""The fields beside a file, and the bytes of each with its name."""

MOST_NAME_CHARS = 255
"""Of a longer name its end is kept, which says what the file is."""

MOST_DIGITS = 16
"""Of a number in a field."""

_FORM = "Send a form (multipart/form-data; boundary=…) with it in the part 'file'."


class UploadForm:
    """A form of which `file` is read once; `filename` is known then, and all `fields` at its end."""

    def __init__(self, content_type: str, chunks: AsyncIterator[bytes]) -> None:
        """`chunks` are the body as it comes. Raises InvalidRequest for another type."""
        kind, options = parse_options_header(content_type)
        boundary = options.get(b"boundary", b"")
        if kind != MULTIPART.encode() or not boundary:
            raise invalid_value("file", content_type, _FORM)
        self.filename = ""
        self.fields: dict[str, str] = {}
        self._chunks = chunks
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
            "on_part_end": self._end,
        }
        self._parser = MultipartParser(boundary, callbacks)  # type: ignore[arg-type]

    async def file(self) -> AsyncGenerator[bytes]:
        """The bytes of the file, to the end of the form. Raises InvalidRequest, and the errors of the body."""
        try:
            async for chunk in self._chunks:
                self._parser.write(chunk)
                for piece in self._file:
                    yield piece
                self._file.clear()
                await asyncio.sleep(0)
            self._parser.finalize()
        except FormParserError:
            raise _refusal("can't be read") from None
        if not self.filename:
            raise missing("file", _FORM)

    def fields_as_json(self) -> bytes:
        """The fields as an object; one with a name such as `a[b]` is a member of another."""
        made: dict[str, dict[str, Any]] = {}
        for name, value in self.fields.items():
            outer, _, inner = name.partition("[")
            if inner:
                sent = int(value) if value.isdecimal() and len(value) < MOST_DIGITS else value
                made.setdefault(outer, {})[inner.rstrip("]")] = sent
        return msgspec.json.encode(made | {name: value for name, value in self.fields.items() if "[" not in name})

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
        name = options.get(b"name", b"").decode("utf-8", "replace")
        if name == "file":
            if self.filename:
                raise _refusal("has more than one file")
            self.filename = file_name(options.get(b"filename", b"").decode("utf-8", "replace"))[-MOST_NAME_CHARS:]
            return
        if b"filename" in options or len(self.fields) == MOST_FIELDS:
            raise _refusal("has more than one file, or too many fields")
        self._field = name

    def _take(self, data: bytes, start: int, end: int) -> None:
        if self._field is None:
            self._file.append(bytes(data[start:end]))
            return
        self._value += data[start:end]
        if len(self._field) + len(self._value) > MOST_FIELD_BYTES:
            raise _refusal(f"has a field of more than {MOST_FIELD_BYTES:,} bytes")

    def _end(self) -> None:
        if self._field is not None:
            self.fields[self._field] = self._value.decode("utf-8", "replace")


def _extend(kept: bytearray, data: bytes, start: int, end: int) -> None:
    kept += data[start:end]


def _refusal(why: str) -> InvalidRequest:
    return InvalidRequest(f"The form {why}.", code="invalid_value", param="file")
