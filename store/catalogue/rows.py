"""Rows: one for each tree that an archive keeps, and the entries of an index by which a row is found.

Words are split here, without case and marks, so that they are the same in every database, and nothing that is looked
for means anything to a parser. Every entry begins with a mark of its tenant, so a search reads those of its own
tenant alone.

The store reads no JSON: whoever opens a catalogue says what a row shows, and by which words it is found.
"""

import re
from bisect import bisect_left
from collections.abc import Iterable, Sequence
from functools import cache
from hashlib import blake2b
from typing import NamedTuple
from unicodedata import category, normalize

FACT_BYTES = 10

TENANT_BYTES = 4
"""The bytes of a digest of the tenant at the beginning of each entry; rows of two that share it are told apart."""

WORD_CHARS = 64
"""How much of a word is looked for."""

AROUND_CHARS = 160
"""How much is shown around the words that were looked for."""

_SIGN = "[\u0e00-\u0eff\u1000-\u109f\u1780-\u17ff\u2e80-\ua4cf]"
"""A sign of scripts without spaces between words: Thai, Lao, Burmese, Khmer, Chinese and Japanese."""

_SIGNS, _ASKED_PAIR, _PAIR = map(
    re.compile, (_SIGN, f"(?=({_SIGN}{_SIGN}|(?<!{_SIGN}){_SIGN}))", f"(?=({_SIGN}{{1,2}}))")
)
"""Two signs beside each other stand for a word, as any of them may begin one; the last one stands alone, too."""

_PART = re.compile(r"[^\W_]+")
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
    told = "".join(f"{len(value)}:{value}" for value in (kind, *values))
    return "f" + blake2b(told.encode(), digest_size=FACT_BYTES).hexdigest()


def entries_of(tenant: str, row: CatalogueRow) -> str:
    """The entries of a row, with spaces between them."""
    plain = _plain(row.words)
    spaced = _SIGNS.sub(" ", plain)
    words = dict.fromkeys((*_WORD.findall(spaced), *_PART.findall(spaced), *_PAIR.findall(plain)))
    return " ".join((*_entries(tenant, "f", row.facts), *_entries(tenant, "w", words)))


def entries_wanted(tenant: str, words: Iterable[str], facts: Iterable[str]) -> dict[str, bool]:
    """The entries that a row has which is looked for, and whether each is but a beginning: all words that begin with
    one letter of an alphabet are too many to be looked up, and it stands for itself. None for words without a letter.
    """
    wanted = _words_wanted(words)
    begun = [len(word) > 1 or bool(_SIGNS.match(word)) for word in wanted]
    return dict(zip(_entries(tenant, "w", wanted), begun, strict=True)) | dict.fromkeys(
        _entries(tenant, "f", facts), False
    )


def text_around(text: str, wanted: Iterable[str]) -> str:
    """The text around the first word that begins as one of these, or with a part of it."""
    parts, word = "|".join(map(re.escape, _words_wanted(wanted))), rf"(?<![^\W_])|(?={_SIGN})"
    found = re.search(rf"(?:{word})(?:{parts})", _plain(text))
    # as many signs of the text as what stands before it in plain
    at = bisect_left(range(len(text)), found.start(), key=lambda end: len(_plain(text[:end]))) if found else 0
    begin = max(0, at - AROUND_CHARS // 3)
    around = " ".join(text[begin : begin + AROUND_CHARS].split())
    return "…" * (begin > 0) + around + "…" * (begin + AROUND_CHARS < len(text))


def _words_wanted(words: Iterable[str]) -> list[str]:
    plain = _plain(" ".join(words))
    return list(dict.fromkeys((*_WORD.findall(_SIGNS.sub(" ", plain)), *_ASKED_PAIR.findall(plain))))


@cache
def _marks() -> re.Pattern[str]:
    return re.compile(f"[{''.join(sign for sign in map(chr, range(0x300, 0x10000)) if category(sign)[0] == 'M')}]+")


def _plain(text: str) -> str:
    """The text without case and without marks that belong to a letter, as accents and vowels are."""
    return _marks().sub("", normalize("NFD", text.casefold()))


def _entries(tenant: str, kind: str, words: Iterable[str]) -> list[str]:
    mark = blake2b(tenant.encode(), digest_size=TENANT_BYTES).hexdigest() + kind
    return [mark + word[:WORD_CHARS] for word in words]
