"""Rows: one for each tree that an archive keeps, by its tenant, its shard and its digits.

A row is made of its tree whenever that changes in the archive, and of nothing else: so a catalogue that is lost is made
again. Who makes a row asks for its version first, then reads the tree, and puts the row only if it still has that
version; else it begins again. So a late writer never undoes what came after it. Of a deleted tree a bare row stays,
which nobody is told of, for as long as the archive keeps the tree's tombstones.

The store reads no JSON: whoever opens a catalogue says what a row shows, and by which words it is found.
"""

import re
from collections.abc import Sequence
from hashlib import blake2b
from secrets import token_hex
from typing import NamedTuple, Protocol

from store.history.elsewhere import KeptQuery, KeptTree

FACT_BYTES = 10
VERSION_BYTES = 8

AROUND_WORDS = 24
"""How many words are shown around those that were looked for."""

MOST_SORTED = 3_000
"""From how many rows that match on it is quicker to look at all rows in their order until enough of them match."""


IDEOGRAPHS = "\u2e80"
"""The first sign of scripts in which one sign is a word."""

_LAST_PART = re.compile(r"[^\W_]+(?=[\W_]*$)")

MAKING, WHOLE = "making", "whole"
"""The notes of a catalogue by which words it is being made, with a token of that, and by which it was made whole."""


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


class Catalogue(Protocol):
    """A catalogue in a database. All raise ArchiveUnavailable."""

    async def note(self, name: str) -> str:
        """A note; empty where there is none."""
        ...

    async def begin(self, about: str, besides: str = "") -> str:
        """Note that it is made by these words, and empty it, with all other notes, where that had not been begun
        `besides` what was. Returns the note MAKING: these words and a token of their own.
        """
        ...

    async def put_note(self, name: str, value: str, making: str, only_if: str | None = None) -> bool:
        """Put a note while MAKING is that, and in the place of that value; whether it was."""
        ...

    async def trees(self, after: tuple[str, str], limit: int) -> Sequence[tuple[str, str]]:
        """The tenants and trees of the next rows behind one, bare ones too, those of a tenant one behind the other."""
        ...

    async def version(self, tenant: str, tree: str) -> str:
        """The version of a row; empty where there is none."""
        ...

    async def row(self, tenant: str, tree: str) -> CatalogueRow | None:
        """The row of a tree without its facts and its words; None where there is none, or a bare one."""
        ...

    async def put(self, tenant: str, tree: str, row: CatalogueRow | None, only_if: str) -> bool:
        """Put a row, or a bare one for None, in the place of that with a version; False where it has another one."""
        ...

    async def remove(self, tenant: str, tree: str, only_if: str) -> bool:
        """Remove the row with a version; False where there is another one."""
        ...

    async def erase(self, tenant: str, until: int) -> None:
        """Remove the rows of a tenant that were used last until then, in µs since 1970; bare ones stay."""
        ...

    async def find(self, tenant: str, query: KeptQuery) -> Sequence[KeptTree]:
        """The rows of a tenant that are wanted, the one used last first."""
        ...

    async def note_untidy(self) -> None:
        """Have `tidy` take out all that was removed, also words of trees that went on."""
        ...

    async def tidy(self) -> bool:
        """Take some of what was removed out of the index of words; False once there is nothing left of it."""
        ...

    async def close(self) -> None:
        """Give back what it holds."""
        ...


def fact_of(kind: str, *values: str) -> str:
    """The fact of a kind with these values, as one word of an index."""
    return "f" + blake2b("\0".join((kind, *values)).encode(), digest_size=FACT_BYTES).hexdigest()


def is_beginning(word: str) -> bool:
    """Whether a word is looked for by its beginning: all words that begin with one letter of an alphabet are too many
    to be looked up, and it stands for itself.
    """
    last = _LAST_PART.search(word)
    return last is None or len(last[0]) > 1 or last[0] >= IDEOGRAPHS


def making_of(about: str) -> str:
    """A note that a catalogue is made by these words, which no other one has had."""
    return f"{about} {new_version()}"


def is_by(making: str, about: str) -> bool:
    """Whether something is made by these words."""
    return making.rpartition(" ")[0] == about


def new_version() -> str:
    """A version that no other row has had."""
    return token_hex(VERSION_BYTES)
