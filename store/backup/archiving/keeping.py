"""Keeping: the parts of trees in an archive, read and changed by any number of callers at once.

A change reads the parts, then the news, and puts each part only if it is still as it was read; else it begins again. So
the news are never older than the parts that they are merged into, whoever comes between.

A scan reads the parts of one tree, one after the other, within a share of memory. It holds the places of a part's turns
in an index, and the part's value as long as there is room for it. Afterwards the part is read again when it is asked
for, and has to be unchanged. So all facts about a tree come from parts as they were at one time each.
"""

import asyncio
from collections.abc import AsyncGenerator, Awaitable, Callable, Sequence
from functools import partial
from typing import TypeVar

from store.archive.archive import Archive
from store.archive.memory import MemoryShare
from store.archive.port import Stored
from store.backup.archiving.merging import Merge, News, as_gone
from store.backup.archiving.parts import (
    PART_BYTES,
    Index,
    Outline,
    Part,
    bytes_to_read,
    decode,
    encode,
    key_of,
    outline_of,
)
from store.backup.records import Saved
from store.codec import THREAD_FROM_BYTES
from store.errors import ArchiveContended, ArchiveDamaged, NewerFormat

AHEAD = 8
"""How many parts are asked for at once."""

WINDOW = 4
"""The bytes held of a tree with several parts, in sizes of its first part, where there is room: each part may be asked
for again."""

MOST_FAULTS = 1_000
"""After how many faults of a tree the rest of it is left: a first part may count any number of others."""

TRIES = 8
"""How often a look or a change begins again because somebody else has changed the same tree."""

THREAD_FROM_TURNS = 10_000
"""From how many turns of a tree on news are merged by a thread, as it takes more than two milliseconds."""

T = TypeVar("T")


class Moved(Exception):
    """Somebody has changed a part since it was read: the reader begins again."""


