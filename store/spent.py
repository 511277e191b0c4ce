"""The tokens that work took, as its tenant's limits count them (limits.py)."""

from enum import IntEnum
from typing import NamedTuple


class Spent(NamedTuple):
    """The tokens that a piece of work has read and written."""

    reads: int
    writes: int


class Unspent(IntEnum):
    """The ways to settle work whose tokens aren't known."""

    UNKNOWN = -1  # all that was reserved for it counts
    NEVER_BEGAN = -2  # nothing does


class Over(NamedTuple):
    """Work that is over: its id, the tokens that it took, and the token of its reservation; '' for any."""

    id: str
    spent: Spent | Unspent
    token: str = ""
