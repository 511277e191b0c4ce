"""Taking away what nothing needs or what there is no room for, some turns at a time.

Each function goes by calls that take away a bounded number of turns, so that nobody waits long for the server. Every
call may be sent twice: it passes over what is gone. Never give `prune` turns that are not one path: it stops at the
first that is needed, as all above that are needed too.
"""

from collections.abc import Awaitable, Callable
from typing import NamedTuple

from redis.exceptions import OutOfMemoryError

from . import scripts
from .caps import EVICT_BATCH, EVICT_CALLS, UNBOUNDED, Caps
from .connection import Operation
from .errors import StoreFull
from .keys import HEX_DIGITS, ShardKeys

PRUNE_TURNS = 100
"""The most tombstones that one script call takes away."""

MEMORY_TRIES = 5
"""How often a turn is tried on a server that has no memory; what was freed is not all there at once."""

_SLICE = PRUNE_TURNS * HEX_DIGITS


class Place(NamedTuple):
    """Where a turn is to go: below the digits `parent`, or '' for a root; it needs `room` bytes at most."""

    tenant: str
    parent: str
    room: int


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
    place: Place,
    caps: Caps,
    call: Callable[[Caps], Awaitable[scripts.Reply]],
) -> scripts.Reply:
    """Make a call that stores a turn, after evicting what it asks for; some times more where the server had no memory.

    Where a cap was lowered by so much that EVICT_CALLS don't suffice, it is made without: each turn that is stored then
    makes room for many, and the new cap is reached step by step. Raises StoreFull when nothing can go.
    """
    refusals = 0
    while True:
        try:
            reply = await call(caps)
        except OutOfMemoryError as error:
            refusals += 1
            if refusals == MEMORY_TRIES:
                raise StoreFull from error
            await _evict(operation, shard, place, caps, memory=refusals * place.room)
        else:
            if reply[0] != b"again":
                return reply
            if not await _evict(operation, shard, place, caps, memory=0):
                caps = UNBOUNDED


async def _evict(operation: Operation, shard: ShardKeys, place: Place, caps: Caps, *, memory: int) -> bool:
    """Take turns away until the place is free, and `memory` bytes of the server if that has a limit; False if that
    takes too many calls. Turns of other shards are left alone. Raises StoreFull, and redis-py's errors.
    """
    ranks = 0, 0
    for _ in range(EVICT_CALLS):
        word, *looked_at = await scripts.evict(
            operation,
            usage=shard.usage,
            leaves=shard.leaves,
            trees=shard.trees,
            turns=shard.turns,
            tenant=place.tenant,
            parent=place.parent,
            room=place.room,
            max_responses=caps.responses,
            max_trees=caps.trees,
            max_bytes=caps.bytes,
            memory=memory,
            leaf_rank=ranks[0],
            tree_rank=ranks[1],
            budget=EVICT_BATCH,
        )
        if word == b"full":
            raise StoreFull
        if word == b"ok":
            return True
        ranks = int(looked_at[0]), int(looked_at[1])
    return False
