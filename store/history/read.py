"""Reading payloads: plain MGET, as bytes through Lua cost ten times as much, and the read cache in front of it."""

from collections.abc import Sequence
from typing import cast

from store import codec
from store.history.cache import TurnCache
from store.redis.connection import Operation
from store.turn import Messages

MGET_KEYS = 4_000
"""The most values read by one command, so that others get their turn in between."""


class TurnReader:
    """The messages of turns by their keys, some from this process's memory."""

    def __init__(self, cache_bytes: int) -> None:
        """It remembers turns in at most `cache_bytes` of memory; 0 remembers none."""
        self._cache = TurnCache(cache_bytes)

    def note(self, key: str, messages: Messages) -> None:
        """Remember what this process has just stored."""
        self._cache.put(key, messages)

    async def turns(self, operation: Operation, keys: list[str], *, erased: bool) -> codec.StoredTurns | None:
        """The messages under `keys`, which the server has just said make a chain; None when one isn't there any more.

        With `erased`, as messages of their tree were erased, nothing of it is answered from memory.
        """
        if erased:
            for key in keys:
                self._cache.drop(key)
        turns = [None if erased else self._cache.get(key) for key in keys]
        missing = [place for place, turn in enumerate(turns) if turn is None]
        blobs = await mget(operation, [keys[place] for place in missing])
        if None in blobs:
            return None
        stored = cast(list[bytes | Messages], turns)
        for place, blob in zip(missing, blobs, strict=True):
            stored[place] = cast(bytes, blob)

        def remember(place: int, messages: Messages) -> None:
            self._cache.put(keys[place], messages)

        return codec.StoredTurns(stored, None if erased else remember)


async def mget(operation: Operation, keys: Sequence[str]) -> list[bytes | None]:
    """The values of any number of keys of one shard. Raises redis-py's errors."""
    blobs: list[bytes | None] = []
    for start in range(0, len(keys), MGET_KEYS):
        blobs += await operation.command("MGET", *keys[start : start + MGET_KEYS])
    return blobs
