"""What reads one call: the port between a stream's parser and the forms in which models write calls."""

from collections.abc import Callable
from enum import Enum
from typing import Protocol

import msgspec

MAX_NAME = 128
"""The most characters that stand where a name is expected; a longer one is none, and nobody waits for its end."""


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
    """The marks that mean something where it stands."""

    @property
    def signs(self) -> str | None:
        """The characters that mean something where it stands in its arguments, as in a regex's brackets: text without
        them goes out as it is, and the call needn't be told of it. None where it must be.
        """
        ...

    def text(self, text: str, emit: Emit) -> int:
        """Take text that has none of the awaited marks; how much was taken: what is left is no part of the call."""
        ...

    def mark(self, mark: str, emit: Emit) -> bool:
        """Take one of the awaited marks, or say that it is text where it stands."""
        ...

    def end(self, emit: Emit) -> None:
        """Nothing more comes: become whole if only the closing mark is missing."""
        ...


def legal_name(text: str) -> str | None:
    """The name that a text is, or None: one word, and not too long."""
    name = text.strip()
    return name if name.isprintable() and 0 < len(name) <= MAX_NAME and len(name.split()) == 1 else None
