"""Returning: a turn that left Redis comes back with all above it, to be continued.

A turn that came back is still in the archive, so it may leave again at once, and needs no archiving. The turns of a way
are stored one after the other, and each only if nobody has deleted it since the archive was asked.
"""

from collections.abc import Awaitable, Callable
from contextlib import suppress
from functools import partial

from store.backup.archiving.archiver import AFTER_SECONDS
from store.backup.archiving.retrieving import Retriever, Way
from store.backup.archiving.shards import begin_archive_in
from store.backup.turns import THERE, bring_back, rows, store_row
from store.errors import ArchiveContended, ParentNotFound
from store.history.elsewhere import Outdated
from store.history.history import ConversationHistoryStore

TRIES = 3
"""How often the archive is asked anew because turns of a way were deleted or evicted meanwhile."""


class Returner:
    """Brings turns back from an archive into a store. It keeps nothing."""

    def __init__(
        self, history: ConversationHistoryStore, retriever: Retriever, *, after_seconds: float = AFTER_SECONDS
    ) -> None:
        """`after_seconds` is the archiver's."""
        self._history, self._retriever, self._after_seconds = history, retriever, after_seconds

    async def bring_back(self, tenant: str, digits: str) -> bool:
        """Bring the turn with these digits back into the store, with all above it; False where the archive has no such
        turn.

        The least used turns make room. Raises StoreFull, Conflict, ChainTooLong, StoreUnavailable,
        ArchiveUnavailable, ArchiveDamaged, NewerFormat, and ValueError for a malformed tenant.
        """
        look = partial(self._retriever.way, tenant, digits)
        return await self.in_time(digits, look, lambda way: self._store(tenant, way))

    async def in_time(
        self, digits: str, look: Callable[[], Awaitable[Way | None]], act: Callable[[Way], Awaitable[None]]
    ) -> bool:
        """Have `act` work with what `look` finds in the archive of the turn with these digits, again where that is
        outdated by then; False where it finds nothing. Raises the errors of both, ArchiveContended.
        """
        for _ in range(TRIES):
            way = await look()
            if way is None:
                return False
            with suppress(ParentNotFound):
                try:
                    await act(way)
                    return True
                except Outdated:  # a server that lost all that it knew would not note what is deleted next
                    shard = self._history.keyspace.shard(digits)
                    await begin_archive_in(self._history.server, shard, self._after_seconds)
        raise ArchiveContended(f"what the archive said was outdated {TRIES} times")

    async def _store(self, tenant: str, way: Way) -> None:
        """Raises Outdated, ParentNotFound where a turn went again before the next one came, and as `bring_back`."""
        for row in rows(way.turns):
            words = await store_row(self._history, tenant, row, way.archived)
            stored = next((at for at, word in enumerate(words) if word not in THERE), len(words))
            for turn in row[stored:]:  # for the first of these there was no room
                await bring_back(self._history, tenant, turn, way.archived)
