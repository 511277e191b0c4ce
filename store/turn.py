"""The values of the store: a turn, its messages, and the chain that a turn ends.

They are frozen, so a value can't be changed after it was read, and a reader's chain is its own for ever.

A response in the foreground is stored once it has ended, with a terminal status. One in the background is stored when
it is accepted, and moves by the rows of MOVES. Each move is one script, and every other move is refused. Terminal
states have no row. docs/architecture.md draws this table, and tests compare the scripts with it.
"""

from collections.abc import Sequence
from enum import StrEnum
from hashlib import blake2b
from itertools import chain
from typing import NamedTuple

import msgspec


class Status(StrEnum):
    """The status of a response. MOVES has the legal moves; `CONTINUABLE` has the statuses that allow a child.

    A new one takes a new version of each value that has it, as an earlier release can't read that.
    """

    QUEUED = "queued"
    IN_PROGRESS = "in_progress"
    COMPLETED = "completed"
    INCOMPLETE = "incomplete"
    CANCELLED = "cancelled"
    FAILED = "failed"


CONTINUABLE = frozenset({Status.COMPLETED, Status.INCOMPLETE, Status.CANCELLED})


class StoredMessage(msgspec.Struct, frozen=True, array_like=True):
    """One Harmony message as it stands in a prompt.

    `tokens` are little-endian u32 ids from `<|start|>` to the closing token. With the header fields they are the only
    copy of the message: its text is decoded from them. `call_id` is set on a function call and on its output. `item` is
    the number of the item that it shows among those of its turn; None where nobody noted it.

    One without tokens is a note: no prompt has it, and its `role` says how to read its `name`, a JSON text.
    """

    role: str
    tokens: bytes
    channel: str | None = None
    recipient: str | None = None
    name: str | None = None
    content_type: str | None = None
    call_id: str | None = None
    item: int | None = None

    @property
    def size(self) -> int:
        """The approximate bytes of memory that it takes, beyond those of every message."""
        return len(self.tokens) + len(self.name or "")


Messages = tuple[StoredMessage, ...]
"""The messages that one turn added, in order."""

Notes = dict[str, list[StoredMessage]]


class Expense(msgspec.Struct, frozen=True):
    """The tokens of a response, with its model and the key of its tenant; empty for a key that the registry lacks.

    Cached tokens are among those of the input, and reasoning tokens among those of the output. A name is of bounded
    length, without `/` in that of a key.
    """

    key: str
    model: str
    input_tokens: int = 0
    cached_tokens: int = 0
    output_tokens: int = 0
    reasoning_tokens: int = 0


SAID_BYTES = 16
"""The length of a digest of what was said. It has a tenant's secret in it, so nobody can look for two texts of one."""

PICTURE_DIGEST_BYTES = 32

MOST_PICTURES, MOST_PICTURE_BYTES = 100, 32 << 20
"""The most pictures of one turn, and the most bytes of all of them."""

PICTURES = "pictures"
"""The role of a note that names, by their digests in hex, the pictures of the message before it."""

LISTED_PICTURES = "listed pictures"
"""The role of a note that names pictures which are only listed: no prompt shows them."""


class Picture(msgspec.Struct, frozen=True, array_like=True):
    """A picture that a turn shows: its bytes, as they came, and their digest."""

    digest: bytes
    data: bytes

    @classmethod
    def of(cls, data: bytes) -> "Picture":
        """The picture with these bytes; of a MiB in about a millisecond."""
        return cls(digest_of(data), data)


def digest_of(data: bytes) -> bytes:
    """The digest by which a picture is known to its tenant."""
    return blake2b(data, digest_size=PICTURE_DIGEST_BYTES).digest()


def check_pictures(pictures: Sequence[Picture]) -> None:
    """Raises ValueError for pictures that no turn may have: too many, too large, empty, or with no digest."""
    size = sum(len(picture.data) for picture in pictures)
    if len(pictures) > MOST_PICTURES or size > MOST_PICTURE_BYTES:
        bounds = f"{MOST_PICTURES} pictures, of {MOST_PICTURE_BYTES:,} bytes"
        raise ValueError(f"a turn may have {bounds}, and this one has {len(pictures)}, of {size:,}")
    if not all(picture.data and len(picture.digest) == PICTURE_DIGEST_BYTES for picture in pictures):
        raise ValueError(f"a picture needs bytes, and a digest of {PICTURE_DIGEST_BYTES}")


