"""Pictures, small and whole, of every format that is read, and the parts of requests that have them."""

import struct
import zlib
from base64 import b64encode
from typing import Any


def png(width: int = 32, height: int = 32, grey: int = 128, *, comment: bytes = b"") -> bytes:
    """A grey PNG, with a comment as long as it is to be large."""
    rows = (b"\0" + bytes([grey]) * 3 * width) * height
    head = struct.pack(">IIBBBBB", width, height, 8, 2, 0, 0, 0)
    chunks = (
        _chunk(b"IHDR", head),
        _chunk(b"tEXt", comment),
        _chunk(b"IDAT", zlib.compress(rows)),
        _chunk(b"IEND", b""),
    )
    return b"\x89PNG\r\n\x1a\n" + b"".join(chunks)


def _chunk(kind: bytes, content: bytes) -> bytes:
    return struct.pack(">I", len(content)) + kind + content + struct.pack(">I", zlib.crc32(kind + content))


def gif(width: int, height: int) -> bytes:
    """The head of a GIF."""
    return b"GIF89a" + struct.pack("<HHBBB", width, height, 0, 0, 0)


def jpeg(width: int, height: int, *, before: int = 3) -> bytes:
    """The head of a JPEG, with segments before that of its frame."""
    comments = (b"\xff\xfe" + struct.pack(">H", 6) + b"abcd") * before
    frame = b"\xff\xc2" + struct.pack(">HBHHB", 11, 8, height, width, 1) + b"\x01\x11\x00"
    return b"\xff\xd8" + comments + frame + b"\xff\xda"


def webp(kind: bytes, width: int, height: int) -> bytes:
    """The head of a WebP: lossy (VP8), lossless (VP8L) or extended (VP8X)."""
    if kind == b"VP8 ":
        content = b"\0\0\0\x9d\x01\x2a" + struct.pack("<HH", width, height)
    elif kind == b"VP8L":
        content = b"\x2f" + struct.pack("<I", width - 1 | (height - 1) << 14)
    else:
        content = b"\0\0\0\0" + (width - 1).to_bytes(3, "little") + (height - 1).to_bytes(3, "little")
    return b"RIFF" + struct.pack("<I", 12 + len(content)) + b"WEBP" + kind + struct.pack("<I", len(content)) + content


def url_of(data: bytes, kind: str = "png") -> str:
    """A picture as clients send it."""
    return f"data:image/{kind};base64,{b64encode(data).decode()}"


def part(data: bytes, detail: str = "auto") -> dict[str, Any]:
    """A picture as a part of a message."""
    return {"type": "input_image", "image_url": url_of(data), "detail": detail}


def said(*parts: str | bytes) -> list[dict[str, Any]]:
    """A user's message of texts and pictures."""
    content = [part(each) if isinstance(each, bytes) else {"type": "input_text", "text": each} for each in parts]
    return [{"role": "user", "content": content}]


def shown_in(body: dict[str, Any]) -> list[str]:
    """The pictures and texts of a request to a server, a picture as its data URL."""
    found: list[str] = []
    for message in body["messages"]:
        content: Any = message["content"]
        parts: list[Any] = [{"text": content}] if isinstance(content, str) else content
        found += [each["image_url"]["url"] if "image_url" in each else each["text"] for each in parts]
    return found
