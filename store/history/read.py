"""Reading payloads: by plain MGET, as bytes through Lua cost ten times as much, and through the read cache."""

from collections.abc import Sequence
from typing import cast

from store import codec
from store.history.cache import TurnCache
from store.redis.connection import Operation
from store.turn import Messages

MGET_KEYS = 4_000
"""The most values that one command reads, so that others are served in between."""


class TurnReader:
    """Reads the messages of turns by their keys, some from this process's cache."""

    def __init__(self, cache_bytes: int) -> None:
        """The cache takes at most `cache_bytes` of memory; 0 caches nothing."""
        self._cache = TurnCache(cache_bytes)

    def note(self, key: str, messages: Messages) -> None:
        """Cache what this process has just stored."""
        self._cache.put(key, messages)

    async def turns(self, operation: Operation, keys: list[str], *, erased: bool) -> codec.StoredTurns | None:
        """The messages under `keys`, which are a chain as the server has just said; None when one is gone.

        With `erased`, as messages of their tree were erased, nothing of it is read from the cache.
        """
        if erased:
            for key in keys:
                self._cache.drop(key)
        turns = self._cache.get(keys)
        missing = [at for at, turn in enumerate(turns) if turn is None]
        blobs = await mget(operation, [keys[at] for at in missing])
        if None in blobs:
            return None
        stored = cast(list[bytes | Messages], turns)
        for at, blob in zip(missing, blobs, strict=True):
            stored[at] = cast(bytes, blob)

        def remember(at: int, messages: Messages) -> None:
            self._cache.put(keys[at], messages)

        return codec.StoredTurns(stored, None if erased else remember)


async def mget(operation: Operation, keys: Sequence[str]) -> list[bytes | None]:
    """The values of any number of keys of one shard. Raises redis-py's errors."""
    blobs: list[bytes | None] = []
    for start in range(0, len(keys), MGET_KEYS):
        blobs += await operation.command("MGET", *keys[start : start + MGET_KEYS])
    return blobs


def first_within(most_bytes: int, most_missing: int, blobs: list[bytes | None]) -> list[bytes | None]:
    """The first of some response blobs that come to no more bytes, and one at least; of those that are missing, which
    may be somewhere else and of any size, no more than so many.
    """
    size = missing = 0
    for at, blob in enumerate(blobs):
        size += 0 if blob is None else codec.response_size(blob)
        missing += blob is None
        if at and (size > most_bytes or missing > most_missing):
            return blobs[:at]
    return blobs
