"""Content parts of items, from their JSON to the form in which they are listed: texts, refusals, files and images."""

from typing import Any

import msgspec

from service.protocol.decoding import decode, decode_list, decoder_of
from service.protocol.errors import missing, unsupported
from service.protocol.files import checked_file

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
    file_id: str | None = None
    file_url: str | None = None
    file_data: str | None = None
    filename: str | None = None


_PART = decoder_of(Part)
_TEXT_OR_PARTS = decoder_of(str | list[Part])


def text_or_parts(raw: msgspec.Raw, kind: str, where: str, *, images: bool) -> str | list[dict[str, Any]]:
    """A text, or the listed form of a list's parts, texts among them being of type `kind`. Raises InvalidRequest.

    With `images` an image is taken, though the model is only told of it.
    """
    if bytes(memoryview(raw)[:1]) != b"[":
        return decode(raw, _TEXT_OR_PARTS, where)
    sent = read_parts(raw, where)
    return [_listed(part, kind, f"{where}[{place}]", images) for place, part in enumerate(sent)]


def read_parts(raw: msgspec.Raw, where: str) -> list[Part]:
    """The parts of a list, none for null. Raises InvalidRequest, for too many of them too."""
    sent = decode_list(raw, MAX_PARTS, where)
    return [decode(part, _PART, f"{where}[{place}]") for place, part in enumerate(sent)]


def text_part(kind: str, text: str) -> dict[str, Any]:
    """A text as it is listed."""
    if kind == "output_text":
        return {"type": kind, "text": text, "annotations": [], "logprobs": []}
    return {"type": kind, "text": text}


def _listed(part: Part, kind: str, where: str, images: bool) -> dict[str, Any]:
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
    raise unsupported(f"{where}.type", part.type, _TEXT_ONLY)


def _image(part: Part, where: str) -> dict[str, Any]:
    if part.image_url is None and part.file_id is None:
        raise missing(f"{where}.image_url", "An image needs its URL, or its file id.")
    return {"type": "input_image", "detail": "auto", "image_url": part.image_url, "file_id": part.file_id}
