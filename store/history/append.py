"""Appending: a turn, and the room for it.

The script evicts and stores in one step, as far as one call may evict. Where more has to go, it stores nothing and says
so, and calls without the turn's bytes make room first. Never evict more than is missing: evict.lua measures each time,
so several appends at once don't each evict for all.
"""

import asyncio
from collections import Counter
from collections.abc import Awaitable, Callable
from typing import Any, NamedTuple, Protocol

from redis.exceptions import OutOfMemoryError

from store import codec
from store.errors import (
    ChainTooLong,
    Conflict,
    ConversationMoved,
    ConversationNotFound,
    DiskFull,
    MemoryFull,
    NotContinuable,
    ParentNotFound,
    StoreFull,
    StoreUnarchived,
    TurnTooLarge,
)
from store.history.caps import EVICT_BATCH, UNBOUNDED, Caps, room
from store.keys import TurnKeys
from store.redis import scripts
from store.redis.connection import Operation
from store.turn import CONTINUABLE, Expense, Messages, Status

Evicted = Counter[str]
"""The number of evicted turns by the bound that was passed: `responses`, `trees`, `bytes`, or the server's `memory`."""

FREEING_SECONDS = 0.002
"""The pause before a server that is freeing memory is asked again."""

MEMORY_TRIES = 5
"""How often a turn is tried on a server without memory; freed memory is not available at once."""

SHORT_SECONDS = 0.05
"""The pause before a server is asked again that has far less memory than it uses, and may have it again."""


class Added(Protocol):
    """The fields of a turn that storing it needs."""

    @property
    def id(self) -> str: ...
    @property
    def parent(self) -> str | None: ...
    @property
    def status(self) -> Status: ...
    @property
    def messages(self) -> Messages: ...
    @property
    def said(self) -> bytes: ...


class Addition(NamedTuple):
    """A turn to store below the digits `parent`, or '' for a root; its run holds `pin` on that, or ''."""

    keys: TurnKeys
    parent: str
    turn: Added
    packed: codec.Packed
    pin: str
    spec: bytes = b""

    @property
    def room(self) -> int:
        """The most bytes that the server may hold for it."""
        packed = self.packed
        return room(len(packed.messages) + len(packed.response) + len(self.spec) + len(packed.pictures))

    def arguments(self, caps: Caps, max_depth: int) -> dict[str, Any]:
        """The arguments of every script that adds a turn below the caps of `with_room`."""
        return {
            "parent": self.parent,
            "pin": self.pin,
            "status": self.turn.status,
            "continuable": continuable(self.turn.status),
            "digest": self.packed.digest,
            "added": len(self.turn.messages),
            "said": said_of(self.turn),
            "room": self.room,
            "max_depth": max_depth,
            "idle_us": caps.idle_us,
            "budget": EVICT_BATCH,
            "messages_blob": self.packed.messages,
            "response_blob": self.packed.response,
            "pictures": self.packed.pictures,
        }


def continuable(status: Status) -> str:
    """Whether a turn with this status may have children, as a script's argument."""
    return "1" if status in CONTINUABLE else "0"


def said_of(turn: Added) -> bytes:
    """The digest by which a turn is recognised, as a script's argument; empty for one that can't be continued."""
    return turn.said if turn.status in CONTINUABLE else b""


def spending(expense: Expense | None, caps: Caps) -> str:
    """The expense to count, as a script's argument (lua/spending.lua); empty if nothing is counted."""
    if expense is None or not caps.spent_seconds:
        return ""
    tokens = f"{expense.input_tokens} {expense.cached_tokens} {expense.output_tokens} {expense.reasoning_tokens}"
    return f"{caps.spent_seconds} {tokens} {expense.key}/{expense.model}"


def refuse_continuation(word: bytes, detail: list[bytes], parent: str) -> None:
    """Raise the error for a script's reply about the turn to continue, if it is a refusal."""
    if word == b"missing":
        raise ParentNotFound(parent)
    if word == b"status":
        raise NotContinuable(parent, detail[0].decode())
    if word == b"long":
        raise ChainTooLong(parent)


