"""One turn at a time: out of a store that is in use, and back into one. An export and an import are made of these.

What a backup restores is what there was, so it has the uses that it had and evicts nothing. Who brings a turn back asks
for it now: it is used now, and what was used least makes room for it, as for a new one.
"""

import asyncio
from functools import partial
from typing import NamedTuple

from store import codec
from store.backup.reading import ShardReader
from store.backup.records import Saved
from store.backup.restore import WAIT_MS, arguments_of
from store.errors import NotFound, NotTerminal, StoreUnavailable
from store.history.append import Addition, with_room
from store.history.delete import remove_tree
from store.history.history import ConversationHistoryStore
from store.keys import CONVERSATION_PREFIX, TurnKeys, id_of
from store.redis import scripts
from store.redis.connection import Argument, Operation
from store.states import TERMINAL

NOW = 1 << 52
"""A use later than any: the store takes none for later than its clock."""


class Taken(NamedTuple):
    """A turn, and the id of the root of its tree."""

    root: str
    turn: Saved


async def stored_bytes(history: ConversationHistoryStore, tenant: str, id: str) -> int:
    """How many bytes are stored of a turn, or a conversation; 0 of one that isn't there. Raises as `take_out`."""
    keys = _keys(history, tenant, id)
    (nodes,) = await ShardReader(history.server, keys.shard, 0).describe([f"{tenant}/{keys.digits}"])
    return nodes[0].payload if nodes else 0


async def take_out(history: ConversationHistoryStore, tenant: str, id: str) -> Taken:
    """A turn of a tenant, or a conversation, which isn't used by that.

    Raises NotFound, also for one that can't be read and for one that was not used for too long, NotTerminal for what is
    under way, ValueError for a malformed tenant, NewerFormat, StoreUnavailable.
    """
    keys = _keys(history, tenant, id)
    found = await ShardReader(history.server, keys.shard, 0).turn(f"{tenant}/{keys.digits}", history.caps.idle_us)
    if found is None:
        raise NotFound(id)
    node, turn = found
    if node.status not in TERMINAL:
        raise NotTerminal(id)
    if turn is None:
        raise NotFound(id)
    return Taken(id_of(node.root), turn)


async def bring_back(history: ConversationHistoryStore, tenant: str, turn: Saved) -> bool:
    """Store a turn below the one that it continues; False where it is there. What it takes counts as the tenant's, and
    its tree is used by that.

    Raises ParentNotFound, Conflict where another turn has its id, StoreFull, ValueError for a malformed tenant,
    StoreUnavailable.
    """
    keys = history.keyspace.turn(tenant, turn.id)
    parent = "" if turn.parent is None else history.keyspace.digits(turn.parent)
    large = turn.payload > codec.THREAD_FROM_BYTES
    told = await asyncio.to_thread(arguments_of, turn) if large else arguments_of(turn)
    packed = codec.Packed(told["messages_blob"], told["response_blob"], turn.digest)
    addition = Addition(keys, parent, turn, packed, "")
    restore = partial(
        scripts.restore,
        **told | {"held": addition.room},
        parent=parent,
        used=NOW,
        tree_used=NOW,
        wait_ms=WAIT_MS,
    )

    async def script(operation: Operation, turn: TurnKeys, **bounds: Argument) -> scripts.Reply:
        word, *root = await restore(operation, turn, **bounds)
        if word == b"forgotten":
            await remove_tree(operation, turn.shard, f"{tenant}/{root[0].decode()}", history.caps.tree_calls)
            word, *_ = await restore(operation, turn, **bounds)
        if word == b"forgotten":
            raise StoreUnavailable("a large tree that was deleted is still being removed")
        return [b"again" if word == b"full" else word]

    async def store() -> bytes:
        async with history.server.operation() as operation:
            word, evicted = await with_room(operation, addition, history.caps, script)
        history.note_removed(evicted)
        return word

    return await history.stored(store, keys, turn.digest) == b"ok"


def _keys(history: ConversationHistoryStore, tenant: str, id: str) -> TurnKeys:
    keyspace = history.keyspace
    return keyspace.conversation(tenant, id) if id.startswith(CONVERSATION_PREFIX) else keyspace.turn(tenant, id)
