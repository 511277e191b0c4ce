"""Turns out of a store that is in use, and back into one: one at a time, of which an export and an import are made, or
in a row.

A turn that is brought back is asked for now: it counts as used now, and the least used turns make room for it, as for a
new one. A row evicts nothing.
"""

import asyncio
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from enum import StrEnum
from functools import partial
from typing import Any, NamedTuple

from redis.exceptions import OutOfMemoryError

from store import codec
from store.backup.reading import Node, ShardReader, portions
from store.backup.records import Saved
from store.errors import ArchiveUnavailable, NotFound, NotTerminal, ParentNotFound, StoreUnavailable, TenantErased
from store.history.append import Addition, said_of, with_room
from store.history.caps import room
from store.history.delete import ERASED, FORGOTTEN, remove_tree
from store.history.elsewhere import FROM_FILE, IF_STORED, NOT_ARCHIVED, Archived, Outdated
from store.history.history import ConversationHistoryStore
from store.keys import CONVERSATION_PREFIX, TurnKeys, id_of, name_of
from store.redis import scripts
from store.redis.connection import Argument, Operation
from store.turn import CONTINUABLE, TERMINAL

WAIT_MS = 900_000
"""How long a tombstone waits for the turn that continues it."""

REMOVALS = 4
"""How often the rest of a deleted tree is removed before a turn of it comes back: others may delete it again
meanwhile.
"""

NOW = 1 << 52
"""A use later than any: the store takes none for later than its clock."""

AT_ONCE = 100
ROW_BYTES = 1 << 20
"""How many turns are stored in one row, and how many bytes of them, or one: some milliseconds of the server's time."""

THERE = (b"ok", b"kept", b"deleted")
"""The words of a turn that is in the store now; a deleted one as others continue it."""


class Brought(StrEnum):
    """The outcome for a turn that was brought back."""

    NEW = "ok"
    KEPT = "kept"
    """It was there."""
    DELETED = "deleted"
    """It was deleted since, and others continue it: it stays deleted."""


class SettledTurn(NamedTuple):
    """A turn that no longer changes, or a conversation, as the store notes it; its payload was not read."""

    root: str
    """The id of the root of its tree."""
    bytes: int
    """How many are stored of it."""
    reader: ShardReader
    node: Node


async def look_up(history: ConversationHistoryStore, tenant: str, id: str) -> SettledTurn:
    """A turn of a tenant, or a conversation. The look-up doesn't count as use.

    Raises NotFound, also for one that was not used for too long, NotTerminal for one under way, ValueError for a
    malformed tenant, StoreUnavailable.
    """
    keyspace = history.keyspace
    keys = keyspace.conversation(tenant, id) if id.startswith(CONVERSATION_PREFIX) else keyspace.turn(tenant, id)
    return await history.at_hand(keys, lambda: _look_up(history, keys, id))


async def _look_up(history: ConversationHistoryStore, keys: TurnKeys, id: str) -> SettledTurn:
    reader = ShardReader(history.server, keys.shard)
    (nodes,) = await reader.describe([f"{keys.tenant}/{keys.digits}"], idle_us=history.caps.idle_us)
    if not nodes:
        raise NotFound(id)
    if nodes[0].status not in TERMINAL:
        raise NotTerminal(id)
    return SettledTurn(id_of(nodes[0].root), nodes[0].payload, reader, nodes[0])


async def take_out(tenant: str, found: SettledTurn) -> Saved:
    """The turn that was looked up for a tenant. Raises NotFound where it is gone or can't be read, NewerFormat,
    StoreUnavailable.
    """
    turn = await found.reader.turn(tenant, found.node)
    if turn is None:
        raise NotFound(name_of(found.node.digits))
    return turn


