"""The port of archives: the verbs of a backend, and the bounds of its arguments.

A backend holds values by key. It changes one only where nobody else has since, by compare-and-set: that is all that
the correctness of an archive rests on, so a probe proves it of every store before it is used (archive.py). There
is no way to write without a condition. Every backend passes one suite, test_conformance.py.

Callers use `store.archive.archive.Archive`, which checks its arguments, bounds time and tries again. A backend
does none of that.
"""

import re
from collections.abc import Sequence
from dataclasses import dataclass
from secrets import token_hex
from typing import NamedTuple, Protocol

from store.archive.memory import HELD_BYTES

MOST_KEY_CHARS = 512
"""Object stores take 1,024 bytes; the other half is for the prefix of an archive in its bucket."""

MOST_VALUE_BYTES = 64 << 20
MOST_LISTED = 1_000
"""How many keys a page has at most, which is as many as S3 tells at once."""

MOST_DELETED = 1_000
"""How many keys are deleted at once at most, for the same reason."""

ETAG_BYTES = 8

_SEGMENT = r"(?!\.{1,2}(?:/|$))[A-Za-z0-9_.-]+"
_KEY = re.compile(rf"{_SEGMENT}(?:/{_SEGMENT})*", re.ASCII)


@dataclass(frozen=True, slots=True)
class Bounds:
    """How long a call may take and how many there are at once.

    `total_seconds` bounds a call with all that it waits for and all its tries; `request_seconds` one try;
    `connect_seconds` the way to a server. `concurrency` is how many calls of a process are under way at once, and
    `held_bytes` how many bytes the readers of trees hold at once (memory.py).
    """

    total_seconds: float = 5.0
    request_seconds: float = 3.0
    connect_seconds: float = 1.0
    concurrency: int = 64
    held_bytes: int = HELD_BYTES


class Stored(NamedTuple):
    """A value, and its etag: a word by which to replace exactly this one. Only the backend knows what it means."""

    value: bytes
    etag: str


def mark_of_etag(etag: str) -> str:
    """The part of an etag that a list tells, too: some stores tell neither versions there nor quotes."""
    return etag.rpartition(" ")[2].strip('"')


class ArchiveEntry(NamedTuple):
    """A key in a list, with the bytes of its value, when that was written, in seconds since 1970, and the `mark` of its
    etag (`mark_of_etag`).
    """

    key: str
    size: int
    changed: float
    mark: str


class Backend(Protocol):
    """The backend of an archive. All raise ArchiveUnavailable, after which another try may help, and ArchiveRefused,
    after which none does.
    """

    async def get(self, key: str) -> Stored | None:
        """The stored value, as the last put that returned left it or a later one; None where there is none."""
        ...

    async def put(self, key: str, value: bytes, only_if: str | None) -> str | None:
        """Store a value in the place of the one with the etag `only_if`, or where nothing is if that is None; its
        etag. None where something else is there, with nothing done. Once it returns, the value is on a disk.
        """
        ...

    async def delete(self, keys: Sequence[str]) -> None:
        """Delete some keys, as far as they are there."""
        ...

    async def list(self, prefix: str, after: str, limit: int) -> Sequence[ArchiveEntry]:
        """The first keys below a folder that come after another key, in the order of their ASCII codes."""
        ...

    def warnings(self) -> Sequence[str]:
        """Warnings for the operator about the store, as far as it was seen by now."""
        ...

    async def close(self) -> None:
        """Give back what it holds. Calls under way may fail."""
        ...


def checked_key(key: str) -> str:
    """The key itself. Raises ValueError unless it is parts of A-Z a-z 0-9 _ . - between slashes, of which none is `.`
    or `..`, and has at most MOST_KEY_CHARS.
    """
    if len(key) > MOST_KEY_CHARS or not _KEY.fullmatch(key):
        raise ValueError(f"key {key[:MOST_KEY_CHARS]!r} must be parts of A-Z a-z 0-9 _ . - between slashes")
    return key


def checked_prefix(prefix: str) -> str:
    """The prefix itself. Raises ValueError unless it is empty, or a key with a slash behind it: it names a folder."""
    if prefix and not (prefix.endswith("/") and checked_key(prefix[:-1])):
        raise ValueError(f"prefix {prefix!r} must end with a slash")
    return prefix


def end_of(prefix: str) -> str:
    """The first string that comes after all keys below a folder: 0 follows a slash, and ~ all that a key may have."""
    return prefix[:-1] + "0" if prefix else "~"


def new_etag() -> str:
    """An etag that no other write has, for a backend that has to make them itself."""
    return token_hex(ETAG_BYTES)
