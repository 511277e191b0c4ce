"""Keeping: the parts of trees in an archive, read and changed by any number of callers at once.

A change reads the parts, then the news, and puts each part only if it is still as it was read; else it begins again. So
the news are never older than the parts that they are merged into, whoever comes between.
"""

import asyncio
from collections.abc import Awaitable, Callable
from functools import partial
from typing import TypeVar

from store.archive.archive import Archive
from store.archive.memory import Share
from store.backup.archiving.merging import Merge, News
from store.backup.archiving.parts import PART_BYTES, Index, Part, encoded, key_of
from store.backup.archiving.scanning import AHEAD, WINDOW, Moved, Scan
from store.codec import THREAD_FROM_BYTES
from store.errors import ArchiveContended

TRIES = 8
"""How often a look or a change begins again because somebody else has changed the same tree."""

THREAD_FROM_TURNS = 10_000
"""From how many turns of a tree on news are merged by a thread, as it takes more than two milliseconds."""

T = TypeVar("T")


class Keeping:
    """Reads and changes the trees of an archive, within the memory that the archive has for all. All raise
    ArchiveUnavailable; ArchiveDamaged and NewerFormat where a value can't be read, which is then never replaced; and
    ValueError for a malformed tenant.
    """

    def __init__(
        self, archive: Archive, part_bytes: int = PART_BYTES, ahead: int = AHEAD, window: int = WINDOW
    ) -> None:
        """In parts of some `part_bytes`; `ahead` and `window` are as in scanning.py."""
        self._archive = archive
        self._part_bytes, self._ahead, self._window = part_bytes, ahead, window

    async def look(self, tenant: str, digits: str, told: Callable[[Scan], Awaitable[T]]) -> T:
        """The result of `told`, called with the parts that may have the turn. It may be called several times."""

        async def work(share: Share) -> T:
            return await told(self._scan(tenant, digits, share))

        for _ in range(TRIES):
            try:
                return await self._archive.memory.with_share(work)
            except Moved:
                continue
        raise _contended()

    async def change(self, tenant: str, digits: str, news: Callable[[Index], Awaitable[News]]) -> None:
        """Merge the news into the parts that may have the turn. `news` returns them, given the parts; it may be called
        several times.
        """
        least = 1
        for _ in range(TRIES):
            clashed = await self._archive.memory.with_share(partial(self._changed, tenant, digits, news, least))
            if clashed is None:
                return
            least = max(least, clashed + 1)
        raise _contended()

    async def _changed(
        self, tenant: str, digits: str, news: Callable[[Index], Awaitable[News]], least: int, share: Share
    ) -> int | None:
        """Put the parts that change in their order; the number of the first that somebody else has changed, which ends
        it.
        """
        scan = self._scan(tenant, digits, share)
        await scan.all(least)
        told = await news(scan.index)
        stored = len(scan.etags)
        merge = await _merged(scan.index, told, self._part_bytes)
        for number in merge.numbers:
            try:
                before = await scan.part(number) if number < stored else None
            except Moved:
                return number
            part = merge.part(number, before)
            if part == before:
                continue
            only_if = scan.etags[number] if number < stored else None
            value = await _encoded(part)
            if await self._archive.put(key_of(tenant, digits, number), value, only_if=only_if) is None:
                if number and not stored:  # its writer died before the first part, without which nobody reads it
                    await self._archive.put(key_of(tenant, digits), encoded(Part()), only_if=None)
                return number
        return None

    def _scan(self, tenant: str, digits: str, share: Share) -> Scan:
        return Scan(self._archive, tenant, digits, share, self._ahead, self._window)


def _contended() -> ArchiveContended:
    return ArchiveContended(f"others have changed the same tree {TRIES} times meanwhile")


async def _merged(index: Index, news: News, part_bytes: int) -> Merge:
    if len(index.entries) > THREAD_FROM_TURNS:
        return await asyncio.to_thread(Merge, index, news, part_bytes)
    return Merge(index, news, part_bytes)


async def _encoded(part: Part) -> bytes:
    large = sum(turn.payload for turn in part.turns) > THREAD_FROM_BYTES
    return await asyncio.to_thread(encoded, part) if large else encoded(part)
