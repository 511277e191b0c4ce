"""The states of a response: which moves are legal, who makes each, and when.

A response in the foreground is stored once it has ended, with a terminal status. One in the background is stored when
it is accepted, and moves by the rows below. Each move is one script, and every other move is refused. Terminal states
have no row. docs/lifecycle.md draws this table, and tests compare the scripts with it.
"""

from typing import NamedTuple

from store.turn import Status


class Move(NamedTuple):
    """The script that makes a move, who calls it, and when."""

    script: str
    who: str
    when: str


MOVES: dict[Status, dict[Status, Move]] = {
    Status.QUEUED: {
        Status.IN_PROGRESS: Move("claim", "a worker", "it has room, and the job is next in line"),
        Status.CANCELLED: Move("cancel", "any replica", "somebody asks for it"),
    },
    # A job whose worker dies or leaves stays in progress: it waits for the next worker, before all that are queued.
    Status.IN_PROGRESS: {
        Status.COMPLETED: Move("finish", "its worker", "the model ended by itself"),
        Status.INCOMPLETE: Move("finish", "its worker", "a budget ended it"),
        Status.FAILED: Move("finish", "its worker", "the engine failed, time was up, or too many workers died of it"),
        Status.CANCELLED: Move("cancel", "any replica", "somebody asks for it"),
    },
    # A cancelled response is ended by whoever cancelled it, or by a worker if that process dies: its turn is stored and
    # its log closed, and its status stays.
}

TERMINAL = frozenset(Status) - MOVES.keys()
