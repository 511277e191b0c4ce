"""Content parts of items, from their JSON to the form in which they are listed: texts, refusals, files and images.

gpt-oss reads text alone. A text file stands in the prompt between two lines with its name; an image leaves a line that
says one was here, so that the model doesn't answer as if nothing had been sent. Fetches nothing, from nowhere.
"""

import re
from base64 import b64decode
from binascii import Error as Base64Error
from collections.abc import Sequence
from typing import Any, Literal

import msgspec

from service.decoding import decode, decode_list
from service.errors import invalid_value, missing, not_allowed, not_served

IMAGE = "[An image was here. You can only read text and can't see it; say so if it matters.]"
MAX_FILE_NAME_CHARS = 256
UNNAMED_FILE = "file"
CHECKED_IMAGE_CHARS = 262_144
"""The characters of an image's base64 that are read, a multiple of 4: some 2 ms. The model never sees the image."""

_DATA_URL = re.compile(r"data:[^,]{0,256};base64,")
_PDF = b"%PDF-"
_ADVICE = "Only text files are read here; send what the file says as text."


def text_of(parts: Sequence[dict[str, Any]]) -> str:
    """The text of content parts in a prompt: texts as they are, each file and image on lines of its own."""
    text = ""
    apart = False
    for part in parts:
        words = part.get("text", part.get("refusal"))
        if (apart or words is None) and text and not text.endswith("\n"):
            text += "\n"
        apart = words is None
        text += words if words is not None else IMAGE if part["type"] == "input_image" else _inline(part)
    return text


def checked_file(data: str | None, name: str | None, elsewhere: dict[str, str | None], where: str) -> dict[str, Any]:
    """An input_file part as it is listed. `elsewhere` has the members that point to a file stored elsewhere.

    Raises InvalidRequest for a file by its id or URL, one that is no text, or whose name isn't one line.
    """
    for member, value in elsewhere.items():
        if value is not None:
            raise not_served(f"{where}.{member}", value, "Send the file itself, as 'file_data'.")
    if data is None:
        raise missing(f"{where}.file_data", "Send the file as base64.")
    if name is not None and (len(name) > MAX_FILE_NAME_CHARS or not name.isprintable()):
        raise invalid_value(f"{where}.filename", name, f"It has up to {MAX_FILE_NAME_CHARS} printable characters.")
    _decode(data, f"{where}.file_data")
    return {"type": "input_file", **({} if name is None else {"filename": name}), "file_data": data}


def _check_image(url: str, where: str) -> None:
    """Raise InvalidRequest unless the URL points to an image, or holds one as base64. Only the beginning of base64 is
    read, and the picture itself is never looked at.
    """
    if url[:8].lower().startswith(("http://", "https://")):
        return
    match = _DATA_URL.match(url)
    begin = match.end() if match else len(url)
    try:
        image = b64decode(url[begin : begin + CHECKED_IMAGE_CHARS], validate=True)
    except (Base64Error, ValueError):
        image = b""
    if not image or (len(url) - begin) % 4:
        raise invalid_value(where, url, "It is a URL of http or https, or a data URL with base64.")


def _inline(part: dict[str, Any]) -> str:
    name = part.get("filename") or UNNAMED_FILE
    text = _decode(part["file_data"], "file_data")
    ending = "" if text.endswith("\n") else "\n"
    return f"[File: {name}]\n{text}{ending}[End of file: {name}]"


def _decode(data: str, where: str) -> str:
    match = _DATA_URL.match(data)
    try:
        content = b64decode(data[match.end() :] if match else data, validate=True)
    except (Base64Error, ValueError):
        raise invalid_value(where, data, "It is base64, or a data URL with base64.") from None
    try:
        text = content.decode("utf-8-sig")
    except UnicodeDecodeError:
        text = "\0"
    if "\0" in text or content.startswith(_PDF):
        raise not_allowed(f"'{where}' is no text in UTF-8. {_ADVICE}", where)
    return text


MAX_PARTS = 1024
"""The most content parts of one item; all items of a request may have four times as many as there may be items."""

_TEXTS = ("input_text", "output_text", "text")
_TEXT_ONLY = "The model reads text; send parts of type 'input_text'."


class Part(msgspec.Struct):
    """A part as sent; which of the members it has depends on its type."""

    type: str
    text: str | None = None
    refusal: str | None = None
    image_url: str | None = None
    detail: Literal["low", "high", "auto", "original"] | None = None
    file_id: str | None = None
    file_url: str | None = None
    file_data: str | None = None
    filename: str | None = None


def text_or_parts(raw: msgspec.Raw, kind: str, where: str, *, images: bool) -> str | list[dict[str, Any]]:
    """A text, or the listed form of a list's parts, texts among them being of type `kind`. Raises InvalidRequest.

    With `images` an image is taken, though the model is only told of it.
    """
    if bytes(memoryview(raw)[:1]) != b"[":
        return decode(raw, str | list[Part], where)
    sent = read_parts(raw, where)
    return [_list_part(part, kind, f"{where}[{place}]", images) for place, part in enumerate(sent)]


def read_parts(raw: msgspec.Raw, where: str) -> list[Part]:
    """The parts of a list, none for null. Raises InvalidRequest, for too many of them too."""
    sent = decode_list(raw, MAX_PARTS, where)
    return [decode(part, Part, f"{where}[{place}]") for place, part in enumerate(sent)]


def text_part(kind: str, text: str) -> dict[str, Any]:
    """A text as it is listed."""
    if kind == "output_text":
        return {"type": kind, "text": text, "annotations": [], "logprobs": []}
    return {"type": kind, "text": text}


def _list_part(part: Part, kind: str, where: str, images: bool) -> dict[str, Any]:
    if part.type in _TEXTS:
        if part.text is None:
            raise missing(f"{where}.text", "A text part needs its text.")
        return text_part(kind, part.text)
    if part.type == "refusal" and kind == "output_text":
        return {"type": "refusal", "refusal": part.refusal or ""}
    if part.type == "input_image" and kind == "input_text" and images:
        return _image(part, where)
    if part.type == "input_file" and kind == "input_text":
        return checked_file(part.file_data, part.filename, {"file_id": part.file_id, "file_url": part.file_url}, where)
    raise not_served(f"{where}.type", part.type, _TEXT_ONLY)


def _image(part: Part, where: str) -> dict[str, Any]:
    if part.image_url is None and part.file_id is None:
        raise missing(f"{where}.image_url", "An image needs its URL, or its file id.")
    if part.image_url is not None:
        _check_image(part.image_url, f"{where}.image_url")
    detail = part.detail or "auto"
    return {"type": "input_image", "detail": detail, "image_url": part.image_url, "file_id": part.file_id}
