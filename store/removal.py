"""Taking away what nothing needs any more, some turns at a time.

Each function goes by calls that take away a bounded number of turns, so that nobody waits long for the server. Every
call may be sent twice: it passes over what is gone. Never give `prune` turns that are not one path: it stops at the
first that is needed, as all above that are needed too.
"""

from . import scripts
from .caps import EVICT_BATCH
from .connection import Operation
from .keys import HEX_DIGITS, ShardKeys

_SLICE = EVICT_BATCH * HEX_DIGITS


async def prune(operation: Operation, shard: ShardKeys, tenant: str, path: bytes) -> None:
    """Take away the tombstones of `path` that nothing needs.

    `path` has the digits of a turn and of all above it, newest first, as scripts give it; empty is nothing to do.
    Raises redis-py's errors. What is left then goes with the next sweep.
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