class Scan:
    """One look at the parts to which some digits lead. All raise ArchiveUnavailable, ArchiveDamaged, NewerFormat, and
    Crowded where the share is too small. Where so many parts are `listed`, those that can't be read are `faults`
    instead, by their numbers, and nothing is in them.
    """

    def __init__(
        self,
        archive: Archive,
        tenant: str,
        digits: str,
        share: MemoryShare,
        ahead: int = AHEAD,
        window: int = WINDOW,
        listed: int = 0,
    ) -> None:
        self.index = Index()
        self.etags: list[str] = []
        """Those of the parts that were read."""
        self.faults: dict[int, ArchiveDamaged | NewerFormat] = {}
        self._listed = listed
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

    async def parts(self) -> AsyncGenerator[tuple[int, Part]]:
        """The parts that were read, one at a time, but for `faults`. Raises Moved."""
        for number in range(len(self.etags)):
            if number not in self.faults:
                try:
                    part = await self.part(number)
                except (ArchiveDamaged, NewerFormat) as error:
                    self.fail(number, error)
                else:
                    yield number, part

    def fail(self, number: int, error: ArchiveDamaged | NewerFormat) -> None:
        """Note that nothing of a part can be read. Raises the error where no parts are listed."""
        if not self._listed:
            raise error
        self.faults[number] = error
        for id in [id for id, entry in self.index.entries.items() if entry.number == number]:
            del self.index.entries[id]

    def check(self) -> None:
        """Raise NewerFormat where a later release wrote some of it."""
        for error in self.faults.values():
            if isinstance(error, NewerFormat):
                raise error

    async def part(self, number: int) -> Part:
        """A part that was read. Raises Moved. No other is held at the same time."""
        value = await self.value(number)
        self._hold(bytes_to_read(value))
        return await _in_thread(decode, value)

    async def turns(self, ids: Sequence[str]) -> list[Saved]:
        """Turns that were read, in this order; deleted ones as what is left of them. Raises Moved."""
        wanted, found = set(ids), dict[str, Saved]()
        gone, entries = self.index.gone, self.index.entries
        for number in self.index.numbers(ids):
            for turn in (await self.part(number)).turns:
                if turn.id in wanted and entries[turn.id].number == number:
                    found.setdefault(turn.id, as_gone(turn, gone[turn.id]) if turn.id in gone else turn)
        return [found[id] for id in ids]

    async def value(self, number: int) -> bytes:
        """The bytes of a part that was read. Raises Moved."""
        value = self._values.get(number)
        if value is None:
            stored = await self._get(number)
            if stored is None or stored.etag != self.etags[number]:
                raise Moved
            value = stored.value
        return value

    async def _next(self, least: int) -> bool:
        """Read some more parts; False when there are none."""
        number = len(self.etags)
        most = max(self.index.parts, least)
        if number >= most or len(self.faults) >= MOST_FAULTS:
            return False
        if number == 0:
            found = [await self._get(0)]
        else:
            room = max(1, (self._share.size - self.index.held) // self._largest)
            numbers = range(number, min(most, number + min(self._ahead, room)))
            found = await asyncio.gather(*map(self._get, numbers)) if len(numbers) > 1 else [await self._get(number)]
        left = sum(len(each.value) for each in found if each is not None)
        for each in found:
            number = len(self.etags)
            if each is None and not 0 < number < self.index.parts:
                return False
            left -= len(each.value) if each else 0
            try:
                if each is None:
                    raise ArchiveDamaged(f"part {number} of {self.index.parts} is missing")
                await self._add(each, left)
            except (ArchiveDamaged, NewerFormat) as error:
                self.fail(number, error)
                self.index.add(Outline(parts=self._listed))
                self.etags.append("")
        return True

    async def _add(self, stored: Stored, arrived: int) -> None:
        """Take a part, where others have arrived, too."""
        number, needed = len(self.etags), bytes_to_read(stored.value)
        self._largest = max(self._largest, len(stored.value))
        self._hold(needed + arrived)
        await _in_thread(lambda value: self.index.add(outline_of(value)), stored.value)
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


class Keeping:
    """Reads and changes the trees of an archive, within the memory that the archive has for all. All raise
    ArchiveUnavailable; ArchiveDamaged and NewerFormat where a value can't be read, which is then never replaced; and
    ValueError for a malformed tenant.
    """

    def __init__(
        self, archive: Archive, part_bytes: int = PART_BYTES, ahead: int = AHEAD, window: int = WINDOW
    ) -> None:
        """In parts of some `part_bytes`; `ahead` and `window` are as for a scan."""
        self._archive = archive
        self._part_bytes, self._ahead, self._window = part_bytes, ahead, window

    async def look(self, tenant: str, digits: str, told: Callable[[Scan], Awaitable[T]], *, listed: int = 0) -> T:
        """The result of `told`, called with the parts that may have the turn, of which so many are `listed`. It may be
        called several times.
        """

        async def work(share: MemoryShare) -> T:
            return await told(Scan(self._archive, tenant, digits, share, self._ahead, self._window, listed))

        for _ in range(TRIES):
            try:
                return await self._archive.memory.with_share(work)
            except Moved:
                continue
        raise _contention()

    async def change(self, tenant: str, digits: str, news: Callable[[Index], Awaitable[News]]) -> None:
        """Merge the news into the parts that may have the turn. `news` returns them, given the parts; it may be called
        several times.
        """
        least = 1
        for _ in range(TRIES):
            clashed = await self._archive.memory.with_share(partial(self._change_parts, tenant, digits, news, least))
            if clashed is None:
                return
            least = max(least, clashed + 1)
        raise _contention()

    async def _change_parts(
        self, tenant: str, digits: str, news: Callable[[Index], Awaitable[News]], least: int, share: MemoryShare
    ) -> int | None:
        """Put the parts that change in their order; the number of the first that somebody else has changed, which ends
        it.
        """
        scan = Scan(self._archive, tenant, digits, share, self._ahead, self._window)
        await scan.all(least)
        told = await news(scan.index)
        stored = len(scan.etags)
        merge = await _merge(scan.index, told, self._part_bytes)
        for number in merge.numbers:
            try:
                before = await scan.part(number) if number < stored else None
            except Moved:
                return number
            part = merge.part(number, before)
            if part == before:
                continue
            only_if = scan.etags[number] if number < stored else None
            value = await _encode(part)
            if await self._archive.put(key_of(tenant, digits, number), value, only_if=only_if) is None:
                if number and not stored:  # its writer died before the first part, without which nobody reads it
                    await self._archive.put(key_of(tenant, digits), encode(Part()), only_if=None)
                return number
        return None


def _contention() -> ArchiveContended:
    return ArchiveContended(f"others have changed the same tree {TRIES} times meanwhile")


async def _merge(index: Index, news: News, part_bytes: int) -> Merge:
    if len(index.entries) > THREAD_FROM_TURNS:
        return await asyncio.to_thread(Merge, index, news, part_bytes)
    return Merge(index, news, part_bytes)


async def _encode(part: Part) -> bytes:
    large = sum(turn.payload for turn in part.turns) > THREAD_FROM_BYTES
    return await asyncio.to_thread(encode, part) if large else encode(part)
