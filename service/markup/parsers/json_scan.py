"""Finds the end of a JSON object as it comes, in pieces of any size, without reading what is inside."""

import re
from typing import Any

import msgspec

_OUTSIDE_SIGNS = r'{}\[\]"'
_OUTSIDE = re.compile(f"[{_OUTSIDE_SIGNS}]")
_INSIDE = re.compile(r'["\\]')
IN_STRINGS = r'"\\\x00-\x1f'
"""The characters that may not stand in a JSON string as they are, as in a regex's brackets."""
_CONTROL = re.compile(r"[\x00-\x1f]")


class ObjectScan:
    """Feed it the text of an object, or of a string, from its first brace or quote on."""

    def __init__(self) -> None:
        self._depth = 0
        self._in_string = False
        self._escaped = False
        self._legal = True

    @property
    def quoting(self) -> bool:
        """Whether it stands inside a string that JSON allows so far, so that whatever comes may be quoted."""
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
    """What a JSON text says, or None if it is none."""
    try:
        return (msgspec.json.decode(text),)
    except (msgspec.DecodeError, UnicodeError, RecursionError):
        return None
