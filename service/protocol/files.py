"""Content parts that aren't words: files, which are read if they are text, and images, which the model can't see.

gpt-oss reads text alone. A text file stands in the prompt between two lines with its name; an image leaves a line that
says one was here, so that the model doesn't answer as if nothing had been sent. Fetches nothing, from nowhere.
"""

import re
from base64 import b64decode
from binascii import Error as Base64Error
from collections.abc import Sequence
from typing import Any

from service.protocol.errors import InvalidRequest, invalid_value, missing, unsupported

IMAGE = "[An image was here. You can only read text and can't see it; say so if it matters.]"
MAX_FILE_NAME_CHARS = 256
UNNAMED_FILE = "file"

_DATA_URL = re.compile(r"data:[^,]{0,256};base64,")
_PDF = b"%PDF-"
_ADVICE = "Only text files are read here; send what the file says as text."


def text_of(parts: Sequence[dict[str, Any]]) -> str:
    """What a prompt shows of content parts: texts as they are, each file and image on lines of its own."""
    text = ""
    apart = False
    for part in parts:
        words = part.get("text", part.get("refusal"))
        if (apart or words is None) and text and not text.endswith("\n"):
            text += "\n"
        apart = words is None
        text += words if words is not None else IMAGE if part["type"] == "input_image" else _inlined(part)
    return text


def checked_file(data: str | None, name: str | None, elsewhere: dict[str, str | None], where: str) -> dict[str, Any]:
    """An input_file part as it is listed. `elsewhere` are the members that say it lies elsewhere.

    Raises InvalidRequest for a file that isn't here, that is no text, or whose name isn't one line.
    """
    for member, value in elsewhere.items():
        if value is not None:
            raise unsupported(f"{where}.{member}", value, "Send the file itself, as 'file_data'.")
    if data is None:
        raise missing(f"{where}.file_data", "Send the file as base64.")
    if name is not None and (len(name) > MAX_FILE_NAME_CHARS or not name.isprintable()):
        raise invalid_value(f"{where}.filename", name, f"It has up to {MAX_FILE_NAME_CHARS} printable characters.")
    _decoded(data, f"{where}.file_data")
    return {"type": "input_file", "filename": name, "file_data": data}


def _inlined(part: dict[str, Any]) -> str:
    name = part["filename"] or UNNAMED_FILE
    text = _decoded(part["file_data"], "file_data")
    ending = "" if text.endswith("\n") else "\n"
    return f"[File: {name}]\n{text}{ending}[End of file: {name}]"


def _decoded(data: str, where: str) -> str:
    match = _DATA_URL.match(data)
    try:
        content = b64decode(data[match.end() :] if match else data, validate=True)
    except (Base64Error, ValueError):
        raise invalid_value(where, data, "It is base64, or a data URL with base64.") from None
    try:
        text = content.decode("utf-8-sig")
    except UnicodeDecodeError:
        raise _no_text(where) from None
    if "\0" in text or content.startswith(_PDF):
        raise _no_text(where)
    return text


def _no_text(where: str) -> InvalidRequest:
    return InvalidRequest(f"'{where}' is no text in UTF-8. {_ADVICE}", code="invalid_value", param=where)
