"""Carrying: trees go from one archive into another one, which loses nothing for it: into a backup, and out of it.

A tree that the other archive lacks goes as it is, in the same bytes. Else the two are merged: what either one deleted
stays deleted, and of a turn the form with less content stays, as a turn only ever loses some.
"""

import asyncio
from collections.abc import AsyncGenerator, AsyncIterator, Awaitable, Callable, Iterable
from functools import reduce
from typing import NamedTuple, TypeVar, cast

from store.archive.archive import Archive
from store.backup.archiving.keeping import Keeping, Scan
from store.backup.archiving.merging import News, as_of
from store.backup.archiving.parts import Index, Known, Part, decoded, outlined
from store.backup.upkeep.backup_file import check_part, turns_of
from store.backup.upkeep.walking import TreeParts, parts_of, trees_of
from store.errors import ArchiveDamaged
from store.keys import id_of

AT_ONCE = 16
"""How many trees are carried side by side: their writes share transactions."""

T = TypeVar("T")


class Carried(NamedTuple):
    """The outcome for turns: how many are new there, were there, and stay deleted there; and how many values could not
    be read.
    """

    new: int = 0
    there: int = 0
    deleted: int = 0
    unreadable: int = 0

    def with_more(self, other: "Carried") -> "Carried":
        """Both together."""
        return Carried(*(one + more for one, more in zip(self, other, strict=True)))


class Carrier:
    """Carries trees. All raise ArchiveUnavailable, and NewerFormat for what a later release wrote."""

    def __init__(self, source: Archive, target: Archive) -> None:
        self._source, self._target = source, target
        self._from, self._to = Keeping(source), Keeping(target)

    async def carry_all(
        self, found: AsyncIterator[TreeParts], erased: Callable[[str], Awaitable[int]]
    ) -> AsyncGenerator[tuple[Carried, int]]:
        """Carry trees, some side by side. Yields what became of these, and their bytes. `erased` returns until when all
        of a tenant was erased.
        """

        async def carry(tree: TreeParts) -> Carried:
            return await self.carry(tree, await erased(tree.tenant))

        async for some in batches(found):
            done = await side_by_side(map(carry, some))
            yield reduce(Carried.with_more, done), sum(tree.size for tree in some)

    async def carry(self, tree: TreeParts, erased: int = 0) -> Carried:
        """Carry a tree, but for turns from until `erased`, in µs since 1970, which count as deleted."""

        async def read(scan: Scan) -> Carried:
            await scan.all()
            return await self._carried(scan, tree, erased)

        try:
            return await self._from.look(tree.tenant, tree.digits, read)
        except ArchiveDamaged:
            return await self._saved(tree, erased)

    async def _carried(self, scan: Scan, tree: TreeParts, erased: int) -> Carried:
        numbers = range(len(scan.etags))
        for number in numbers:
            check_part(tree, await scan.part(number))
        if not erased and _is_settled(scan.index) and await self._target.get(f"{tree.folder}0") is None:
            for number in (*numbers[1:], *numbers[:1]):  # nobody looks for the others before the first one is there
                if not await self._put(f"{tree.folder}{number}", await scan.value(number)):
                    break
            else:
                return Carried(new=len(scan.index.entries))
        done = Carried()
        for number in numbers:
            done = done.with_more(await self._merge(tree, await scan.value(number), erased))
        return done

    async def _saved(self, tree: TreeParts, erased: int) -> Carried:
        """Carry the values that can be read of a tree that is damaged."""
        done = Carried()
        async for _, stored, part in parts_of(self._source, tree):
            try:
                check_part(tree, part)
            except ArchiveDamaged:
                done = done.with_more(Carried(unreadable=1))
            else:
                done = done.with_more(await self._merge(tree, stored.value, erased))
        return done if done.unreadable else done.with_more(Carried(unreadable=1))  # a part is missing

    async def _put(self, key: str, value: bytes) -> bool:
        """Put a value where none is; False where another one is."""
        if await self._target.put(key, value, only_if=None) is not None:
            return True
        stored = await self._target.get(key)
        return stored is not None and stored.value == value

    async def _merge(self, tree: TreeParts, value: bytes, erased: int) -> Carried:
        part, known = decoded(value), outlined(value).turns
        before, after = set[str](), Index()

        async def news(index: Index) -> News:
            nonlocal before, after
            before, after = set(index.entries), index
            return _news(part, known, index, erased)

        await self._to.change(tree.tenant, tree.digits, news)
        there = sum(turn.id in before for turn in part.turns)
        new = sum(
            turn.id not in before
            and (entry := after.entries.get(turn.id)) is not None
            and entry.deleted == turn.deleted
            for turn in part.turns
        )
        return Carried(new, there, len(part.turns) - new - there)


async def batches(found: AsyncIterator[T]) -> AsyncGenerator[list[T]]:
    """All of these, AT_ONCE at a time."""
    some = list[T]()
    async for each in found:
        some.append(each)
        if len(some) == AT_ONCE:
            yield some
            some = []
    if some:
        yield some


async def side_by_side(work: Iterable[Awaitable[T]]) -> list[T]:
    """The results of some work that is done at once, all of which has ended when one of it fails."""
    done = await asyncio.gather(*work, return_exceptions=True)
    for each in done:
        if isinstance(each, BaseException):
            raise each
    return cast(list[T], done)


def _news(part: Part, known: tuple[Known, ...], index: Index, erased: int) -> News:
    """The news of a part for somebody who has the index."""
    turns = [
        as_of(turn, erased)
        for turn, outline in zip(part.turns, known, strict=True)
        if (entry := index.entries.get(turn.id)) is None or outline.payload < entry.payload
    ]
    return News(turns, part.gone, part.gone_trees)


def _is_settled(index: Index) -> bool:
    """Whether all that is gone of a tree is gone from all of its parts."""
    return not index.gone_trees and all(id not in index.entries or index.entries[id].deleted for id in index.gone)


async def has_turn(archive: Archive, tenant: str | None, digits: str) -> bool:
    """Whether an archive has a turn, or what is left of it. Raises ArchiveUnavailable, ArchiveDamaged, NewerFormat."""
    async for tree in trees_of(archive, tenant, digits):
        async for turn in turns_of(archive, tree):
            if turn.id == id_of(digits):
                return True
    return False
