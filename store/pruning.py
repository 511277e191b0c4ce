"""Pruning: taking away tombstones that nothing needs any more, from a turn towards its root.

It goes by slices of the path, so that nobody waits long for the server. A slice names its turns, and the script
passes over those that are gone: so a slice whose reply was lost can be sent again, and one who begins at the same
turn as somebody who was cut short finishes the work. Never give it turns that are not one path: it stops at the first
that is needed, as all above that are needed too.
"""

from . import scripts
from .connection import Operation
from .keys import HEX_DIGITS, Families, ShardKeys

PRUNE_TURNS = 100
"""The most tombstones that one script call takes away, so that others get their turn in between."""

_SLICE = PRUNE_TURNS * HEX_DIGITS


async def prune(operation: Operation, shard: ShardKeys, names: Families, tenant: str, path: bytes) -> None:
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
            nodes=names.node,
            messages=names.messages,
            pins=names.pins,
            tree=names.tree,
            tenant=tenant,
            path=text[start : start + _SLICE],
            size=HEX_DIGITS,
        )
        if word == b"needed":
            return
