"""Rows: one for each tree that an archive keeps, and the entries of an index by which a row is found.

Words are split here, without case and diacritics, so that they are the same in every database, and nothing that is
looked for means anything to a parser. Every entry begins with a mark of its tenant, so a search reads those of its own
tenant alone.

The store reads no JSON: whoever opens a catalogue says what a row shows, and by which words it is found.
"""

import re
import unicodedata
from collections.abc import Iterable, Sequence
from hashlib import blake2b
from typing import NamedTuple

FACT_BYTES = 10

TENANT_BYTES = 4
"""The bytes of a digest of the tenant at the beginning of each entry; rows of two that share it are told apart."""

WORD_CHARS = 64
"""How much of a word is looked for."""

AROUND_WORDS = 24
"""How many words are shown around those that were looked for."""

IDEOGRAPHS = "\u2e80"
"""The first sign of scripts in which one sign is a word."""

_MARKS, _PART = re.compile("[\u0300-\u036f]+"), re.compile(r"[^\W_]+")
_WORD = re.compile(r"[^\W_]+(?:(?<=\d)[.,]\d[^\W_]*)*")
"""A word; a number is one with its points, so that 3.1 is a beginning of 3.14."""


class CatalogueRow(NamedTuple):
    """The row of a tree: its last use in µs since 1970, the digits of its root and of its newest turn, `shown`, which
    the catalogue gives back as it is, `facts` by which it is found exactly, and `words` by which it is found in part.
    """

    used: int
    root: str
    newest: str
    shown: bytes
    facts: Sequence[str] = ()
    words: str = ""


def fact_of(kind: str, *values: str) -> str:
    """The fact of a kind with these values, as one word of an index."""
    return "f" + blake2b("\0".join((kind, *values)).encode(), digest_size=FACT_BYTES).hexdigest()


def entries_of(tenant: str, row: CatalogueRow) -> str:
    """The entries of a row, with spaces between them."""
    plain = _plain(row.words)
    words = dict.fromkeys((*_WORD.findall(plain), *_PART.findall(plain)))
    return " ".join((*_entries(tenant, "f", row.facts), *_entries(tenant, "w", words)))


def entries_wanted(tenant: str, words: Iterable[str], facts: Iterable[str]) -> dict[str, bool]:
    """The entries that a row has which is looked for, and whether each is but a beginning: all words that begin with
    one letter of an alphabet are too many to be looked up, and it stands for itself. None for words without a letter.
    """
    wanted = dict.fromkeys(_WORD.findall(_plain(" ".join(words))))
    begun = [len(word) > 1 or word >= IDEOGRAPHS for word in wanted]
    return dict(zip(_entries(tenant, "w", wanted), begun, strict=True)) | dict.fromkeys(
        _entries(tenant, "f", facts), False
    )


def text_around(text: str, wanted: Sequence[str]) -> str:
    """The words of a text around the first one that begins as one of these, or with a part of it."""
    plain, words = _plain(text), text.split()
    parts = "|".join(map(re.escape, _WORD.findall(_plain(" ".join(wanted)))))
    found = re.search(rf"(?<![^\W_])(?:{parts})", plain)
    at = len(plain[: found.start()].split()) if found else 0
    begin = max(0, min(at - AROUND_WORDS // 3, len(words) - AROUND_WORDS))
    end = begin + AROUND_WORDS
    return "…" * (begin > 0) + " ".join(words[begin:end]) + "…" * (end < len(words))


def _plain(text: str) -> str:
    """The text without case and diacritics; it has as many words between spaces."""
    return _MARKS.sub("", unicodedata.normalize("NFD", text.casefold()))


def _entries(tenant: str, kind: str, words: Iterable[str]) -> list[str]:
    mark = blake2b(tenant.encode(), digest_size=TENANT_BYTES).hexdigest() + kind
    return [mark + word[:WORD_CHARS] for word in words]
