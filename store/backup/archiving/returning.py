"""Returning: a turn that left Redis comes back with all above it, to be continued.

A turn that came back is still in the archive, so it may leave again at once, and needs no archiving. The turns of a way
are stored one after the other, and each only if nobody has deleted it since the archive was asked.
"""

import asyncio
from collections.abc import Sequence
from contextlib import suppress
from functools import partial

from redis.exceptions import NoScriptError

from store.backup.archiving.archiver import AFTER_SECONDS
from store.backup.archiving.retrieving import Retriever, Way
from store.backup.archiving.shards import begin_archive_in
from store.backup.records import Saved
from store.backup.restore import WAIT_MS, arguments_of
from store.backup.turns import NOW, Archived, Outdated, bring_back
from store.codec import THREAD_FROM_BYTES
from store.errors import ArchiveContended, ParentNotFound
from store.history.history import ConversationHistoryStore
from store.redis import scripts
from store.redis.connection import Argument

TRIES = 3
"""How often the archive is asked anew because turns of a way were deleted or evicted meanwhile."""

AT_ONCE = 100
ROW_BYTES = 1 << 20
"""How many turns are stored in one row, and how many bytes of them, or one: some milliseconds of the server's time."""

THERE = (b"ok", b"kept", b"deleted")
"""The words of a turn that is in the store now; a deleted one as others continue it."""


class Returner:
    """Brings turns back from an archive into a store. It keeps nothing."""

    def __init__(
        self, history: ConversationHistoryStore, retriever: Retriever, *, after_seconds: float = AFTER_SECONDS
    ) -> None:
        """`after_seconds` is the archiver's."""
        self._history, self._retriever, self._after_seconds = history, retriever, after_seconds

    async def bring_back(self, tenant: str, digits: str, *, remains: bool = False) -> bool:
        """Bring the turn with these digits back into the store, with all above it; False where the archive has no such
        turn. With `remains` a deleted turn will do that others continue.

        The least used turns make room. Raises StoreFull, Conflict, ChainTooLong, StoreUnavailable,
        ArchiveUnavailable, ArchiveDamaged, NewerFormat, and ValueError for a malformed tenant.
        """
        for _ in range(TRIES):
            way = await self._retriever.way(tenant, digits, remains=remains)
            if way is None:
                return False
            with suppress(ParentNotFound):
                try:
                    await self._store(tenant, way)
                    return True
                except Outdated:  # a server that lost all that it knew would not note what is deleted next
                    shard = self._history.keyspace.keys(tenant, digits).shard
                    await begin_archive_in(self._history.server, shard, self._after_seconds)
        raise ArchiveContended(f"what was brought back went again {TRIES} times")

    async def _store(self, tenant: str, way: Way) -> None:
        """Raises Outdated, ParentNotFound where a turn went again before the next one came, and as `bring_back`."""
        archived = Archived(str(way.asked_ms), self._retriever.fence_ms)
        at = 0
        while at < len(way.turns):
            row = _row(way.turns, at)
            stored = await self._at_once(tenant, row, archived)
            at += stored
            if stored < len(row):  # there was no room for this one, or the server didn't have the script
                await bring_back(self._history, tenant, way.turns[at], archived)
                at += 1

    async def _at_once(self, tenant: str, turns: Sequence[Saved], archived: Archived) -> int:
        """Store turns in one row; how many of them are there, before the first that isn't."""
        history = self._history
        large = sum(turn.payload for turn in turns) > THREAD_FROM_BYTES
        told = partial(self._commands, tenant, turns, archived)
        commands = await asyncio.to_thread(told) if large else told()
        shard = history.keyspace.turn(tenant, turns[0].id).shard
        async with history.server.operation() as operation:
            try:
                replies = await operation.row(*commands, at=shard.clock, ahead=True)
            except NoScriptError:  # whoever stores the first one by itself brings it along
                return 0
            operation.wrote = True
        return next((at for at, (word, *_) in enumerate(replies) if word not in THERE), len(turns))

    def _commands(self, tenant: str, turns: Sequence[Saved], archived: Archived) -> list[tuple[Argument, ...]]:
        """The commands that store these turns, one for each."""
        history, caps = self._history, self._history.caps
        commands: list[tuple[Argument, ...]] = []
        for turn in turns:
            keys = history.keyspace.turn(tenant, turn.id)
            told = arguments_of(turn) | {
                "archived": archived.asked_ms,
                "fence_ms": archived.fence_ms,
            }
            parent = "" if turn.parent is None else history.keyspace.digits(turn.parent)
            commands.append(
                scripts.restore.command(
                    keys,
                    **told,
                    parent=parent,
                    used=NOW,
                    tree_used=NOW,
                    wait_ms=WAIT_MS,
                    max_responses=caps.responses,
                    max_trees=caps.trees,
                    max_bytes=caps.bytes,
                )
            )
        return commands


def _row(turns: Sequence[Saved], at: int) -> Sequence[Saved]:
    """The turns from a place on that are stored in one row."""
    end, size = at + 1, turns[at].payload
    while end < min(len(turns), at + AT_ONCE) and (size := size + turns[end].payload) <= ROW_BYTES:
        end += 1
    return turns[at:end]
