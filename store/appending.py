"""Appending: a turn, and the room for it.

The script makes room and stores in one step, as far as one call may take turns away. Where more has to go, it says so
and stores nothing, and calls without the turn's bytes make the room first. Never take more than is missing: evict.lua
looks for itself each time, so several that need room at once don't each take for all.
"""

from collections.abc import Awaitable, Callable
from typing import NamedTuple

from redis.exceptions import OutOfMemoryError

from . import codec, scripts
from .caps import EVICT_BATCH, EVICT_CALLS, UNBOUNDED, Caps, room
from .connection import Operation
from .errors import StoreFull
from .keys import Families, Key, ShardKeys
from .turn import CONTINUABLE, Turn

MEMORY_TRIES = 5
"""How often a turn is tried on a server that has no memory; what was freed is not all there at once."""


class Place(NamedTuple):
    """Where a turn is to go: below the digits `parent`, or '' for a root; it needs `room` bytes at most."""

    tenant: str
    parent: str
    room: int


async def append(
    operation: Operation,
    shard: ShardKeys,
    names: Families,
    tenant: str,
    digits: str,
    parent: str,
    turn: Turn,
    packed: codec.Packed,
    *,
    pin: str,
    caps: Caps,
    max_depth: int,
) -> scripts.Reply:
    """Store a turn below the digits `parent`, or '' for a root; what append.lua says of it in the end.

    Raises StoreFull, and redis-py's errors.
    """
    place = Place(tenant, parent, room(len(packed.messages) + len(packed.response)))

    def store(caps_now: Caps) -> Awaitable[scripts.Reply]:
        return scripts.append(
            operation,
            node=Key(names.node + digits),
            messages=Key(names.messages + digits),
            response=Key(names.response + digits),
            clock=shard.clock,
            usage=shard.usage,
            leaves=shard.leaves,
            trees=shard.trees,
            turns=shard.turns,
            tenant=tenant,
            digits=digits,
            parent=parent,
            pin=pin,
            status=turn.status,
            continuable="1" if turn.status in CONTINUABLE else "0",
            digest=packed.digest,
            added=len(turn.messages),
            room=place.room,
            max_depth=max_depth,
            max_responses=caps_now.responses,
            max_trees=caps_now.trees,
            max_bytes=caps_now.bytes,
            idle_us=caps.idle_us,
            budget=EVICT_BATCH,
            messages_blob=packed.messages,
            response_blob=packed.response,
        )

    reply = await _with_room(operation, shard, place, caps, store)
    if reply[0] == b"full":
        raise StoreFull
    return reply


async def _with_room(
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
