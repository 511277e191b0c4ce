"""Taking away what nothing needs or what there is no room for, some turns at a time.

Each function goes by calls that take away a bounded number of turns, so that nobody waits long for the server. Every
call may be sent twice: it passes over what is gone. Never give `prune` turns that are not one path: it stops at the
first that is needed, as all above that are needed too.
"""

from collections.abc import Awaitable, Callable
from itertools import count

from redis.exceptions import OutOfMemoryError

from . import scripts
from .caps import EVICT_BATCH, EVICT_CALLS, ROOM_BYTES, UNBOUNDED, Caps
from .connection import Operation
from .errors import StoreFull
from .keys import HEX_DIGITS, ShardKeys

PRUNE_TURNS = 100
"""The most tombstones that one script call takes away."""

_SLICE = PRUNE_TURNS * HEX_DIGITS


async def prune(operation: Operation, shard: ShardKeys, tenant: str, path: bytes) -> None:
    """Take away the tombstones of `path` that nothing needs.

    `path` has the digits of a turn and of all above it, newest first, as scripts give it; empty is nothing to do.
    Raises redis-py's errors. What is left then is a leaf, which the next call takes or else eviction.
    """
    text = path.decode()
    for start in range(0, len(text), _SLICE):
        (word,) = await scripts.prune(
            operation,
            usage=shard.usage,
            leaves=shard.leaves,
            trees=shard.trees,
            turns=shard.turns,
            tenant=tenant,
            path=text[start : start + _SLICE],
            size=HEX_DIGITS,
        )
        if word == b"needed":
            return


async def sweep(operation: Operation, shard: ShardKeys, idle_us: int, *, only: str = "") -> bool:
    """Take away some of the trees that are gone, or of the one tree `only`; whether there may be more.

    Raises redis-py's errors.
    """
    (word,) = await scripts.sweep(
        operation,
        usage=shard.usage,
        leaves=shard.leaves,
        trees=shard.trees,
        turns=shard.turns,
        only=only,
        idle_us=idle_us,
        budget=EVICT_BATCH,
    )
    return word == b"again"


async def make_room(
    operation: Operation,
    shard: ShardKeys,
    kept: str,
    room: int,
    caps: Caps,
    call: Callable[[Caps], Awaitable[scripts.Reply]],
) -> scripts.Reply:
    """Make a call that stores something, as often as eviction needs it; and once more where the server had no memory.

    Where a cap was lowered by so much that EVICT_CALLS don't suffice, the last one is made without: each turn that is
    stored then makes room for many, and the new cap is reached step by step. Raises StoreFull when nothing can go.
    """
    evicted = False
    for calls in count():
        try:
            reply = await call(caps if calls < EVICT_CALLS else UNBOUNDED)
        except OutOfMemoryError as error:
            if evicted:
                raise StoreFull from error
            await evict(operation, shard, kept, room)
            evicted = True
        else:
            if reply[0] != b"again":
                return reply
    raise AssertionError("a call without caps never asks to be made again")


async def evict(operation: Operation, shard: ShardKeys, kept: str, room: int) -> None:
    """Take away the least recently used turns of a server that has no memory left, until `room` bytes are free.

    It may hold more than its `maxmemory` allows, as deleting and touching go on without memory: that goes too. Turns of
    other shards are left alone. Raises redis-py's errors.
    """
    missing = await _overdraft(operation, shard) + room + ROOM_BYTES
    while missing > 0:
        word, freed = await scripts.evict(
            operation,
            usage=shard.usage,
            leaves=shard.leaves,
            trees=shard.trees,
            turns=shard.turns,
            missing=missing,
            kept=kept,
            budget=EVICT_BATCH,
        )
        if word != b"again":
            return
        missing -= int(freed)


async def _overdraft(operation: Operation, shard: ShardKeys) -> int:
    """How many bytes the server of this shard holds beyond its `maxmemory`."""
    text = await operation.command("INFO", "memory", at=shard.usage)
    memory = dict(line.split(b":", 1) for line in text.splitlines() if b":" in line)
    return max(0, int(memory[b"used_memory"]) - int(memory[b"maxmemory"]))