def refuse_joining(word: bytes, id: str) -> None:
    """Raise the error for a script's reply about the conversation that a turn is added to, if it is a refusal."""
    if word == b"gone":
        raise ConversationNotFound(id)
    if word == b"moved":
        raise ConversationMoved(id)


async def with_room(
    operation: Operation,
    addition: Addition,
    caps: Caps,
    script: Callable[..., Awaitable[scripts.Reply]],
    removed: Callable[[Evicted], None],
) -> scripts.Reply:
    """The reply of a script that stores a turn, after evicting as much as it asks; retries it where the server had no
    memory. `removed` is told of the evicted turns.

    Where a cap was lowered by so much that `evict_calls` don't suffice, it runs without caps: each turn that is stored
    then makes room for many, and the new cap is reached step by step. Raises StoreFull when nothing can go,
    MemoryFull when too little can, StoreUnarchived when nothing can before the archive has it, the errors of a refusal,
    and redis-py's.
    """
    bounds, refusals, evicted = _bounds(caps), 0, Evicted()
    try:
        while True:
            try:
                reply = await script(operation, addition.keys, **bounds)
            except OutOfMemoryError as error:
                refusals += 1
                if refusals == MEMORY_TRIES:
                    raise MemoryFull from error
                await _evict(operation, addition, caps, evicted, memory=refusals * addition.room)
            else:
                word, *detail = reply
                if word in (b"ok", b"again") and detail:
                    _count(evicted, detail[0])
                if word != b"again":
                    _refuse(word, detail, addition.turn)
                    return reply
                if not await _evict(operation, addition, caps, evicted, memory=0):
                    bounds = _bounds(UNBOUNDED)
    finally:
        removed(evicted)


def _refuse(word: bytes, detail: list[bytes], turn: Added) -> None:
    """Raise the error for a script's reply about the turn to store, if it is a refusal."""
    if word == b"full":
        raise StoreFull
    if word == b"unarchived":
        raise StoreUnarchived
    if word == b"conflict":
        raise Conflict(turn.id)
    if word == b"large":
        raise TurnTooLarge(turn.id)
    refuse_continuation(word, detail, str(turn.parent))


def _bounds(caps: Caps) -> dict[str, int]:
    return {"max_responses": caps.responses, "max_trees": caps.trees, "max_bytes": caps.bytes}


def _count(evicted: Evicted, told: bytes, *, memory: int = 0) -> None:
    """Add a script's count of evicted turns, `responses=3 bytes=1`; the bytes may be for want of `memory`."""
    for each in told.decode().split():
        reason, _, turns = each.partition("=")
        evicted["memory" if memory and reason == "bytes" else reason] += int(turns)


async def _evict(operation: Operation, addition: Addition, caps: Caps, evicted: Evicted, *, memory: int) -> bool:
    """Evict turns of this shard until there is room, and `memory` bytes on a server with a limit; False if that takes
    too many calls, or more than may go in this moment. Adds the turns to `evicted`. Raises StoreFull, StoreUnarchived,
    and redis-py's errors.
    """
    stays, tree_rank = b"", 0
    for _ in range(caps.evict_calls):
        word, *detail = await scripts.evict(
            operation,
            addition.keys,
            parent=addition.parent,
            room=addition.room,
            **_bounds(caps),
            memory=memory,
            stays=stays,
            tree_rank=tree_rank,
            budget=EVICT_BATCH,
        )
        if word == b"closed":
            raise DiskFull
        if word == b"wait":
            await asyncio.sleep(FREEING_SECONDS)
            continue
        if word == b"short":
            await asyncio.sleep(SHORT_SECONDS)
            return False
        _count(evicted, detail[0], memory=memory)
        if word == b"full":
            raise MemoryFull if memory else StoreFull
        if word == b"unarchived":
            raise StoreUnarchived
        if word == b"ok":
            return True
        stays, tree_rank = detail[1], int(detail[2])
    return False