def rows(turns: Sequence[Saved]) -> Iterator[list[Saved]]:
    """Turns, as many at a time as go into one row."""
    return portions(turns, lambda turn: max(turn.payload, ROW_BYTES // AT_ONCE), ROW_BYTES)


async def store_row(
    history: ConversationHistoryStore,
    tenant: str,
    turns: Sequence[Saved],
    archived: Archived = NOT_ARCHIVED,
    used: Callable[[Saved], int] = lambda turn: NOW,
) -> list[bytes]:
    """Store turns of one shard in one row, as far as there is room, each with its time of use in µs. The words for what
    became of each, as store/redis/lua/restore.lua has them; none where the server has no memory left. Raises ValueError
    for a malformed tenant, StoreUnavailable.
    """
    keys = [history.keyspace.turn(tenant, turn.id) for turn in turns]
    caps = {"max_responses": history.caps.responses, "max_trees": history.caps.trees, "max_bytes": history.caps.bytes}

    def values() -> list[dict[str, Any]]:
        return [arguments_of(history, turn, archived, used(turn)) | caps for turn in turns]

    large = sum(turn.payload for turn in turns) > codec.THREAD_FROM_BYTES
    first, *others = await asyncio.to_thread(values) if large else values()
    commands = [scripts.restore.command(each, **told) for each, told in zip(keys[1:], others, strict=True)]
    async with history.server.operation() as operation:
        try:
            replies = await scripts.restore.in_a_row(operation, keys[0], commands, ahead=True, **first)
        except OutOfMemoryError:
            return []
    return [word for word, *_ in replies]


def arguments_of(history: ConversationHistoryStore, turn: Saved, archived: Archived, used: int = NOW) -> dict[str, Any]:
    """The script's arguments but for the caps. A number names the dictionary that compressed its response."""
    response = b""
    if turn.response is not None and turn.items is not None:
        response = codec.encode_response(turn.response, turn.items)
    return {
        "parent": "" if turn.parent is None else history.keyspace.digits(turn.parent),
        "status": turn.status,
        "continuable": "1" if turn.status in CONTINUABLE else "0",
        "digest": turn.digest,
        "added": turn.erased.messages if turn.erased else len(turn.messages),
        "said": b"" if turn.deleted or turn.erased else said_of(turn),
        "created": turn.created,
        "deleted": "" if not turn.deleted else FORGOTTEN if turn.messages else ERASED,
        "erased": str(turn.erased.bytes) if turn.erased else "",
        "background": turn.background or "",
        "submission": turn.submission or "",
        "held": turn.held + room(turn.shown) if turn.pictures else turn.held,
        "used": used,
        "wait_ms": WAIT_MS,
        "source": archived.source,
        "continued": archived.continued,
        "asked_ms": archived.asked_ms,
        "fence_ms": archived.fence_ms,
        "messages_blob": codec.encode_messages(turn.messages),
        "response_blob": response,
        "pictures": codec.encode_pictures(turn.pictures),
    }


async def bring_in(history: ConversationHistoryStore, tenant: str, turn: Saved) -> Brought:
    """Store an exported turn again, as `bring_back` does, unless it was deleted since: an archive knows. A turn that is
    in the archive alone comes back as it is there.

    Raises also TenantErased, ArchiveUnavailable, ArchiveDamaged, NewerFormat.
    """
    keys = history.keyspace.turn(tenant, turn.id)
    with suppress(ParentNotFound):
        return await bring_back(history, tenant, turn, IF_STORED)
    fate = await history.elsewhere.fate(tenant, keys.digits)
    if fate is None:
        return await bring_back(history, tenant, turn)
    if fate.gone:
        return Brought.DELETED
    if turn.created <= fate.erased:
        raise TenantErased(turn.id)
    if fate.there:
        return await history.at_hand(keys, lambda: bring_back(history, tenant, turn, IF_STORED))
    try:
        return await bring_back(history, tenant, turn, Archived(fate.asked_ms, fate.fence_ms, source=FROM_FILE))
    except Outdated:
        raise ArchiveUnavailable("it took so long that its answer is of no use any more") from None


async def bring_back(
    history: ConversationHistoryStore, tenant: str, turn: Saved, archived: Archived = NOT_ARCHIVED
) -> Brought:
    """Store a turn below the one that it continues, unless it is there. Its bytes count as the tenant's, and its tree
    counts as used.

    `archived` says where the turn is from, and when the archive was asked. Raises ParentNotFound, Conflict where
    another turn has its id, Outdated where it may have been deleted since, StoreFull, ValueError for a malformed
    tenant, StoreUnavailable.
    """
    keys = history.keyspace.turn(tenant, turn.id)
    of = partial(arguments_of, history, turn, archived)
    told = await asyncio.to_thread(of) if turn.payload > codec.THREAD_FROM_BYTES else of()
    packed = codec.Packed(told["messages_blob"], told["response_blob"], turn.digest, told["pictures"])
    addition = Addition(keys, told["parent"], turn, packed, "")
    restore = partial(scripts.restore, **told | {"held": addition.room})

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

    reply = await history.await_safety(
        lambda operation: with_room(operation, addition, history.caps, script, history.note_removed),
        keys,
        turn.digest,
        refuse,
    )
    return Brought(reply[0].decode())
