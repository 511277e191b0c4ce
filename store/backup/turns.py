"""One turn at a time: out of a store that is in use, and back into one. An export and an import are made of these.

A restored backup is the earlier state, so its turns keep their times of use and evict nothing. A turn that is brought
back is asked for now: it counts as used now, and the least used turns make room for it, as for a new one.
"""

import asyncio
from enum import StrEnum
from functools import partial
from typing import NamedTuple

from store import codec
from store.backup.nodes import Node
from store.backup.reading import ShardReader
from store.backup.records import Saved
from store.backup.restore import WAIT_MS, arguments_of
from store.errors import NotFound, NotTerminal, StoreUnavailable
from store.history.append import Addition, with_room
from store.history.delete import remove_tree
from store.history.history import ConversationHistoryStore
from store.keys import CONVERSATION_PREFIX, TurnKeys, id_of, name_of
from store.redis import scripts
from store.redis.connection import Argument, Operation
from store.turn import TERMINAL

REMOVALS = 4
"""How often the rest of a deleted tree is removed before a turn of it comes back: others may delete it again
meanwhile.
"""

NOW = 1 << 52
"""A use later than any: the store takes none for later than its clock."""


class Brought(StrEnum):
    """The outcome for a turn that was brought back."""

    NEW = "ok"
    KEPT = "kept"
    """It was there."""
    DELETED = "deleted"
    """It was deleted since, and others continue it: it stays deleted."""


class Archived(NamedTuple):
    """When the archive was asked for a turn, in ms by the server's clock, and for how long its answer holds at least:
    deletions since then are known for as long. Empty where no archive was asked.
    """

    asked_ms: str = ""
    fence_ms: int = 0


NOT_ARCHIVED = Archived()


class Outdated(Exception):
    """A turn may have been deleted since the archive was asked for it."""


class Ended(NamedTuple):
    """A turn that no longer changes, or a conversation, as the store notes it; its payload was not read."""

    root: str
    """The id of the root of its tree."""
    bytes: int
    """How many are stored of it."""
    reader: ShardReader
    node: Node


async def look_up(history: ConversationHistoryStore, tenant: str, id: str) -> Ended:
    """A turn of a tenant, or a conversation. The look-up doesn't count as use.

    Raises NotFound, also for one that was not used for too long, NotTerminal for one under way, ValueError for a
    malformed tenant, StoreUnavailable.
    """
    keyspace = history.keyspace
    keys = keyspace.conversation(tenant, id) if id.startswith(CONVERSATION_PREFIX) else keyspace.turn(tenant, id)
    return await history.at_hand(keys, lambda: _look_up(history, keys, id))


async def _look_up(history: ConversationHistoryStore, keys: TurnKeys, id: str) -> Ended:
    reader = ShardReader(history.server, keys.shard, 0)
    (nodes,) = await reader.describe([f"{keys.tenant}/{keys.digits}"], idle_us=history.caps.idle_us)
    if not nodes:
        raise NotFound(id)
    if nodes[0].status not in TERMINAL:
        raise NotTerminal(id)
    return Ended(id_of(nodes[0].root), nodes[0].payload, reader, nodes[0])


async def take_out(tenant: str, found: Ended) -> Saved:
    """The turn that was looked up for a tenant. Raises NotFound where it is gone or can't be read, NewerFormat,
    StoreUnavailable.
    """
    turn = await found.reader.turn(tenant, found.node)
    if turn is None:
        raise NotFound(name_of(found.node.digits))
    return turn


async def bring_back(
    history: ConversationHistoryStore, tenant: str, turn: Saved, archived: Archived = NOT_ARCHIVED
) -> Brought:
    """Store a turn below the one that it continues, unless it is there. Its bytes count as the tenant's, and its tree
    counts as used.

    For a turn from an archive, `archived` says when the archive was asked. Raises ParentNotFound, Conflict where
    another turn has its id, Outdated where it may have been deleted since, StoreFull, ValueError for a malformed
    tenant, StoreUnavailable.
    """
    keys = history.keyspace.turn(tenant, turn.id)
    parent = "" if turn.parent is None else history.keyspace.digits(turn.parent)
    large = turn.payload > codec.THREAD_FROM_BYTES
    told = await asyncio.to_thread(arguments_of, turn) if large else arguments_of(turn)
    packed = codec.Packed(told["messages_blob"], told["response_blob"], turn.digest)
    addition = Addition(keys, parent, turn, packed, "")
    restore = partial(
        scripts.restore,
        **told | {"held": addition.room, "archived": archived.asked_ms, "fence_ms": archived.fence_ms},
        parent=parent,
        used=NOW,
        tree_used=NOW,
        wait_ms=WAIT_MS,
    )

    async def script(operation: Operation, turn: TurnKeys, **bounds: Argument) -> scripts.Reply:
        for _ in range(REMOVALS):
            word, *root = await restore(operation, turn, **bounds)
            if word != b"forgotten":
                return [b"again" if word == b"full" else word]
            await remove_tree(operation, turn.shard, f"{tenant}/{root[0].decode()}", history.caps.tree_calls)
        raise StoreUnavailable("a large tree that was deleted is still being removed")

    def refuse(reply: scripts.Reply) -> None:
        if reply[0] == b"outdated":
            raise Outdated(turn.id)

    reply = await history.stored(
        lambda operation: with_room(operation, addition, history.caps, script, history.note_removed),
        keys,
        turn.digest,
        refuse,
    )
    return Brought(reply[0].decode())
