"""Content parts of items, from their JSON to the form in which they are listed: texts, refusals, files and images.

gpt-oss reads text alone. A text file stands in the prompt between two lines with its name; an image leaves a line that
says one was here, so that the model doesn't answer as if nothing had been sent. The picture itself is taken out of the
item, which refers to it by its digest from then on: its format is known by its bytes and its size by its head, and it
is never decoded. Fetches nothing, from nowhere: `responses.pictures` does, where an operator allows it.
"""

import re
import struct
from base64 import b64decode, b64encode
from binascii import Error as Base64Error
from collections.abc import Generator, Sequence
from hashlib import blake2b
from typing import Any, Literal, NamedTuple

import msgspec

from service.api.replay import UNKNOWN, LeftOut, kind_of, name_of
from service.decoding import decode, decode_list
from service.errors import InvalidRequest, invalid_value, missing, not_allowed, not_served
from service.harmony.pictures import ShownPicture
from service.pictures import REFERENCE
from service.steps import in_one_go
from store.turn import PICTURE_DIGEST_BYTES, Picture

IMAGE = "[An image was here. You can only read text and can't see it; say so if it matters.]"
MAX_FILE_NAME_CHARS = 256
CHARS_A_STEP = 131_072
"""The characters of a picture's base64 that are read before others get a turn, a multiple of 4: some 1 ms."""

BYTES_A_STEP = 196_608
"""The bytes of a picture that are written as base64 before others get a turn, a multiple of 3."""

MAX_SEGMENTS = 1024
"""The most segments of a JPEG, and chunks of a PNG, in which its size is looked for."""

MAX_BLOCKS = 8192
"""The same of a GIF, whose blocks have 255 bytes at most: 1 ms."""

_JPEG_SEGMENT = re.compile(rb"\xff{1,256}([\xc0-\xc7\xc9-\xcf\xda-\xef\xfe])")
"""The lead of a segment of a JPEG that says its length, with fill bytes. Sources: ITU-T T.81, B.1.1.2 and table B.1."""

_FRAMES = frozenset({*range(0xC0, 0xD0), 0xDE} - {0xC4, 0xCC})
"""The markers of segments that have a size: frames, and the hierarchy of frames (DHP)."""

_SCAN = 0xDA

_BILLER = "x-anthropic-billing-header:"
_BILLING = re.compile(_BILLER + r"(?:[ \t]{0,8}[\w.-]{1,64}=[^;\s]{0,256};?){0,32}[ \t]{0,8}(?:\r?\n){0,8}")
"""The line for a biller at the head of the instructions of Anthropic's command line, with the line breaks behind it.
Only its own members are in it, so that nothing behind them goes with it.
"""

_DATA_URL = re.compile(r"data:[^,]{0,256};base64,")
_PDF = b"%PDF-"
_ADVICE = "Only text files and PDFs are supported; send the file's content as text."


def without_billing(instructions: str) -> str:
    """Instructions without the biller's line. The line changes with each request, so no prompt that shows it has a
    cached prefix.
    """
    kept: list[str] = []
    begin, at = 0, instructions.find(_BILLER)
    while at != -1:
        end = at + len(_BILLER)
        if (at == 0 or instructions[at - 1] == "\n") and (match := _BILLING.match(instructions, at)) is not None:
            kept.append(instructions[begin:at])
            begin = end = match.end()
        at = instructions.find(_BILLER, end)
    return "".join((*kept, instructions[begin:])) if begin else instructions


def in_place_of(kind: str, name: str | None = None) -> str:
    """The line that stands for a part which the model can't be shown, with its end."""
    named = name and len(name) <= MAX_FILE_NAME_CHARS and name.isprintable()
    what = f"A file, {name}," if named else f"A part of the type {name_of(kind)}"
    return f"[{what} was here. You can't read it; say so if it matters.]\n"


def text_of(parts: Sequence[dict[str, Any]]) -> str:
    """The text of content parts in a prompt: texts as they are, each file and image on lines of its own."""
    return _lay_out(parts)[0]


