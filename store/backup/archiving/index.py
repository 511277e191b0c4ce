"""The index of a tree in an archive: which turns there are, in which part, and what they continue; not what they say.

It is made while the parts are read one after the other, and is all that is held of those that were read: so a tree may
be larger than memory. Nobody stores it. Pure.
"""

from collections.abc import Iterable

import msgspec

from store.backup.archiving.parts import Outline

ENTRY_BYTES = 300
"""About what a turn takes in an index."""


class Entry(msgspec.Struct, gc=False):
    """A turn: the part that has it, the bytes of its messages, 0 where it has none, and of all its content; whether it
    is deleted, and whether something of it was erased.
    """

    number: int
    parent: str | None
    messages: int
    payload: int
    deleted: bool
    erased: bool


class Index:
    """What is known of the parts that were read, from the first on."""

    def __init__(self) -> None:
        self.entries: dict[str, Entry] = {}
        self.filled: list[int] = []
        """How many bytes of content each part has."""
        self.doubled = set[int]()
        """The parts with turns that an earlier one has: they were written and never counted, and count for nothing."""
        self.parts = 1
        self.gone: dict[str, bool] = {}
        self.gone_trees: tuple[str, ...] = ()
        self.elsewhere: tuple[str, ...] = ()

    @property
    def held(self) -> int:
        """About how many bytes it takes."""
        return ENTRY_BYTES * (len(self.entries) + len(self.gone))

    def add(self, outline: Outline) -> None:
        """Read the next part."""
        number = len(self.filled)
        if number == 0:
            self.parts, self.gone = outline.parts, outline.gone
            self.gone_trees, self.elsewhere = outline.gone_trees, outline.elsewhere
        filled = 0
        for turn in outline.turns:
            if turn.id in self.entries:
                self.doubled.add(number)
                continue
            messages, response = len(turn.messages), len(turn.response)
            self.entries[turn.id] = Entry(
                number, turn.parent, messages, turn.payload, deleted=not response, erased=bool(turn.erased)
            )
            filled += turn.payload
        self.filled.append(filled)

    def path(self, id: str) -> list[str] | None:
        """The ids from a root to a turn that is there and not deleted; None where there is no such turn, or one above
        it is missing.
        """
        entry = self.entries.get(id)
        if entry is None or self.is_gone(id):
            return None
        path = [id]
        while entry.parent is not None:
            path.append(entry.parent)
            entry = self.entries.get(entry.parent)
            if entry is None or len(path) > len(self.entries):
                return None
        return path[::-1]

    def is_gone(self, id: str) -> bool:
        """Whether a turn was deleted, as far as is known here."""
        entry = self.entries.get(id)
        return id in self.gone or (entry is not None and entry.deleted)

    def numbers(self, ids: Iterable[str]) -> list[int]:
        """The parts that have some turns, in order."""
        return sorted({self.entries[id].number for id in ids})
