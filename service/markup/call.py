"""The reader of one call: the port between a stream's parser and the forms in which models write calls; and the
end of a JSON object found as it comes, in pieces of any size, without reading what is inside.
"""

import re
from collections.abc import Callable
from enum import Enum
from typing import Any, Protocol

import msgspec

MAX_NAME = 128
"""The most characters of a name; a longer text is none, and the parser doesn't wait for its end."""

_OUTSIDE_SIGNS = r'{}\[\]"'
_OUTSIDE = re.compile(f"[{_OUTSIDE_SIGNS}]")
_INSIDE = re.compile(r'["\\]')
IN_STRINGS = r'"\\\x00-\x1f'
"""The characters that may not stand in a JSON string as they are, as in a regex's brackets."""
_CONTROL = re.compile(r"[\x00-\x1f]")


class Named(msgspec.Struct, frozen=True):
    """A call is one: it has a name. Its arguments follow as text."""

    name: str


Read = Named | str
Emit = Callable[[Read], None]


class State(Enum):
    """Where a call stands."""

    OPEN = "open"
    WHOLE = "whole"
    """It is written to its end."""
    BROKEN = "broken"
    """It is none, or it will never be whole."""


class Call(Protocol):
    """Reads one call, from behind the mark that opened it."""

    state: State
    awaited: frozenset[str]
    """The marks that mean something at this point."""

    @property
    def signs(self) -> str | None:
        """The characters that mean something at this point of its arguments, as in a regex's brackets: text without
        them goes out as it is, and the call needn't be told of it. None where it must be.
        """
        ...

    def text(self, text: str, emit: Emit) -> int:
        """Takes text without awaited marks; returns how much it took: the rest is no part of the call."""
        ...

    def mark(self, mark: str, emit: Emit) -> bool:
        """Takes one of the awaited marks, or says that it is text at this point."""
        ...

    def end(self, emit: Emit) -> None:
        """Nothing more comes: become whole if only the closing mark is missing."""
        ...


def legal_name(text: str) -> str | None:
    """The name that a text is, or None: one word, and not too long."""
    name = text.strip()
    return name if name.isprintable() and 0 < len(name) <= MAX_NAME and len(name.split()) == 1 else None


class ObjectScan:
    """Feed it the text of an object, or of a string, from its first brace or quote on."""

    def __init__(self) -> None:
        self._depth = 0
        self._in_string = False
        self._escaped = False
        self._legal = True

    @property
    def quoting(self) -> bool:
        """Whether it stands inside a string that JSON allows so far, so that any text may be quoted."""
        return self._in_string and self._legal

    @property
    def signs(self) -> str | None:
        """The characters that change where it stands, as in a regex's brackets; None where any does."""
        if self._escaped:
            return None
        return IN_STRINGS if self._in_string else _OUTSIDE_SIGNS

    def end(self, text: str, at: int = 0) -> int | None:
        """Where in the text the object ends that goes on from `at`, or None if it goes on behind the text."""
        while at < len(text):
            if self._escaped:
                self._escaped = False
                at += 1
                continue
            found = (_INSIDE if self._in_string else _OUTSIDE).search(text, at)
            if self._in_string and _CONTROL.search(text, at, found.start() if found else len(text)):
                self._legal = False
            if found is None:
                return None
            at = found.end()
            if self._step(found[0]):
                return at
        return None

    def _step(self, sign: str) -> bool:
        """Take a sign that counts; whether it ends the object."""
        if sign == '"':
            self._in_string = not self._in_string
        elif sign == "\\":
            self._escaped = True
        else:
            self._depth += 1 if sign in "{[" else -1
        return self._depth == 0 and not self._in_string


def is_object(text: str) -> bool:
    """Whether a text is a JSON object."""
    try:
        return isinstance(msgspec.json.decode(text), dict)
    except (msgspec.DecodeError, UnicodeError, RecursionError):
        return False


def decoded(text: str) -> tuple[Any] | None:
    """The value of a JSON text, in a tuple; None if the text is no JSON."""
    try:
        return (msgspec.json.decode(text),)
    except (msgspec.DecodeError, UnicodeError, RecursionError):
        return None
