"""Conversations as they grow: the turns that bench/store.py appends, and the plain writes that carry the same bytes."""

import random
from collections.abc import Iterator
from itertools import cycle

from bench._rig import Calls, Commands, recorded
from store.codec import encode_messages, encode_response
from store.history.caps import Caps
from store.history.history import ConversationHistoryStore
from store.redis.wire import pack
from store.turn import Status, StoredMessage, Turn

TENANT = "bench"
MESSAGES_SHARE = 3
"""One byte in so many of a turn is of its messages, the others are of its response."""

TREE_TURNS = 20
SHAPES = {"roots": 1, "chains": TREE_TURNS, "forks": TREE_TURNS}
"""How a tree grows, and to how many turns: a root alone, each turn after the one before, all others after the root."""


class Conversations:
    """Turns of `size` bytes of payload, as they are stored, in trees of the given shapes in turn."""

    def __init__(self, size: int, shapes: tuple[str, ...] = tuple(SHAPES)) -> None:
        self.size = size
        self.stored_bytes = 0
        """The messages blobs and response blobs of all turns so far."""
        self.last = ""
        self._shapes = cycle(shapes)
        self._left = 0
        self._parent: str | None = None
        self._shape = ""

    def commands(self, count: int, caps: Caps) -> Commands:
        """What a store with `caps` sends to append the next `count` turns."""
        return recorded(self.appends(count), caps=caps)

    def appends(self, count: int) -> Calls:
        """Calls that append the next `count` turns."""

        async def calls(store: ConversationHistoryStore) -> None:
            for _ in range(count):
                await store.append(TENANT, self._next(store))

        return calls

    def _next(self, store: ConversationHistoryStore) -> Turn:
        if self._left == 0:
            self._shape = next(self._shapes)
            self._left, self._parent = SHAPES[self._shape], None
        turn = turn_of(store.new_id(self._parent), self._parent, self.size)
        self._left -= 1
        if self._parent is None or self._shape == "chains":
            self._parent = turn.id
        self.last = turn.id
        self.stored_bytes += sum(map(len, blobs_of(turn)))
        return turn


class PlainWrites:
    """The rival: two SETs and an UNLINK in a MULTI, which is the least that writes a turn whole and takes one away."""

    def __init__(self, size: int, level: int) -> None:
        self._blobs = blobs_of(turn_of("resp_" + "0" * 48, None, size))
        self._level = level
        self._next = 0

    def fill(self) -> Iterator[Commands]:
        """What writes the first `level` turns, some at a time."""
        for start in range(0, self._level, 1000):
            count = min(1000, self._level - start)
            yield [pack(self._set(number)) for number in range(start, start + count)]
        self._next = self._level

    def commands(self, count: int) -> Commands:
        """What writes the next `count` turns and takes away as many; each asks for PLAIN_REPLIES."""
        made: Commands = []
        for number in range(self._next, self._next + count):
            old = number - self._level
            steps = (
                ("MULTI",),
                ("SET", self._key("messages", number), self._blobs[0]),
                ("SET", self._key("response", number), self._blobs[1]),
                ("UNLINK", self._key("messages", old), self._key("response", old)),
                ("EXEC",),
            )
            made.append(b"".join(map(pack, steps)))
        self._next += count
        return made

    def _set(self, number: int) -> tuple[str | bytes, ...]:
        return (
            *("MSET", self._key("messages", number), self._blobs[0]),
            *(self._key("response", number), self._blobs[1]),
        )

    def _key(self, family: str, number: int) -> str:
        return f"plain:{{00}}:t:{TENANT}:{family}:{number:048x}"


PLAIN_REPLIES = 5


def turn_of(id: str, parent: str | None, size: int) -> Turn:
    """A turn of which `size` bytes or a few more are stored: nothing in it can be compressed."""
    messages = (StoredMessage("user", random.randbytes(size // MESSAGES_SHARE)),)
    return Turn(id, parent, Status.COMPLETED, messages, random.randbytes(size - size // MESSAGES_SHARE))


def blobs_of(turn: Turn) -> tuple[bytes, bytes]:
    """What is stored of a turn as payload."""
    return encode_messages(turn.messages), encode_response(turn.response, turn.items)
