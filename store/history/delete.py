"""Deleting: one turn, as far as nothing needs it any more, or a tree.

One script makes it unknown; then its keys are removed, a bounded number of turns a call, so that nobody waits long for
the server. Every call may be retried: it skips removed turns. A deletion that is cut short leaves nothing readable, and
the next sweep removes the rest. What the archive alone has is noted to be deleted there. Never give `prune` turns that
are not one path: it stops at the first needed turn, as all above that are needed too.
"""

import asyncio
from collections.abc import Awaitable, Callable
from time import monotonic
from typing import NamedTuple

from store import codec
from store.errors import NotFound, NotTerminal, StoreUnavailable
from store.history.caps import EVICT_BATCH, Caps
from store.history.elsewhere import NOT_ARCHIVED, Archived, Outdated
from store.keys import HEX_DIGITS, Keyspace, ShardKeys, TurnKeys, id_of
from store.redis import scripts
from store.redis.connection import Operation, Server

_SLICE = EVICT_BATCH * HEX_DIGITS

FORGOTTEN, ERASED, TREE = "-", "x", "*"
"""The kinds of a deletion that the archive has to hear of, before its digits: of a turn, with its messages, of a tree.
"""


async def prune(operation: Operation, keys: TurnKeys, path: bytes) -> None:
    """Remove the tombstones of `path` that nothing needs.

    `path` has the digits of the turn and of all above it, newest first, as scripts return it; it may be empty. Raises
    redis-py's errors; the next sweep then removes the rest.
    """
    text = path.decode()
    for start in range(0, len(text), _SLICE):
        (word,) = await scripts.prune(operation, keys, path=text[start : start + _SLICE])
        if word == b"needed":
            return


async def release(operation: Operation, keys: TurnKeys, pin: str) -> None:
    """Release a pin, and remove what it alone has kept. Raises redis-py's errors."""
    _, path = await scripts.unpin(operation, keys, pin=pin)
    await prune(operation, keys, path)


class Doubt(NamedTuple):
    """The reason why a sweep removed no unused tree of a shard, and how many would be unknown without it.

    `clock`: the server's clock and this process's differ by more than an hour. `gap`: nobody swept for an hour, and
    since then not for as long as the grace; so the store was off, restored, or the clock has jumped.
    """

    why: str
    trees: int


async def remove_tree(operation: Operation, shard: ShardKeys, tree: str, calls: int) -> None:
    """Remove a forgotten tree, or as much of it as `calls` calls can. Raises redis-py's errors."""
    for _ in range(calls):
        word, *_ = await scripts.sweep(
            operation, shard, only=tree, idle_us=0, named_us=0, grace_us=0, clock_us=0, budget=EVICT_BATCH
        )
        if word != b"again":
            return


async def in_pieces(
    server: Server, keyspace: Keyspace, remove: Callable[[Operation, ShardKeys], Awaitable[bool]]
) -> None:
    """Call `remove` in each shard until it returns False, as there is no more to remove.

    A pause follows each call, as long as it took, so that others are served. Raises the first StoreUnavailable once all
    shards were tried; the next call removes the rest there.
    """
    failures: list[StoreUnavailable] = []
    for shard in keyspace.all_shards():
        try:
            more = True
            while more:
                start = monotonic()
                more = await server.run(remove, shard)
                await asyncio.sleep(monotonic() - start)
        except StoreUnavailable as failure:
            failures.append(failure)
    if failures:
        raise failures[0]


async def forget(
    operation: Operation, keys: TurnKeys, *, token: str, idle_us: int, erase: bool, archived: Archived = NOT_ARCHIVED
) -> None:
    """Delete a turn, with `erase` its messages too. `token` names this call. Where it isn't here, that is noted for the
    archive, given what that said of it.

    Raises NotTerminal, NotFound, Outdated, and redis-py's errors.
    """
    told = _arguments(archived)
    word, path = await scripts.forget(
        operation, keys, token=token, idle_us=idle_us, erase=erase, no_messages=codec.NO_MESSAGES, **told
    )
    await prune(operation, keys, path)
    _refuse(word, keys)


async def forget_tree(
    operation: Operation, keys: TurnKeys, *, token: str, caps: Caps, archived: Archived = NOT_ARCHIVED
) -> None:
    """Delete the tree of a turn, as `forget` does one.

    Raises NotTerminal where a run in it hasn't ended, NotFound, Outdated, and redis-py's errors.
    """
    word, *root = await scripts.abandon(operation, keys, token=token, idle_us=caps.idle_us, **_arguments(archived))
    _refuse(word, keys)
    await remove_tree(operation, keys.shard, f"{keys.tenant}/{root[0].decode()}", caps.tree_calls)


def _arguments(archived: Archived) -> scripts.Elsewhere:
    return {
        "archived": str(archived.asked_ms or ""),
        "fence_ms": archived.fence_ms,
        "archived_root": archived.root,
        "archived_deleted": archived.deleted,
    }


def _refuse(word: bytes, keys: TurnKeys) -> None:
    if word == b"running":
        raise NotTerminal(id_of(keys.digits))
    if word == b"outdated":
        raise Outdated(id_of(keys.digits))
    if word != b"ok":
        raise NotFound(id_of(keys.digits))