def _lay_out(parts: Sequence[dict[str, Any]]) -> tuple[str, list[tuple[int, dict[str, Any]]]]:
    """The text, and where in it the line of each image stands."""
    text, places = "", list[tuple[int, dict[str, Any]]]()
    apart = False
    for part in parts:
        words = part.get("text", part.get("refusal"))
        if (apart or words is None) and text and not text.endswith("\n"):
            text += "\n"
        apart = words is None
        if part["type"] == "input_image":
            places.append((len(text), part))
        text += words if words is not None else IMAGE if part["type"] == "input_image" else _inline(part)
    return text, places


def no_such_file(where: str, id: str) -> InvalidRequest:
    """The refusal of a file that nobody has put in the place of its id: another tenant's is as one that never was."""
    return invalid_value(where, id, "You have no file with this id. Upload the file again, or send the file itself.")


def checked_file(
    data: str | None, name: str | None, file_id: str | None, url: str | None, where: str
) -> dict[str, Any]:
    """An input_file part as it is listed.

    Raises InvalidRequest for a file by its id or URL, one that is no text, or whose name isn't one line.
    """
    if file_id is not None and data is not None:
        raise invalid_value(f"{where}.file_id", file_id, "Send the file or its id, one of the two.")
    if file_id is not None:
        raise no_such_file(f"{where}.file_id", file_id)
    if url is not None:
        raise not_served(f"{where}.file_url", url, "Send the file itself, as 'file_data'.")
    if data is None:
        raise missing(f"{where}.file_data", "Send the file as base64.")
    if name is not None and (len(name) > MAX_FILE_NAME_CHARS or not name.isprintable()):
        raise invalid_value(f"{where}.filename", name, f"It has up to {MAX_FILE_NAME_CHARS} printable characters.")
    _decode(data, f"{where}.file_data")
    return {"type": "input_file", **({} if name is None else {"filename": name}), "file_data": data}


# --- pictures ---


class PictureBounds(msgspec.Struct, frozen=True):
    """The most bytes and pixels of a picture, the most pictures of a request, and of a prompt, and the hosts from which
    pictures are fetched.
    """

    bytes: int = 5 << 20
    pixels: int = 1 << 25
    request: int = 20
    conversation: int = 100
    urls: tuple[str, ...] = ()


USUAL_BOUNDS = PictureBounds()
"""The bounds where no setting says others."""


class PictureHead(NamedTuple):
    """A picture's format, as in its media type, and its size in pixels."""

    format: str
    width: int
    height: int


class ReadPicture(NamedTuple):
    """A picture of a request."""

    picture: Picture
    head: PictureHead


ReadPictures = dict[str, ReadPicture]
"""The pictures of a request by their digests in hex."""


def head_of(data: bytes) -> PictureHead:
    """The head of a PNG, JPEG, WebP or GIF. Raises ValueError for anything else, and where the size isn't found."""
    try:
        if data.startswith(b"\x89PNG\r\n\x1a\n") and data[12:16] == b"IHDR":
            found = PictureHead("png", *_size_of_png(data))
        elif data.startswith((b"GIF87a", b"GIF89a")):
            found = PictureHead("gif", *_size_of_gif(data))
        elif data.startswith(b"RIFF") and data[8:12] == b"WEBP":
            found = PictureHead("webp", *_size_of_webp(data))
        elif data.startswith(b"\xff\xd8\xff"):
            found = PictureHead("jpeg", *_size_of_jpeg(data))
        else:
            raise ValueError("it is no PNG, JPEG, WebP or GIF")
    except struct.error:
        raise ValueError("its head is cut off") from None
    if not found.width or not found.height:
        raise ValueError("it has no pixels")
    return found


def _size_of_png(data: bytes) -> tuple[int, int]:
    """The size in the first chunk. Pillow believes a second such chunk, which no PNG has."""
    place = 8
    for number in range(MAX_SEGMENTS):
        length, kind = struct.unpack_from(">I4s", data, place)
        if kind == b"IHDR" and number:
            raise ValueError("it is a PNG with two heads")
        if kind in (b"IDAT", b"IEND"):
            width, height = struct.unpack_from(">II", data, 16)
            return width, height
        place += 12 + length
    raise ValueError(f"it is a PNG without pixels in its first {MAX_SEGMENTS:,} chunks")


