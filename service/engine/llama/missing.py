"""The ids that a stream of llama.cpp's leaves out.

A character may be spread over several tokens. The server holds a text back until it is whole, and then sends it with
the last id alone; how many were sampled, it counts on (tools/server, `process_token`). What the earlier ones must have
been follows from their bytes: as many entries of the vocabulary as are missing, one after the other.
"""

from collections.abc import Iterator, Sequence
from functools import cache

from service.harmony.tokens import byte_table, vocabulary

MAX_MISSING = 16
"""The most ids that may be missing at once: a character has 4 bytes, and what a grammar holds back is no longer."""


def missing_ids(content: bytes, last: int, count: int) -> list[int]:
    """The `count` ids before `last`, whose bytes together are `content`. Raises ValueError where there are none such.

    Where bytes can be cut in several ways, the one with the longest beginning is taken. Some characters of four bytes
    can, as 128 from U+1F000 to U+1FFFF.
    """
    end = byte_table()[last]
    if count > MAX_MISSING or not end or not content.endswith(end):
        raise ValueError("the text has other bytes than its ids")
    found = next(_cut(content[: len(content) - len(end)], count), None)
    if found is None:
        raise ValueError("no ids have these bytes")
    return list(found)


def _cut(text: bytes, count: int) -> Iterator[Sequence[int]]:
    """The ways to write `text` as so many ids, those with a long beginning first."""
    if count == 0:
        if not text:
            yield ()
        return
    for length in range(len(text) - count + 1, 0, -1):
        first = parts().get(text[:length])
        if first is not None:
            for rest in _cut(text[length:], count - 1):
                yield (first, *rest)


@cache
def parts() -> dict[bytes, int]:
    """The ordinary ids by their bytes, those that begin or end amid a character: no others are ever missing. Made once,
    0.1 s: call it before anybody waits.
    """
    return {word: id for id, word in enumerate(vocabulary()) if word[0] & 0xC0 == 0x80 or _is_cut(word)}


def _is_cut(word: bytes) -> bool:
    try:
        word.decode()
    except UnicodeDecodeError:
        return True
    return False
