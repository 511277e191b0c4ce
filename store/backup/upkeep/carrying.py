"""Carrying: trees go from one archive into another one, which loses nothing for it: into a backup, and out of it.

A tree that the other archive lacks goes as it is, in the same bytes. Else the two are merged: what either one deleted
stays deleted, and of two forms of a turn or a conversation the later one stays (merging.py). A turn that the other
archive has another one for stays away, with all that continue it.

A conversation goes last, behind all that it may stand at: so whoever reads it meanwhile finds a way to it.
"""

import asyncio
from collections.abc import AsyncGenerator, AsyncIterator, Awaitable, Callable, Iterable, Iterator
from contextlib import suppress
from functools import reduce
from typing import Any, NamedTuple, TypeVar, cast

from store.archive.archive import Archive
from store.backup.archiving.keeping import Keeping, Scan
from store.backup.archiving.merging import News, as_of, is_another, outdoes
from store.backup.archiving.parts import Entry, Index, circular, decoded, outlined
from store.backup.records import Saved
from store.backup.upkeep.backup_file import check_part, turns_of
from store.backup.upkeep.walking import TreeParts, parts_of, trees_of
from store.errors import ArchiveDamaged
from store.keys import id_of, is_conversation

AT_ONCE = 16
"""How many trees are carried side by side: their writes share transactions."""

T = TypeVar("T")


class Carried(NamedTuple):
    """The outcome for turns: how many are new there, were there, and stay deleted there; the ids of those that stay
    away, as the other archive has another one, or for what they continue; and how many values could not be read.
    """

    new: int = 0
    there: int = 0
    deleted: int = 0
    refused: tuple[tuple[str, str], ...] = ()
    """Each with its tenant."""
    unreadable: int = 0

    @property
    def turns(self) -> int:
        """All of these."""
        return self.new + self.there + self.deleted + len(self.refused)

    def with_more(self, other: "Carried") -> "Carried":
        """Both together."""
        sums: Iterator[Any] = (one + more for one, more in zip(cast(Any, self), cast(Any, other), strict=True))
        return Carried(*sums)


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
        numbers, sound = range(len(scan.etags)), not circular(scan.index.parents)
        for number in numbers:
            check_part(tree, await scan.part(number))
        if sound and not erased and _is_settled(scan.index) and await self._target.get(f"{tree.folder}0") is None:
            for number in (*numbers[1:], *numbers[:1]):  # nobody looks for the others before the first one is there
                if not await self._put(f"{tree.folder}{number}", await scan.value(number)):
                    break
            else:
                return Carried(new=len(scan.index.entries))
        merge, done = self._merging(tree, scan.index, erased), Carried()
        named = scan.index.numbers(filter(is_conversation, scan.index.entries))
        for number, names in (*((number, False) for number in numbers), *((number, True) for number in named)):
            done = done.with_more(await merge(await scan.value(number), names))
        return done if sound else done.with_more(Carried(unreadable=1))

    async def _saved(self, tree: TreeParts, erased: int) -> Carried:
        """Carry the values that can be read of a tree that is damaged."""
        index, unreadable = Index(), 0
        async for _, stored, part in parts_of(self._source, tree):
            try:
                check_part(tree, part)
                index.add(outlined(stored.value))
            except ArchiveDamaged:
                unreadable += 1
        merge, done = self._merging(tree, index, erased), Carried(unreadable=unreadable or 1)  # a part is missing
        for names in (False, True):
            async for _, stored, part in parts_of(self._source, tree):
                with suppress(ArchiveDamaged):
                    check_part(tree, part)
                    done = done.with_more(await merge(stored.value, names))
        return done

    async def _put(self, key: str, value: bytes) -> bool:
        """Put a value where none is; False where another one is."""
        if await self._target.put(key, value, only_if=None) is not None:
            return True
        stored = await self._target.get(key)
        return stored is not None and stored.value == value

    def _merging(self, tree: TreeParts, index: Index, erased: int) -> Callable[[bytes, bool], Awaitable[Carried]]:
        """A function that merges a value of a tree with this index: its conversations, or all else."""
        continued = {parent for parent in index.parents.values() if parent is not None}
        lost, refused = circular(index.parents), set[str]()

        async def merge(value: bytes, names: bool) -> Carried:
            part, outlines = decoded(value), outlined(value).turns
            both = [each for each in zip(part.turns, outlines, strict=True) if is_conversation(each[0].id) == names]
            some = [(turn, Entry.of(outline)) for turn, outline in both if turn.id not in lost]
            before, after = set[str](), Index()

            async def news(index: Index) -> News:
                nonlocal before, after
                before, after = set(index.entries), index
                turns = [as_of(turn, erased) for turn, entry in some if _is_news(turn, entry, index, refused)]
                return News(turns, part.gone, part.gone_trees, continued)

            await self._to.change(tree.tenant, tree.digits, news)
            away = tuple((tree.tenant, turn.id) for turn, _ in some if turn.id in refused)
            ids = [turn.id for turn, _ in some if turn.id not in refused]
            there = sum(id in before for id in ids)
            new = sum(
                turn.id not in before
                and turn.id not in refused
                and (entry := after.entries.get(turn.id)) is not None
                and entry.deleted == turn.deleted
                for turn, _ in some
            )
            return Carried(new, there, len(ids) - new - there, away)

        return merge


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


def _is_news(turn: Saved, new: Entry, index: Index, refused: set[str]) -> bool:
    """Whether a turn is news for somebody who has the index. `refused` gets its id where it stays away."""
    entry = index.entries.get(turn.id)
    goes_below = entry is None or new.parent != entry.parent
    if (entry is not None and is_another(turn.id, new, entry)) or (goes_below and turn.parent in refused):
        refused.add(turn.id)
        return False
    return entry is None or outdoes(turn.id, new, entry, index)


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
