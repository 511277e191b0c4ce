"""Appending: a turn, and the room for it.

The script evicts and stores in one step, as far as one call may evict. Where more has to go, it stores nothing and says
so, and calls without the turn's bytes make room first. Never evict more than is missing: evict.lua measures each time,
so several appends at once don't each evict for all.
"""

from collections.abc import Awaitable, Callable
from typing import Any, NamedTuple

from redis.exceptions import OutOfMemoryError

from store import codec
from store.errors import ChainTooLong, Conflict, NotContinuable, ParentNotFound, StoreFull, TurnTooLarge
from store.history.caps import EVICT_BATCH, UNBOUNDED, Caps, room
from store.keys import Families, Key, ShardKeys
from store.redis import scripts
from store.redis.connection import Operation
from store.turn import CONTINUABLE, Status, Turn

MEMORY_TRIES = 5
"""How often a turn is tried on a server without memory; what was freed is not available at once."""


class Target(NamedTuple):
    """Where a turn goes: below the digits `parent`, or '' for a root. It needs `room` bytes at most."""

    tenant: str
    parent: str
    room: int


def arguments(
    shard: ShardKeys, names: Families, digits: str, target: Target, turn: Turn, packed: codec.Packed, *, pin: str
) -> dict[str, Any]:
    """The arguments of every script that adds a turn, without the caps."""
    return {
        "node": Key(names.node + digits),
        "messages": Key(names.messages + digits),
        "response": Key(names.response + digits),
        "clock": shard.clock,
        "usage": shard.usage,
        "leaves": shard.leaves,
        "trees": shard.trees,
        "turns": shard.turns,
        "tenant": target.tenant,
        "digits": digits,
        "parent": target.parent,
        "pin": pin,
        "status": turn.status,
        "continuable": continuable(turn.status),
        "digest": packed.digest,
        "added": len(turn.messages),
        "room": target.room,
        "budget": EVICT_BATCH,
        "messages_blob": packed.messages,
        "response_blob": packed.response,
    }


def bounds(caps: Caps) -> dict[str, Any]:
    """The caps as arguments of those scripts."""
    return {"max_responses": caps.responses, "max_trees": caps.trees, "max_bytes": caps.bytes}


def continuable(status: Status) -> str:
    """Whether a turn with this status may have children, as a script's argument."""
    return "1" if status in CONTINUABLE else "0"


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
    """Store a turn below the digits `parent`, or '' for a root; the last reply of append.lua.

    Raises StoreFull, and redis-py's errors.
    """
    target = Target(tenant, parent, room(len(packed.messages) + len(packed.response)))
    given = arguments(shard, names, digits, target, turn, packed, pin=pin)

    def store(caps_now: Caps) -> Awaitable[scripts.Reply]:
        return scripts.append(operation, **given, **bounds(caps_now), max_depth=max_depth, idle_us=caps.idle_us)

    return await with_room(operation, shard, target, caps, store)


def refuse_addition(word: bytes, detail: list[bytes], turn: Turn) -> None:
    """Raise the error for a script's reply about the turn to store, if it is a refusal."""
    if word == b"conflict":
        raise Conflict(turn.id)
    if word == b"large":
        raise TurnTooLarge(turn.id)
    refuse_continuation(word, detail, str(turn.parent))


def refuse_continuation(word: bytes, detail: list[bytes], parent: str) -> None:
    """Raise the error for a script's reply about the turn to continue, if it is a refusal."""
    if word == b"missing":
        raise ParentNotFound(parent)
    if word == b"status":
        raise NotContinuable(parent, detail[0].decode())
    if word == b"long":
        raise ChainTooLong(parent)


async def with_room(
    operation: Operation,
    shard: ShardKeys,
    target: Target,
    caps: Caps,
    call: Callable[[Caps], Awaitable[scripts.Reply]],
) -> scripts.Reply:
    """Make a call that stores a turn, after evicting what it asks for; retry it where the server had no memory.

    Where a cap was lowered by so much that `evict_calls` don't suffice, the call is made without caps: each turn that
    is stored then makes room for many, and the new cap is reached step by step. Raises StoreFull when nothing can go.
    """
    refusals = 0
    while True:
        try:
            reply = await call(caps)
        except OutOfMemoryError as error:
            refusals += 1
            if refusals == MEMORY_TRIES:
                raise StoreFull from error
            await _evict(operation, shard, target, caps, memory=refusals * target.room)
        else:
            if reply[0] == b"full":
                raise StoreFull
            if reply[0] != b"again":
                return reply
            if not await _evict(operation, shard, target, caps, memory=0):
                caps = UNBOUNDED


async def _evict(operation: Operation, shard: ShardKeys, target: Target, caps: Caps, *, memory: int) -> bool:
    """Evict turns of this shard until there is room, and `memory` bytes on a server with a limit; False if that takes
    too many calls. Raises StoreFull, and redis-py's errors.
    """
    ranks = 0, 0
    for _ in range(caps.evict_calls):
        word, *looked_at = await scripts.evict(
            operation,
            usage=shard.usage,
            leaves=shard.leaves,
            trees=shard.trees,
            turns=shard.turns,
            tenant=target.tenant,
            parent=target.parent,
            room=target.room,
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
