"""The phases of a machine: which moves are legal in each, who makes them, and where they lead.

A move that has no entry in its phase's row is refused with OutOfOrder, and has then changed nothing. The last four
moves are never a caller's: what was sampled makes them. Never decide anything here: this is the table alone.
"""

from enum import StrEnum


class Phase(StrEnum):
    """Where a machine stands."""

    NEW = "new"
    QUEUED = "queued"
    SAMPLING = "sampling"
    CONSTRAINED = "constrained"
    FEEDBACK = "waiting for feedback"
    CALLING = "waiting for a tool's outcome"
    FULL = "full"
    DIVERGED = "diverged"
    ENDED = "ended"
    CLOSED = "closed"


class Move(StrEnum):
    """The moves of a machine: its methods, and the effects of sampled tokens."""

    BEGIN = "begin"
    QUEUED = "queued"
    START = "start"
    FEED = "feed"
    GIVE_FEEDBACK = "give_feedback"
    TAKE_OUTCOME = "take_outcome"
    DIVERGE = "diverge"
    END = "end"
    RESULT = "result"
    TERMINAL = "terminal"

    CONSTRAIN = "constrain"
    WAIT = "wait for feedback"
    CALL = "call a tool"
    FILL = "fill"


MOVES: dict[Phase, dict[Move, Phase]] = {
    # Made, and nobody has seen anything of it.
    Phase.NEW: {
        Move.BEGIN: Phase.SAMPLING,  # a run in the foreground, at once
        Move.QUEUED: Phase.QUEUED,  # whoever queues the response; a worker again, before it replays
        Move.DIVERGE: Phase.DIVERGED,  # a worker that can't read the job: it can only be ended
    },
    # Created, and waiting for a worker.
    Phase.QUEUED: {
        Move.START: Phase.SAMPLING,  # the first worker, once; a later one before it replays
        Move.DIVERGE: Phase.DIVERGED,
        Move.END: Phase.ENDED,  # it was cancelled, or waited too long, before a worker began
    },
    # The model writes, or the engine has to be asked to go on.
    Phase.SAMPLING: {
        Move.FEED: Phase.SAMPLING,  # the run, with each chunk
        Move.CONSTRAIN: Phase.CONSTRAINED,  # behind a header whose content has to match a format
        Move.WAIT: Phase.FEEDBACK,  # an undeclared tool was called, or the conversation is compacted
        Move.CALL: Phase.CALLING,  # a tool was called that the service runs; or was before, and is approved now
        Move.FILL: Phase.FULL,  # a stop text, the last call allowed, a fault, or a bug
        Move.DIVERGE: Phase.DIVERGED,  # a worker whose log has other events than these tokens make
        Move.END: Phase.ENDED,  # whoever runs it, as the generation is over
    },
    # Nothing of a constrained content was sampled yet: the engine is asked for it alone.
    Phase.CONSTRAINED: {
        Move.FEED: Phase.SAMPLING,
        Move.FILL: Phase.FULL,  # it ends before its content, which then doesn't match
        Move.DIVERGE: Phase.DIVERGED,
        Move.END: Phase.ENDED,
    },
    # The model doesn't go on before it got feedback.
    Phase.FEEDBACK: {
        Move.GIVE_FEEDBACK: Phase.SAMPLING,  # the run, before it asks the engine again; a replay, as that one did
        Move.DIVERGE: Phase.DIVERGED,
        Move.END: Phase.ENDED,
    },
    # The model doesn't go on before the tool that it called has answered, or failed.
    Phase.CALLING: {
        Move.TAKE_OUTCOME: Phase.SAMPLING,  # the driver, once it ran the call; a replay, as that one did
        Move.DIVERGE: Phase.DIVERGED,
        Move.END: Phase.ENDED,  # it is broken off
    },
    # No more items: what is still sampled is counted and dropped.
    Phase.FULL: {
        Move.FEED: Phase.FULL,
        Move.FILL: Phase.FULL,
        Move.DIVERGE: Phase.DIVERGED,
        Move.END: Phase.ENDED,
    },
    # Its log was written by another release, or can't be read: only its end is left.
    Phase.DIVERGED: {
        Move.START: Phase.DIVERGED,
        Move.END: Phase.ENDED,
    },
    # Its items are closed.
    Phase.ENDED: {
        Move.RESULT: Phase.ENDED,
        Move.TERMINAL: Phase.CLOSED,  # whoever runs it, once the turn is stored
    },
    # Its terminal event was made. Nothing moves on from here.
    Phase.CLOSED: {
        Move.RESULT: Phase.CLOSED,
        Move.TERMINAL: Phase.CLOSED,  # a worker again, where it was steered before that event was stored
    },
}


class OutOfOrder(RuntimeError):
    """A move that is not legal in a machine's phase. It has changed nothing."""

    def __init__(self, move: Move, phase: Phase) -> None:
        super().__init__(f"'{move}' is not legal for a machine that is {phase}")
        self.move = move
        self.phase = phase


def after(phase: Phase, move: Move) -> Phase:
    """The phase that a move leads to. Raises OutOfOrder."""
    try:
        return MOVES[phase][move]
    except KeyError:
        raise OutOfOrder(move, phase) from None
