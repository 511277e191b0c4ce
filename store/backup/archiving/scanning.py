"""Scanning: the parts of a tree, one after the other, within a share of memory.

A scan holds the places of a part's turns in an index, and the part's value as long as there is room for it. Afterwards
the part is read again when it is asked for, and has to be unchanged. So all facts about a tree come from parts as they
were at one time each, whoever changes them meanwhile.
"""

import asyncio
from collections.abc import Callable
from typing import TypeVar

from store.archive.archive import Archive
from store.archive.memory import Share
from store.archive.port import Stored
from store.backup.archiving.parts import Index, Part, bytes_to_read, decoded, key_of, outlined
from store.codec import THREAD_FROM_BYTES
from store.errors import ArchiveDamaged

AHEAD = 8
"""How many parts are asked for at once."""

WINDOW = 4
"""The bytes held of a tree with several parts, in sizes of its first part, where there is room: each part may be asked
for again."""

T = TypeVar("T")


class Moved(Exception):
    """Somebody has changed a part since it was read: the reader begins again."""


class Scan:
    """One look at the parts to which some digits lead. All raise ArchiveUnavailable, ArchiveDamaged, NewerFormat, and
    Crowded where the share is too small.
    """

    def __init__(
        self, archive: Archive, tenant: str, digits: str, share: Share, ahead: int = AHEAD, window: int = WINDOW
    ) -> None:
        self.index = Index()
        self.etags: list[str] = []
        """Those of the parts that were read."""
        self._archive, self._tenant, self._digits = archive, tenant, digits
        self._share, self._ahead, self._window = share, ahead, window
        self._values: dict[int, bytes] = {}
        self._largest = 1
        self._kept = 0

    async def all(self, least: int = 1) -> None:
        """Read the parts that are counted, and of `least` others those that are there: written, but never counted."""
        while await self._next(least):
            pass

    async def some(self, most: int) -> bool:
        """Read parts that are counted, about `most` of them; whether these are all."""
        while len(self.etags) < most and await self._next(1):
            pass
        return len(self.etags) >= self.index.parts or not self.etags

    async def path(self, id: str, *, remains: bool = False) -> list[str] | None:
        """The ids from a root to a turn, from no more parts than it takes; None as in `Index.path`."""
        while (path := self.index.path(id, remains=remains)) is None and await self._next(1):
            if self.index.is_gone(id) and not remains:
                return None
        return path

    def keep(self, size: int) -> None:
        """Say that so many bytes of content will be kept besides."""
        self._kept = size
        self._hold(0)

    async def part(self, number: int) -> Part:
        """A part that was read. Raises Moved. No other is held at the same time."""
        value = self._values.get(number)
        if value is None:
            stored = await self._get(number)
            if stored is None or stored.etag != self.etags[number]:
                raise Moved
            value = stored.value
        self._hold(bytes_to_read(value))
        return await _in_thread(decoded, value)

    async def _next(self, least: int) -> bool:
        """Read some more parts; False when there are none."""
        number = len(self.etags)
        most = max(self.index.parts, least)
        if number >= most:
            return False
        if number == 0:
            found = [await self._get(0)]
        else:
            room = max(1, (self._share.size - self.index.held) // self._largest)
            numbers = range(number, min(most, number + min(self._ahead, room)))
            found = await asyncio.gather(*map(self._get, numbers)) if len(numbers) > 1 else [await self._get(number)]
        left = sum(len(each.value) for each in found if each is not None)
        for each in found:
            if each is None and 0 < len(self.etags) < self.index.parts:
                raise ArchiveDamaged(f"part {len(self.etags)} of {self.index.parts} is missing")
            if each is None:
                return False
            left -= len(each.value)
            await self._add(each, left)
        return True

    async def _add(self, stored: Stored, arrived: int) -> None:
        """Take a part, where others have arrived, too."""
        number, needed = len(self.etags), bytes_to_read(stored.value)
        self._largest = max(self._largest, len(stored.value))
        self._hold(needed + arrived)
        self.index.add(await _in_thread(outlined, stored.value))
        self.etags.append(stored.etag)
        if number == 0 and self.index.parts > 1:
            more = self.index.parts * self.index.held
            self._hold(self._window * needed + more)
        self._values[number] = stored.value

    def _hold(self, size: int) -> None:
        """Make room for so many more bytes: drops values that can be read again, but for the first and the last one."""
        held = self.index.held + self._kept + size
        values = sum(map(len, self._values.values()))
        for number in list(self._values)[1:-1]:
            if held + values <= self._share.size:
                break
            values -= len(self._values.pop(number))
        self._share.hold(held + values)

    async def _get(self, number: int) -> Stored | None:
        return await self._archive.get(key_of(self._tenant, self._digits, number))


async def _in_thread(read: Callable[[bytes], T], value: bytes) -> T:
    return await asyncio.to_thread(read, value) if bytes_to_read(value) > THREAD_FROM_BYTES else read(value)
