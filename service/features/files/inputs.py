"""Files in inputs: the content of those that a request names is put in the place of their ids, before it is read.

    input_file   file_id      its text as file_data; of a PDF the text of its pages
                 file_data    of a PDF the same
    input_image  file_id      the picture as a data URL

All else is left to whoever reads the items: an id that leads to no file, too, as one of an older turn is no fault.
"""

import asyncio
from base64 import b64decode, b64encode
from binascii import Error as Base64Error
from collections.abc import Callable, Sequence
from contextlib import suppress
from typing import Any

import msgspec

from service.api.content import MAX_FILE_NAME_CHARS, data_url
from service.entrance import Entry
from service.errors import InvalidRequest, not_allowed
from service.features.files.pdf import MOST_TEXT_BYTES, PdfReading, UnreadablePdf
from service.responses.attachments import AttachedFile, Attachments, may_name_files
from service.responses.service import Service
from service.shares import Room
from service.steps import in_steps
from store.files.files import FileGone, Files

MOST_FILES = 20
MOST_BYTES = 32 << 20
"""The most files of a request, and their bytes together."""

AT_ONCE = 4
"""How many requests of a process have files read at once. Tenants share them, as each may take minutes."""

SCOPE = "api.files.read"

_PDF, _PDF_AS_BASE64 = b"%PDF-", "JVBERi0"
_LISTS = ("content", "output")
"""The members of items that have parts."""

_raws = msgspec.json.Decoder(list[msgspec.Raw])
_members = msgspec.json.Decoder(dict[str, msgspec.Raw])
_part = msgspec.json.Decoder(dict[str, Any])


class StoredAttachments(Attachments):
    """The files that tenants uploaded."""

    def __init__(self, files: Files, *, several: Callable[[], bool]) -> None:
        """`several` says whether there is more than one tenant."""
        self.files = files
        self._pdfs, self._places = PdfReading(), Room(AT_ONCE, several=several)

    async def find(self, entry: Entry, id: str) -> AttachedFile | None:
        entry.require(SCOPE)
        record = await self.files.find(entry.tenant, id)
        return record and AttachedFile(record.filename, record.bytes, self.files.read(entry.tenant, record))

    async def put_into(self, entry: Entry, items: msgspec.Raw) -> msgspec.Raw:
        async with self._places.space(entry.tenant, 1):
            with suppress(msgspec.MsgspecError, RecursionError):  # whoever reads the items says what is wrong
                return msgspec.Raw(await _Reading(self, entry, self._pdfs).items(bytes(items)))
        return items


def files_of(service: Service) -> Files:
    """The files of a process."""
    attachments = service.attachments
    assert isinstance(attachments, StoredAttachments)  # the feature is there
    return attachments.files


class _Reading:
    """The files of one request."""

    def __init__(self, attachments: StoredAttachments, entry: Entry, pdfs: PdfReading) -> None:
        self._attachments, self._entry, self._pdfs = attachments, entry, pdfs
        self._number = self._bytes = 0

    async def items(self, sent: bytes) -> bytes:
        """The items with their files. Raises ApiError, StoreError, MsgspecError."""
        made: list[msgspec.Raw] = []
        for place, item in enumerate(_raws.decode(sent)):
            if may_name_files(item):
                members = _members.decode(item)
                for name in _LISTS:
                    if (
                        may_name_files(members.get(name, msgspec.Raw()))
                        and bytes(memoryview(members[name])[:1]) == b"["
                    ):
                        parts = _raws.decode(members[name])
                        members[name] = _list(
                            [
                                await self._part(part, f"input[{place}].{name}[{number}]")
                                if may_name_files(part)
                                else part
                                for number, part in enumerate(parts)
                            ]
                        )
                item = msgspec.Raw(msgspec.json.encode(members))
            made.append(item)
        return bytes(_list(made))

    async def _part(self, raw: msgspec.Raw, where: str) -> msgspec.Raw:
        """A part with its file. Raises ApiError, StoreError, MsgspecError."""
        await asyncio.sleep(0)  # each may be megabytes
        part = _part.decode(raw)
        kind, id, data = part.get("type"), part.get("file_id"), part.get("file_data")
        if kind == "input_file" and id is None and isinstance(data, str):
            payload = data.partition(",")[2] if data.startswith("data:") else data
            if not payload.startswith(_PDF_AS_BASE64):
                return raw
            try:
                content = await asyncio.to_thread(b64decode, payload, validate=True)
            except Base64Error:
                return raw
            self._count(len(content), f"{where}.file_data")
        elif kind in ("input_file", "input_image") and isinstance(id, str) and data is part.get("image_url") is None:
            found = await self._content(id, f"{where}.file_id", part)
            if found is None:
                return raw
            content = found
        else:
            return raw
        at = f"{where}.{'file_data' if id is None else 'file_id'}"
        part.pop("file_id", None)
        if kind == "input_image":
            try:
                part["image_url"] = (await in_steps(data_url(content))).decode()
            except ValueError as error:
                raise not_allowed(f"The file of '{at}' is not a picture: {error}.", at) from None
        else:
            part["file_data"] = b64encode(await self._text(content, at)).decode()
        return msgspec.Raw(msgspec.json.encode(part))

    async def _content(self, id: str, where: str, part: dict[str, Any]) -> bytes | None:
        """The content of a file, whose name the part gets; None where there is none. Raises ApiError, StoreError."""
        found = await self._attachments.find(self._entry, id)
        if found is None:
            return None
        self._count(found.size, where)
        if part["type"] == "input_file" and part.get("filename") is None and found.name.isprintable():
            part["filename"] = found.name[-MAX_FILE_NAME_CHARS:]
        try:
            return b"".join([piece async for piece in found.content])
        except FileGone:
            return None

    async def _text(self, content: bytes, where: str) -> bytes:
        """The text of a file. Raises InvalidRequest."""
        if content.startswith(_PDF):
            try:
                return await self._pdfs.text(content)
            except UnreadablePdf as error:
                told = f"The PDF of '{where}' can't be read: {error}. Send its text."
                raise InvalidRequest(told, code="invalid_file", param=where) from None
        if len(content) > MOST_TEXT_BYTES:
            told = f"The file of '{where}' has more than {MOST_TEXT_BYTES:,} bytes. Send a part of it."
            raise InvalidRequest(told, code="invalid_file", param=where)
        with suppress(UnicodeDecodeError):
            if "\0" not in content.decode():
                return content
        raise not_allowed(f"The file of '{where}' is not UTF-8 text. Send its content as text.", where)

    def _count(self, size: int, where: str) -> None:
        """Raise InvalidRequest for too many files, or bytes."""
        self._number, self._bytes = self._number + 1, self._bytes + size
        if self._number > MOST_FILES or self._bytes > MOST_BYTES:
            told = f"A request can name {MOST_FILES} files with {MOST_BYTES:,} bytes in all; '{where}' exceeds that."
            many = self._number > MOST_FILES
            raise InvalidRequest(told, code="too_many_files" if many else "too_many_file_bytes", param=where)


def _list(raws: Sequence[msgspec.Raw]) -> msgspec.Raw:
    return msgspec.Raw(b"[%b]" % b",".join(map(bytes, raws)))
