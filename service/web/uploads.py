"""Forms (multipart/form-data): a file and the fields beside it, as Starlette reads them.

A form is given whole, as the bounds of bodies hold it. All parts but `file` are fields. Never use a name of a file as a
path.
"""

import asyncio
import re
from collections.abc import AsyncGenerator
from typing import NamedTuple

from starlette.datastructures import FormData, Headers, UploadFile
from starlette.formparsers import MultiPartException, MultiPartParser

from service.errors import InvalidRequest, invalid_value, missing

STEP_BYTES = 65_536
"""How much of a form is read before others have their turn: a millisecond or two."""

MULTIPART = "multipart/form-data"
_UNSEEN = re.compile(r"[\x00-\x1f\x7f-\x9f\u2028-\u202e\u2066-\u2069]")
"""Characters that show a name as another one: controls, ends of lines and changes of direction."""

MAX_FIELDS = 63
"""The most parts of a form besides its file."""

MAX_FIELD_BYTES = 1_048_576

_AS_IT_IS = ("7bit", "8bit", "binary")
"""Transfer encodings of a part whose content is the file's."""

_FORM = "Send a form (multipart/form-data; boundary=…) with it in the part 'file'."


class Form(NamedTuple):
    """A form: the name of its file, what that is said to be, its bytes, and the other parts."""

    name: str
    kind: str
    content: bytes
    fields: tuple[tuple[str, str], ...] = ()


async def read_form(body: bytes, content_type: str) -> Form:
    """The form of a body. Raises InvalidRequest."""
    if content_type.partition(";")[0].strip().lower() != MULTIPART:
        raise invalid_value("file", content_type, _FORM)
    headers = Headers({"content-type": content_type})
    parser = MultiPartParser(headers, _pieces(body), max_files=1, max_fields=MAX_FIELDS, max_part_size=MAX_FIELD_BYTES)
    parser.spool_max_size = len(body) + 1  # as long as the body is in memory, no copy of its file is on a disk
    try:
        form = await parser.parse()
    except MultiPartException as error:
        raise _refusal(f"can't be read: {error.message.rstrip('.')}") from None
    try:
        return await _form_of(form)
    finally:
        await form.close()


async def _form_of(form: FormData) -> Form:
    """The parts of a form. Raises InvalidRequest."""
    file = form.get("file")
    if file is None:
        raise missing("file", _FORM)
    if not isinstance(file, UploadFile):
        raise InvalidRequest("The file has no name.", code="invalid_value", param="file")
    encoding = file.headers.get("content-transfer-encoding", "binary").strip().lower()
    if encoding not in _AS_IT_IS:
        raise _refusal(f"has the file as {encoding[:80]!r}: send its bytes as they are")
    name, kind = file_name(file.filename or ""), file.content_type or ""
    fields = tuple((each, value) for each, value in form.multi_items() if isinstance(value, str))
    return Form(name, kind, await file.read(), fields)


async def _pieces(body: bytes) -> AsyncGenerator[bytes]:
    view = memoryview(body)
    for start in range(0, len(body), STEP_BYTES):
        yield bytes(view[start : start + STEP_BYTES])
        await asyncio.sleep(0)


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