def _size_of_gif(data: bytes) -> tuple[int, int]:
    """The size of the screen, or of what it takes to hold the first frame too, as Pillow makes it."""
    width, height, flags = struct.unpack_from("<HHB", data, 6)
    place = 13 + (3 << (flags & 7) + 1 if flags & 0x80 else 0)
    left = MAX_BLOCKS
    while left and place < len(data) and data[place] != 0x3B:
        left -= 1
        if data[place] == 0x2C:
            x, y, wide, high = struct.unpack_from("<HHHH", data, place + 1)
            return max(width, x + wide), max(height, y + high)
        place += 1
        if data[place - 1] != 0x21:
            continue  # a byte that nobody wrote on purpose is passed over
        place += 1
        if data[place : place + 1] == b"\0" and data[place - 1] != 0xFE:
            raise ValueError("it is a GIF with an empty extension")  # decoders disagree about its end
        while left and data[place : place + 1] > b"\0":
            left -= 1
            place += 1 + data[place]
        place += 1
    if not left:
        raise ValueError(f"it is a GIF without a frame in its first {MAX_BLOCKS:,} blocks")
    return width, height


def _size_of_webp(data: bytes) -> tuple[int, int]:
    """The size in the first chunk: lossy, lossless, or of a file with more than a picture in it."""
    chunk = data[12:16]
    if chunk == b"VP8 " and data[23:26] == b"\x9d\x01\x2a":
        width, height = struct.unpack_from("<HH", data, 26)
        return width & 0x3FFF, height & 0x3FFF
    if chunk == b"VP8L" and data[20:21] == b"\x2f":
        (bits,) = struct.unpack_from("<I", data, 21)
        return (bits & 0x3FFF) + 1, (bits >> 14 & 0x3FFF) + 1
    if chunk == b"VP8X":
        low_w, high_w, low_h, high_h = struct.unpack_from("<HBHB", data, 24)
        return (high_w << 16 | low_w) + 1, (high_h << 16 | low_h) + 1
    raise ValueError("it is a WebP without a head")


def _size_of_jpeg(data: bytes) -> tuple[int, int]:
    """The size in the segment that begins a frame, of which there is one before the first scan. Decoders disagree about
    all that isn't a segment, but for fill bytes.
    """
    place, size = 2, None
    for _ in range(MAX_SEGMENTS):
        if (lead := _JPEG_SEGMENT.match(data, place)) is None:
            raise ValueError("it is a JPEG with something other than segments before its scan")
        place, marker = lead.end(), lead[1][0]
        if marker == _SCAN:
            break
        (length,) = struct.unpack_from(">H", data, place)
        if length < 2:
            raise ValueError("it is a JPEG with something other than segments before its scan")
        if marker in _FRAMES:
            if size is not None:
                raise ValueError("it is a JPEG with two frames")
            size = struct.unpack_from(">HH", data, place + 3)
        place += length
    if size is None:
        raise ValueError(f"it is a JPEG without a frame in its first {MAX_SEGMENTS:,} segments")
    height, width = size
    return width, height


def read_picture(part: dict[str, Any], where: str, bounds: PictureBounds) -> Generator[None, None, ReadPicture | None]:
    """The picture of an image's part, as `take_picture` takes it; None where it is somewhere else. Yields between
    pieces of a few milliseconds. Raises InvalidRequest.
    """
    url: str | None = part["image_url"]
    match = None if url is None else _DATA_URL.match(url)
    if url is None or match is None:
        return None
    begin, digest, pieces = match.end(), blake2b(digest_size=PICTURE_DIGEST_BYTES), list[bytes]()
    if (len(url) - begin) // 4 * 3 - url[-2:].count("=") > bounds.bytes:
        raise _no_picture(where, f"it has more than {bounds.bytes:,} bytes", "Send it smaller.")
    for at in range(begin, len(url), CHARS_A_STEP):
        piece = _from_base64(url[at : at + CHARS_A_STEP], last=at + CHARS_A_STEP >= len(url))
        if piece is None:
            raise _no_url(where, url)
        digest.update(piece)
        pieces.append(piece)
        yield
    return take_picture(part, Picture(digest.digest(), b"".join(pieces)), where, bounds)


