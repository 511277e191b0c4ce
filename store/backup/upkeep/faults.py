"""Faults of an archive: the meaning and the repair of each, and the result of a check. Pure."""

from typing import NamedTuple

import msgspec

MOST_REPORTED = 1_000
"""How many faults are named; all are counted."""


class Meaning(NamedTuple):
    """The meaning of a fault, and its remedy by `--repair`; empty where there is none."""

    says: str
    repair: str = ""


MEANINGS = {
    "unreadable": Meaning(
        "a value is damaged", "copied below v1/damaged/, and replaced by one with nothing in it: the rest can be read"
    ),
    "newer": Meaning("a value was written by a later release, or with a dictionary that this one doesn't have"),
    "no-part": Meaning("a part that the first one counts is missing", "an empty one is put in its place"),
    "no-parent": Meaning("a turn continues one that the archive doesn't have"),
    "not-archived": Meaning(
        "a turn in Redis is not in the archive as it is, and isn't noted to be", "noted: the service archives it"
    ),
    "gone-readable": Meaning(
        "the archive says that a turn was deleted, or an item of it erased, and Redis has that: it went back in time",
        "deleted there again, unless a response is under way in it",
    ),
}
"""By the words of the faults."""


class ArchiveFault(NamedTuple):
    """A fault: of a value with that key, or of the turn with that id."""

    what: str
    tenant: str
    key: str
    id: str | None = None
    detail: str = ""


class Verified(msgspec.Struct):
    """The result of a check of an archive: trees, values and turns read there, trees of Redis compared, values that
    were written and never counted, and faults, with whether each was repaired.
    """

    trees: int = 0
    values: int = 0
    turns: int = 0
    compared: int = 0
    uncounted: int = 0
    moved: int = 0
    """Values that earlier repairs have moved away."""
    found: int = 0
    repaired: int = 0
    newer: int = 0
    faults: dict[ArchiveFault, bool] = {}
    unjudged: list[int] = []
    """The shards that were not compared, as they have no archive yet, or not for all that is older than it."""

    @property
    def left(self) -> int:
        """The faults that are still there."""
        return self.found - self.repaired

    def add(self, fault: ArchiveFault, repaired: bool) -> None:
        """Count a fault, and name it as long as there is room."""
        self.found += 1
        self.repaired += repaired
        self.newer += fault.what == "newer"
        if len(self.faults) < MOST_REPORTED:
            self.faults[fault] = repaired
