"""Reading payloads: by plain MGET, as bytes through Lua cost ten times as much, and through the read cache.

The cache has turns' messages in this process, so that a chain which was just read or written isn't fetched again.

An entry is never stale: turns don't change, and the server says each time which turns a chain has, and for whom
(lua/chain.lua). The cache only saves the bytes and their decoding, so others may delete and evict without telling this
process. The one change is erasing a turn's messages: the server marks the tree, and none of its turns is read from
here. Keys are complete Redis keys, which name the tenant. Never answer from the cache without asking the server for
the chain.
"""

import time
from collections import OrderedDict
from collections.abc import Callable, Sequence
from typing import cast

from store import codec
from store.redis.connection import Operation
from store.turn import Messages

TURN_BYTES = 400
MESSAGE_BYTES = 220
"""The bytes that CPython 3.11 needs for an entry and for each message, beside the tokens (measured, 64 bit)."""


MGET_KEYS = 4_000
"""The most values that one command reads, so that others are served in between."""


class TurnCache:
    """Turns' messages by key, least recently used first, in at most `max_bytes` of memory; 0 keeps nothing."""

    def __init__(self, max_bytes: int) -> None:
        self.max_bytes = max_bytes
        self.bytes = 0
        """The estimated size of all entries."""
        self._entries: OrderedDict[str, Messages] = OrderedDict()

    def get(self, keys: Sequence[str]) -> list[Messages | None]:
        """The messages of each cached turn, None for the others. The cached ones become the most recently used, the
        last of them most of all.
        """
        entries, used = self._entries, self._entries.move_to_end
        found = [entries.get(key) for key in keys]
        for key, messages in zip(keys, found, strict=True):
            if messages is not None:
                used(key)
        return found

    def put(self, key: str, messages: Messages) -> None:
        """Add a turn, and drop others to make room. One that takes more than a quarter of the cache isn't added."""
        size = _size(messages)
        if key in self._entries or size > self.max_bytes // 4:
            return
        self._entries[key] = messages
        self.bytes += size
        while self.bytes > self.max_bytes:
            _, oldest = self._entries.popitem(last=False)
            self.bytes -= _size(oldest)

    def drop(self, key: str) -> None:
        """Remove a turn, if it is cached."""
        dropped = self._entries.pop(key, None)
        if dropped is not None:
            self.bytes -= _size(dropped)

    async def turns(self, operation: Operation, keys: list[str], *, erased: bool) -> codec.StoredTurns | None:
        """The messages under `keys`, which are a chain as the server has just said; None when one is gone.

        With `erased`, where messages of their tree were erased, none of them is read from the cache.
        """
        if erased:
            for key in keys:
                self.drop(key)
        turns = self.get(keys)
        missing = [at for at, turn in enumerate(turns) if turn is None]
        blobs = await mget(operation, [keys[at] for at in missing])
        if None in blobs:
            return None
        stored = cast(list[bytes | Messages], turns)
        for at, blob in zip(missing, blobs, strict=True):
            stored[at] = cast(bytes, blob)

        return codec.StoredTurns(stored, None if erased else lambda at, messages: self.put(keys[at], messages))

    def __len__(self) -> int:
        return len(self._entries)


class Uses:
    """The turns whose use this process has noted lately, with their roots: reading one of them again writes nothing."""

    MOST = 10_000

    def __init__(self, seconds: float, clock: Callable[[], float] = time.monotonic) -> None:
        """Each use is noted anew after `seconds`."""
        self._seconds, self._clock = seconds, clock
        self._span = -1
        self._noted: dict[str, str] = {}

    def root_of(self, turn: str) -> str | None:
        """The root of a turn whose use was noted; None where it is to be noted."""
        span = int(self._clock() / self._seconds) if self._seconds else self._span + 1
        if span != self._span or len(self._noted) >= self.MOST:
            self._span, self._noted = span, {}
        return self._noted.get(turn)

    def note(self, turn: str, root: str) -> None:
        """The use of a turn was noted."""
        self._noted[turn] = root


def _size(messages: Messages) -> int:
    return TURN_BYTES + sum(MESSAGE_BYTES + message.size for message in messages)


async def mget(operation: Operation, keys: Sequence[str]) -> list[bytes | None]:
    """The values of any number of keys of one shard. Raises redis-py's errors."""
    blobs: list[bytes | None] = []
    for start in range(0, len(keys), MGET_KEYS):
        blobs += await operation.command("MGET", *keys[start : start + MGET_KEYS])
    return blobs


def first_within(most_bytes: int, most_missing: int, blobs: list[bytes | None]) -> list[bytes | None]:
    """The first response blobs that come to at most `most_bytes`, and one at least. At most `most_missing` of them are
    missing: these may be in the archive, and of any size.
    """
    size = missing = 0
    for at, blob in enumerate(blobs):
        size += 0 if blob is None else codec.response_size(blob)
        missing += blob is None
        if at and (size > most_bytes or missing > most_missing):
            return blobs[:at]
    return blobs