def take_picture(part: dict[str, Any], picture: Picture, where: str, bounds: PictureBounds) -> ReadPicture:
    """The picture with its head; the image's part refers to it from then on. Raises InvalidRequest."""
    try:
        head = head_of(picture.data)
    except ValueError as error:
        raise _no_picture(where, str(error), "Send a PNG, JPEG, WebP or GIF.") from None
    if head.width * head.height > bounds.pixels:
        size = f"it has {head.width:,} x {head.height:,} pixels, more than {bounds.pixels:,}"
        raise _no_picture(where, size, "Send it smaller.")
    part["image_url"] = f"{REFERENCE}{picture.digest.hex()}"
    return ReadPicture(picture, head)


def _from_base64(text: str, *, last: bool) -> bytes | None:
    """The bytes of a piece of base64, which is padded at its end alone; None where it isn't one."""
    try:
        piece = b64decode(text, validate=True)
    except (Base64Error, ValueError):
        return None
    return piece if last or len(piece) == len(text) // 4 * 3 else None


def shown_in(parts: Sequence[dict[str, Any]], read: ReadPictures) -> list[ShownPicture]:
    """The pictures of content parts as a note has them, among the `read` ones of the request."""
    shown: list[ShownPicture] = []
    for at, part in _lay_out(parts)[1] if read else ():
        digest = (part["image_url"] or "").removeprefix(REFERENCE)
        if digest in read:
            size, head = len(read[digest].picture.data), read[digest].head
            shown.append(ShownPicture(digest, *head, size, part["detail"], at, len(IMAGE)))
    return shown


def images_in(parts: Sequence[dict[str, Any]]) -> list[str]:
    """The URLs of the images among content parts; empty for one by its file's id."""
    return [part["image_url"] or "" for part in parts if part["type"] == "input_image"]


def data_url(data: bytes) -> Generator[None, None, bytes]:
    """The data URL of a picture that was read, yielding between pieces of a few milliseconds."""
    try:
        kind = head_of(data).format
    except ValueError:  # of a store that somebody else has written into
        kind = "*"
    pieces = [f"data:image/{kind};base64,".encode()]
    for at in range(0, len(data), BYTES_A_STEP):
        pieces.append(b64encode(data[at : at + BYTES_A_STEP]))
        yield
    return b"".join(pieces)


def _check_image(url: str, where: str) -> None:
    """Raise InvalidRequest unless the URL points to an image, or holds something as base64: its beginning is read."""
    if url[:8].lower().startswith(("http://", "https://")):
        return
    match = _DATA_URL.match(url)
    begin = match.end() if match else len(url)
    piece = url[begin : begin + CHARS_A_STEP]
    if not _from_base64(piece, last=True) or (len(url) - begin) % 4:
        raise _no_url(where, url)


def _no_url(where: str, url: str) -> InvalidRequest:
    return invalid_value(where, url, "It is a URL of http or https, or a data URL with base64.")


def _no_picture(where: str, fault: str, advice: str) -> InvalidRequest:
    return InvalidRequest(f"'{where}' is an unreadable picture: {fault}. {advice}", code="invalid_image", param=where)


# --- files ---


def _inline(part: dict[str, Any]) -> str:
    name = part.get("filename") or "file"
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
        raise not_allowed(f"'{where}' is not UTF-8 text. {_ADVICE}", where)
    return text


PARTS_A_STEP = 64
"""The parts that are read before others get a turn."""

MAX_PARTS = 1024
"""The most content parts of one item; all items of a request may have four times as many as there may be items."""

_TEXTS = ("input_text", "output_text", "text")
_TEXT_ONLY = "The model reads text; send parts of type 'input_text'."


class ContentPart(msgspec.Struct):
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
    encrypted_content: str | None = None


class _Words(msgspec.Struct):
    type: str
    text: str


Images = list[tuple[dict[str, Any], str]]
"""Parts of images, and where each stands."""