class Turn(msgspec.Struct, frozen=True):
    """The stored part of a response: its additions to the conversation; written once and never changed.

    `response` is the response as served and `items` the input items as listed, both JSON that the store never reads.
    `expense` is counted as the turn is stored, and isn't part of it. `said` is a digest of SAID_BYTES of all that was
    said up to the end of the turn, by which `recognise` finds it; a turn without one is never found.

    `pictures` are kept for as long as a turn of the tenant shows them: until the turn goes, its messages are erased, or
    a redaction leaves no note (PICTURES, LISTED_PICTURES) that names them. A background response shows those of its
    submission, and those of its end.
    """

    id: str
    parent: str | None
    status: Status
    messages: Messages
    response: bytes
    items: bytes = b"[]"
    expense: Expense | None = None
    said: bytes = b""
    pictures: tuple[Picture, ...] = ()

    def __post_init__(self) -> None:
        """Raises ValueError for a digest of another length, and for pictures beyond the bounds."""
        check_pictures(self.pictures)
        if self.said and len(self.said) != SAID_BYTES:
            raise ValueError(f"the digest of what was said has {len(self.said)} bytes, and must have {SAID_BYTES}")


class Chain(msgspec.Struct, frozen=True):
    """The turns from a root to `tip`, oldest first: ids, and the messages that each turn added.

    `turns` compares like a tuple; the store's turns are decoded on first use. `pin` is set when the chain was read to
    be continued, and goes to `append` or `unpin`. It is `cut` where messages of it are left out or were erased, so that
    a call may lack its output, and an output its call.
    """

    ids: tuple[str, ...] = ()
    turns: Sequence[Messages] = ()
    pin: str | None = None
    cut: bool = False

    @property
    def tip(self) -> str | None:
        """The id of the newest turn, or None for an empty chain."""
        return self.ids[-1] if self.ids else None

    def then(self, id: str, messages: Messages) -> "Chain":
        """The chain with a turn more, which adds these messages; nothing pins it."""
        return Chain((*self.ids, id), (*self.turns, messages), cut=self.cut)

    def messages(self) -> list[StoredMessage]:
        return self.part()[0]

    def notes(self) -> Notes:
        return self.part()[1]

    def part(self) -> tuple[list[StoredMessage], Notes]:
        all_of_it, notes = list(chain.from_iterable(self.turns)), Notes()
        for note in [message for message in all_of_it if not message.tokens]:
            notes.setdefault(note.role, []).append(note)
        return [message for message in all_of_it if message.tokens] if notes else all_of_it, notes


class Found(msgspec.Struct, frozen=True):
    """A stored response: `response` is as served, or while it is `under_way` as it was accepted.

    `background` is `plain` or `stream`, and None for one in the foreground. With `logged` its events can be read.
    """

    status: Status
    response: bytes
    background: str | None
    under_way: bool
    logged: bool


class StatusMove(NamedTuple):
    """The script that makes a move, who calls it, and when."""

    script: str
    who: str
    when: str


MOVES: dict[Status, dict[Status, StatusMove]] = {
    Status.QUEUED: {
        Status.IN_PROGRESS: StatusMove("claim", "a worker", "the worker has room, and the job is next in line"),
        Status.CANCELLED: StatusMove("cancel", "any replica", "a client cancels the response"),
    },
    # A job whose worker dies or leaves stays in progress: it waits for the next worker, before all that are queued.
    Status.IN_PROGRESS: {
        Status.COMPLETED: StatusMove("finish", "its worker", "the model finished"),
        Status.INCOMPLETE: StatusMove("finish", "its worker", "a budget ran out"),
        Status.FAILED: StatusMove(
            "finish", "its worker", "the engine failed, the time limit passed, or too many workers in a row failed"
        ),
        Status.CANCELLED: StatusMove("cancel", "any replica", "a client cancels the response"),
    },
    # The process that cancelled a response ends it, or a worker if that process dies: it stores the turn and closes
    # the log, and the status stays.
}

TERMINAL = frozenset(Status) - MOVES.keys()
