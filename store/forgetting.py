"""Forgetting: one turn, as far as nothing needs it any more, or a whole tree.

First it is unknown to everybody, by one script; then it is taken away, some turns at a time. Whoever is cut short in
between leaves nothing that anyone could read, and what is left goes with the next sweep.
"""

from . import codec, scripts
from .connection import Operation
from .errors import NotTerminal
from .keys import Families, Key, ShardKeys, id_of
from .removal import prune, sweep

FELL_CALLS = 100
"""The most calls that take a tree away at once: ten thousand turns, some tenths of a second."""


async def forget(
    operation: Operation,
    shard: ShardKeys,
    names: Families,
    tenant: str,
    digits: str,
    *,
    token: str,
    idle_us: int,
    erase: bool,
) -> bool:
    """Delete a turn, with `erase` its messages too; whether it was known. `token` names this call.

    Raises NotTerminal, and redis-py's errors.
    """
    word, path = await scripts.forget(
        operation,
        node=Key(names.node + digits),
        messages=Key(names.messages + digits),
        response=Key(names.response + digits),
        pins=Key(names.pins + digits),
        usage=shard.usage,
        leaves=shard.leaves,
        trees=shard.trees,
        turns=shard.turns,
        tenant=tenant,
        digits=digits,
        token=token,
        idle_us=idle_us,
        erase="1" if erase else "0",
        no_messages=codec.NO_MESSAGES,
    )
    if word == b"running":
        raise NotTerminal(id_of(digits))
    await prune(operation, shard, tenant, path)
    return word == b"ok"


async def forget_tree(
    operation: Operation, shard: ShardKeys, names: Families, tenant: str, digits: str, *, token: str, idle_us: int
) -> bool:
    """Delete the tree of a turn; whether that was known. `token` names this call.

    Raises NotTerminal where a run in it hasn't ended, and redis-py's errors.
    """
    word, *root = await scripts.abandon(
        operation,
        node=Key(names.node + digits),
        trees=shard.trees,
        nodes=names.node,
        tenant=tenant,
        token=token,
        idle_us=idle_us,
    )
    if word == b"running":
        raise NotTerminal(id_of(digits))
    if word == b"missing":
        return False
    for _ in range(FELL_CALLS):
        if not await sweep(operation, shard, idle_us, only=f"{tenant}/{root[0].decode()}"):
            break
    return True
