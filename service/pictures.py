"""References to pictures: in items, and in the messages of a chat template's input.

A picture is stored by its digest, and all else has that alone, so that nothing is larger for its pictures. Its bytes
are fetched and read in responses/pictures.py. Pure.
"""

import re
from collections.abc import Mapping

import msgspec

REFERENCE = "picture:"
"""Before the digest of a picture, in hex, where its data URL stands once it is read: in items, and in a transcript with
its length behind it. No client may send one."""

_PART = re.compile(
    rb'\{"type":"image_url","image_url":\{"url":"picture:([0-9a-f]{64})/(\d+)"((?:,"detail":"[a-z]+")?)\}\}'
)
"""The part of a picture in a transcript. Texts have no quotes there that stand alone."""

GONE = "[A picture was here. It was deleted.]"


def sizes_in(messages: bytes) -> list[tuple[bytes, int]]:
    """The pictures to which the messages of a transcript refer, each as often: its digest in hex, its bytes."""
    return [(found[1], int(found[2])) for found in _PART.finditer(messages)]


def with_urls(messages: bytes, urls: Mapping[bytes, bytes]) -> list[bytes]:
    """The messages of a transcript with these data URLs in the place of references, in pieces that are to be joined."""
    pieces: list[bytes] = []
    read = 0
    for found in _PART.finditer(messages):
        pieces.append(messages[read : found.start()])
        read = found.end()
        if (url := urls.get(found[1])) is None:
            pieces.append(msgspec.json.encode({"type": "text", "text": GONE}))
        else:
            pieces += [b'{"type":"image_url","image_url":{"url":"', url, b'"%b}}' % found[3]]
    return [*pieces, messages[read:]]
