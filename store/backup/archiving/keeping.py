"""Keeping: the parts of trees in an archive, read and changed by any number of callers at once.

A change reads the parts, then what is new, and puts each part only if it is still as it was read; else it begins again.
So the news are never older than what they are merged into, whoever comes between.
"""

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from typing import NamedTuple

from store.archive.archive import Archive
from store.backup.archiving.merging import News, Parts, merged
from store.backup.archiving.parts import PART_BYTES, Part, decoded, encoded, key_of
from store.codec import THREAD_FROM_BYTES
from store.errors import ArchiveDamaged, ArchiveUnavailable

TRIES = 8
"""How often a change begins again because somebody else has changed the same tree."""


class Kept(NamedTuple):
    """The parts to which some digits lead, and the etag of each. Nothing where there are none."""

    parts: Sequence[Part] = ()
    etags: Sequence[str] = ()


class Keeping:
    """Reads and changes what an archive has of trees. All raise ArchiveUnavailable; ArchiveDamaged and NewerFormat
    where a value can't be read, which is then never replaced; and ValueError for a malformed tenant.
    """

    def __init__(self, archive: Archive, part_bytes: int = PART_BYTES) -> None:
        """In parts of some `part_bytes`."""
        self._archive = archive
        self._part_bytes = part_bytes

    async def read(self, tenant: str, digits: str) -> Kept:
        """The parts to which the digits of a turn lead."""
        return await self._read(tenant, digits, 1)

    async def change(self, tenant: str, digits: str, news: Callable[[Parts], Awaitable[News]]) -> None:
        """Merge into the parts to which some digits lead what `news` tells, given the parts as they are. It may be
        called several times.
        """
        least = 1
        for _ in range(TRIES):
            kept = await self._read(tenant, digits, least)
            told = await news(kept.parts)
            changed = merged(kept.parts, told, self._part_bytes)
            clashed = await self._put(tenant, digits, kept, changed)
            if clashed is None:
                return
            least = max(least, clashed + 1)
        raise ArchiveUnavailable(f"others have changed the same tree {TRIES} times meanwhile")

    async def _read(self, tenant: str, digits: str, least: int) -> Kept:
        """The parts that are counted, and of `least` others those that are there: written, but never counted."""
        stored = await self._archive.get(key_of(tenant, digits))
        if stored is None:
            return Kept()
        parts, etags = [await _decoded(stored.value)], [stored.etag]
        counted = parts[0].parts
        numbers = range(1, max(counted, least))
        rest = await asyncio.gather(*(self._archive.get(key_of(tenant, digits, number)) for number in numbers))
        for number, each in zip(numbers, rest, strict=True):
            if each is None and number < counted:
                raise ArchiveDamaged(f"part {number} of {counted} is missing")
            if each is None:
                break
            parts.append(await _decoded(each.value))
            etags.append(each.etag)
        return Kept(parts, etags)

    async def _put(self, tenant: str, digits: str, kept: Kept, changed: dict[int, Part]) -> int | None:
        """Put parts in their order; the number of the first that somebody else has changed, which ends it."""
        for number, part in changed.items():
            only_if = kept.etags[number] if number < len(kept.etags) else None
            value = await _encoded(part)
            if await self._archive.put(key_of(tenant, digits, number), value, only_if=only_if) is None:
                return number
        return None


async def _decoded(value: bytes) -> Part:
    return await asyncio.to_thread(decoded, value) if len(value) > THREAD_FROM_BYTES else decoded(value)


async def _encoded(part: Part) -> bytes:
    large = sum(turn.payload for turn in part.turns) > THREAD_FROM_BYTES
    return await asyncio.to_thread(encoded, part) if large else encoded(part)