def text_or_parts(
    raw: msgspec.Raw,
    kind: str,
    where: str,
    *,
    images: Images | None,
    parts: Sequence[ContentPart] | None = None,
    left_out: LeftOut | None = None,
) -> str | list[dict[str, Any]]:
    """A text, or the listed form of a list's parts, texts among them being of type `kind`. Raises InvalidRequest.

    Images are added to `images`; for None they are refused. `parts` are those of the list, where they were read. A part
    that can't be read is `left_out`, and a line stands for what somebody else than the model has sent; for None it is
    refused.
    """
    if bytes(memoryview(raw)[:1]) != b"[":
        return decode(raw, str | list[ContentPart], where)
    shown: list[dict[str, Any]] = []
    sent = read_parts(raw, where, left_out) if parts is None else parts
    for place, part in enumerate(sent):
        try:
            shown.append(_list_part(part, kind, f"{where}[{place}]", images))
        except InvalidRequest:
            if left_out is None:
                raise
            if part.text:
                shown.append(text_part(kind, part.text))
                continue
            left_out.add(part.type)
            if kind == "input_text" and part.type not in _SEALED:
                shown.append(text_part(kind, in_place_of(part.type, part.filename)))
    if sent and not shown:
        raise missing(where, "None of its parts can be read.")
    return shown


_SEALED = ("encrypted_content", UNKNOWN)
"""The types of parts for which no line stands: nobody has said anything with them."""


def read_parts(raw: msgspec.Raw, where: str, left_out: LeftOut | None = None) -> list[ContentPart]:
    """The parts of a list, none for null. Raises InvalidRequest, for too many of them too."""
    return in_one_go(parts_in_steps(raw, where, left_out))


def parts_in_steps(raw: msgspec.Raw, where: str, left_out: LeftOut | None) -> Generator[None, None, list[ContentPart]]:
    """The same, yielding behind each that is as long as a picture. One that is broken has its type alone where those
    that can't be read are `left_out`.
    """
    parts: list[ContentPart] = []
    for place, part in enumerate(decode_list(raw, MAX_PARTS, where)):
        if (long := len(memoryview(part)) > CHARS_A_STEP) and not place:
            yield
        try:
            parts.append(decode(part, ContentPart, f"{where}[{place}]"))
        except InvalidRequest:
            if left_out is None:
                raise
            parts.append(_part_of_broken(part))
        if long or place % PARTS_A_STEP == PARTS_A_STEP - 1:
            yield
    return parts


def _part_of_broken(raw: msgspec.Raw) -> ContentPart:
    """A part with no more than its type and its text, where it has one. A text in its place is one."""
    try:
        found: str | _Words = decode(raw, str | _Words)
    except InvalidRequest:
        return ContentPart(kind_of(raw))
    return ContentPart("text", found) if isinstance(found, str) else ContentPart(found.type, found.text)


def text_part(kind: str, text: str) -> dict[str, Any]:
    """A text as it is listed."""
    if kind == "output_text":
        return {"type": kind, "text": text, "annotations": [], "logprobs": []}
    return {"type": kind, "text": text}


def _list_part(part: ContentPart, kind: str, where: str, images: Images | None) -> dict[str, Any]:
    if part.type in _TEXTS:
        if part.text is None:
            raise missing(f"{where}.text", "A text part needs its text.")
        return text_part(kind, part.text)
    if part.type == "refusal" and kind == "output_text":
        return {"type": "refusal", "refusal": part.refusal or ""}
    if part.type == "input_image" and kind == "input_text" and images is not None:
        images.append((_image(part, where), where))
        return images[-1][0]
    if part.type == "input_file" and kind == "input_text":
        return checked_file(part.file_data, part.filename, part.file_id, part.file_url, where)
    raise not_served(f"{where}.type", part.type, _TEXT_ONLY)


def _image(part: ContentPart, where: str) -> dict[str, Any]:
    if part.image_url is None and part.file_id is None:
        raise missing(f"{where}.image_url", "An image needs its URL, or its file id.")
    if part.image_url is not None:
        _check_image(part.image_url, f"{where}.image_url")
    detail = part.detail or "auto"
    return {"type": "input_image", "detail": detail, "image_url": part.image_url, "file_id": part.file_id}
