"""A read cache of turns' messages in this process, so that a chain which was just read or written isn't fetched again.

An entry is never stale: turns don't change, and the server says each time which turns a chain has, and for whom
(lua/chain.lua). The cache saves the bytes and their decoding alone, so others may delete and evict without telling this
process. The one change is erasing a turn's messages: the server marks a tree in which that happened, and nothing of it
is read from here. Keys are complete Redis keys, which name the tenant. Never answer from it without having asked the
server for the chain.
"""

from collections import OrderedDict
from collections.abc import Sequence

from store.turn import Messages

TURN_BYTES = 400
MESSAGE_BYTES = 220
"""What CPython 3.11 needs for an entry and for each message, beside the tokens (measured, 64 bit)."""


class TurnCache:
    """Turns' messages by key, least recently used first, in at most `max_bytes` of memory; 0 keeps nothing."""

    def __init__(self, max_bytes: int) -> None:
        self.max_bytes = max_bytes
        self.bytes = 0
        """The estimated size of all entries."""
        self._entries: OrderedDict[str, Messages] = OrderedDict()

    def get(self, keys: Sequence[str]) -> list[Messages | None]:
        """The messages of each turn that is cached, None for the others; they are then the most recently used, the last
        of them most of all.
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

    def __len__(self) -> int:
        return len(self._entries)


def _size(messages: Messages) -> int:
    return TURN_BYTES + sum(MESSAGE_BYTES + message.size for message in messages)
