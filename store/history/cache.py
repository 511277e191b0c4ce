"""A read cache of turns' messages in this process, so that a chain which was just read or written isn't fetched again.

It can't be wrong, only useless: a turn never changes, and whether one is still there, for whom, and what its chain is,
the server says each time (lua/chain.lua); the cache spares the bytes and their decoding alone. So deletion and eviction
by others need no message to us. Erasing a turn's messages is the one change that there is: of a tree in which that
happened the server says so too, and nothing of it is answered from here. Its keys are whole Redis keys, which name the
tenant. Never answer from it without having asked the server for the chain.
"""

from collections import OrderedDict

from store.turn import Messages

TURN_BYTES = 400
MESSAGE_BYTES = 220
"""What Python needs for an entry and for each message, beside the tokens (measured on CPython 3.11, 64 bit)."""


class TurnCache:
    """Turns' messages by key, least recently used first, in at most `max_bytes` of memory; 0 keeps nothing."""

    def __init__(self, max_bytes: int) -> None:
        self.max_bytes = max_bytes
        self.bytes = 0
        """What the entries take, as far as we know."""
        self._entries: OrderedDict[str, Messages] = OrderedDict()

    def get(self, key: str) -> Messages | None:
        """A turn's messages, if they are here; it is then the most recently used."""
        found = self._entries.get(key)
        if found is not None:
            self._entries.move_to_end(key)
        return found

    def put(self, key: str, messages: Messages) -> None:
        """Remember a turn, and forget others to make room. One that is too big for a quarter of it isn't kept."""
        size = _size(messages)
        if key in self._entries or size > self.max_bytes // 4:
            return
        self._entries[key] = messages
        self.bytes += size
        while self.bytes > self.max_bytes:
            _, oldest = self._entries.popitem(last=False)
            self.bytes -= _size(oldest)

    def drop(self, key: str) -> None:
        """Forget a turn, if it is here."""
        dropped = self._entries.pop(key, None)
        if dropped is not None:
            self.bytes -= _size(dropped)

    def __len__(self) -> int:
        return len(self._entries)


def _size(messages: Messages) -> int:
    return TURN_BYTES + sum(MESSAGE_BYTES + len(message.tokens) for message in messages)
