"""Reading payloads: by plain MGET, as bytes through Lua cost ten times as much, and through the read cache.

The cache has turns' messages in this process, so that a chain which was just read or written isn't fetched again. A
long chain is kept as a whole besides, so that it isn't walked turn by turn again, nor is one that is a turn longer.

An entry is never stale: turns don't change, and the server says each time which turns a chain has, and for whom
(lua/chain.lua). The cache only saves the bytes and their decoding, so others may delete and evict without telling this
process. The one change is erasing a turn's messages: the server marks the tree, and none of its turns is read from
here. Keys are complete Redis keys, which name the tenant. Never answer from the cache without asking the server for
the chain.
"""

import time
from collections.abc import Callable, Sequence
from typing import NamedTuple, cast

from store import codec
from store.keys import HEX_DIGITS, ID_PREFIX, ids_of, split_path
from store.redis.connection import Operation
from store.turn import Messages

TURN_BYTES = 400
MESSAGE_BYTES = 220
"""The bytes that CPython 3.11 needs for an entry and for each message, beside the tokens (measured, 64 bit)."""

CHAINED_BYTES = 200
"""The bytes that a turn takes in a chain that is kept as a whole: its digits, its id, and its places."""

LONG_CHAIN = 16
"""From so many turns on a chain is kept as a whole."""

MGET_KEYS = 4_000
"""The most values that one command reads, so that others are served in between."""


class KnownChain(NamedTuple):
    """A chain of the cache: the digits of its turns as the server says them, newest first, their ids and messages."""

    path: bytes
    ids: tuple[str, ...]
    turns: codec.StoredTurns


class TurnCache:
    """Turns' messages by key, and long chains by the key of their newest turn, in at most `max_bytes` of memory; 0
    keeps nothing. There are two halves: one has what was used since the halves changed, which they do once it is full,
    and the other what was used before. That one is dropped then, and so are all chains: none has a turn that no half
    counts.
    """

    def __init__(self, max_bytes: int) -> None:
        self.max_bytes = max_bytes
        self._new, self._old = dict[str, Messages](), dict[str, Messages]()
        self._new_bytes = self._old_bytes = 0
        """The estimated sizes of the halves; the chains count to the new one."""
        self._chains: dict[str, KnownChain] = {}

    @property
    def held_bytes(self) -> int:
        return self._new_bytes + self._old_bytes

    def get(self, keys: Sequence[str]) -> list[Messages | None]:
        """The messages of each cached turn, None for the others. The cached ones have been used."""
        found = list(map(self._new.get, keys))
        if not all(found) and self._old:
            for at, key in enumerate(keys):
                if found[at] is None and (messages := self._old.pop(key, None)) is not None:
                    self._old_bytes -= _size(messages)
                    self.put(key, messages)
                    found[at] = messages
        return found

    def put(self, key: str, messages: Messages) -> None:
        """Add a turn, and drop others to make room. One that takes more than a quarter of the cache isn't added."""
        size = _size(messages)
        if key in self._new or key in self._old or size > self.max_bytes // 4:
            return
        if self._new_bytes + size > self.max_bytes // 2:
            self._old, self._old_bytes = self._new, self._new_bytes - self._forget_chains()
            self._new, self._new_bytes = {}, 0
        self._new[key] = messages
        self._new_bytes += size

    def drop(self, key: str) -> None:
        """Remove a turn, if it is cached, and all chains, which may have it."""
        if (dropped := self._new.pop(key, None)) is not None:
            self._new_bytes -= _size(dropped)
        elif (dropped := self._old.pop(key, None)) is not None:
            self._old_bytes -= _size(dropped)
        if dropped is not None:
            self._new_bytes -= self._forget_chains()

    async def chain(self, operation: Operation, family: str, path: bytes, *, erased: bool) -> KnownChain | None:
        """The chain of the turns with the digits `path`, as the server has just said it; None when one of them is
        gone. `family` is the prefix of the keys of their messages.

        With `erased`, where messages of their tree were erased, nothing is read from the cache.
        """
        if not erased and (known := self._known_chain(family, path)) is not None:
            return known
        digits, half = split_path(path), self._new
        turns = await self._turns(operation, [family + each for each in digits], erased=erased)
        if turns is None:
            return None
        known = KnownChain(path, ids_of(digits), turns)
        if not erased and turns.decoded and (half is self._new or half is self._old):
            self._keep(family, known)
        return known

    def _known_chain(self, family: str, path: bytes) -> KnownChain | None:
        """A chain that is kept, or one of which all but the newest turn is, which then is kept in its place."""
        tip, parent = path[:HEX_DIGITS].decode(), path[HEX_DIGITS : 2 * HEX_DIGITS].decode()
        known = self._chains.get(family + tip)
        if known is not None and known.path == path:
            return known
        known = self._chains.get(family + parent)
        if known is None or known.path != path[HEX_DIGITS:]:
            return None
        (messages,) = self.get([family + tip])
        if messages is None:
            return None
        longer = KnownChain(path, (*known.ids, ID_PREFIX + tip), codec.StoredTurns((*known.turns, messages)))
        if self._chains.pop(family + parent, None) is not None:  # else the halves have changed
            self._new_bytes -= _chain_bytes(known)
            self._keep(family, longer)
        return longer

    def _keep(self, family: str, known: KnownChain) -> None:
        size = _chain_bytes(known)
        if len(known.ids) >= LONG_CHAIN and self._new_bytes + size <= self.max_bytes // 2:
            self._chains[family + known.path[:HEX_DIGITS].decode()] = known
            self._new_bytes += size

    def _forget_chains(self) -> int:
        chains, self._chains = self._chains, {}
        return sum(map(_chain_bytes, chains.values()))

    async def _turns(self, operation: Operation, keys: list[str], *, erased: bool) -> codec.StoredTurns | None:
        """The messages under `keys`, those that aren't cached as they were fetched; None when one is gone."""
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
        return len(self._new) + len(self._old)


class Uses:
    """The turns whose use this process has noted lately, with their roots: reading one of them again writes nothing."""

    MOST = 10_000

    def __init__(self, seconds: float, clock: Callable[[], float] = time.monotonic) -> None:
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
        self._noted[turn] = root


def _size(messages: Messages) -> int:
    return TURN_BYTES + sum(MESSAGE_BYTES + message.size for message in messages)


def _chain_bytes(known: KnownChain) -> int:
    return CHAINED_BYTES * len(known.ids)


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
