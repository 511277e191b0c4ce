"""Carrying: trees go from one archive into another one, which loses nothing for it: into a backup, and out of it.

A tree that the other archive lacks goes as it is, in the same bytes. Else the two are merged: what either one deleted
stays deleted, and of two forms of a turn or a conversation the later one stays (merging.py). A turn that the other
archive has another one for stays away, with all that continue it.

A conversation goes last, behind all that it may stand at: so whoever reads it meanwhile finds a way to it.
"""

import asyncio
from collections.abc import AsyncGenerator, AsyncIterator, Awaitable, Callable, Iterable
from typing import NamedTuple, TypeVar, cast

from store.archive.archive import Archive
from store.backup.archiving.keeping import Keeping, Scan
from store.backup.archiving.merging import News, as_of, is_another, outdoes
from store.backup.archiving.parts import Index, TurnEntry, circular, decode, outline_of
from store.backup.records import Saved
from store.backup.upkeep.backup_file import check_part, is_whole, turns_of
from store.backup.upkeep.walking import TreeParts, trees_of
from store.errors import ArchiveDamaged
from store.keys import id_of, is_conversation

AT_ONCE = 16
"""How many trees are carried side by side: their writes share transactions."""

T = TypeVar("T")


class Carried(NamedTuple):
    """The outcome for a tree of a `tenant`: the `words` for its turns by their ids, as for those that are stored one by
    one (turns.py); how many values and turns could not be read; and how many turns the other archive had that are
    deleted there now.
    """

    tenant: str
    words: dict[str, bytes]
    unreadable: int
    removed: int


class ErasedTenant(NamedTuple):
    """Until when all of a tenant was erased, in µs since 1970: of its turns here, which count as deleted then, and in
    the other archive.
    """

    here: int = 0
    there: int = 0


class Carrier:
    """Carries trees. All raise ArchiveUnavailable, and NewerFormat for what a later release wrote."""

    def __init__(self, source: Archive, target: Archive) -> None:
        self._source, self._target = source, target
        self._from, self._to = Keeping(source), Keeping(target)

    async def carry_all(
        self, found: AsyncIterator[TreeParts], erased: Callable[[str], Awaitable[ErasedTenant]]
    ) -> AsyncGenerator[tuple[list[Carried], int]]:
        """Carry trees, some side by side, but for what can't be read. Yields what became of these, and their bytes.
        `erased` returns until when all of a tenant was erased.
        """

        async def carry(tree: TreeParts) -> Carried:
            until = await erased(tree.tenant)

            async def read(scan: Scan) -> Carried:
                await scan.all()
                return await self._carry(scan, tree, until)

            carried = await self._from.look(tree.tenant, tree.digits, read, listed=tree.listed)
            await self._target.listener.tree_changed(tree.tenant, tree.digits)
            return carried

        async for some in batches(found):
            yield await side_by_side(map(carry, some)), sum(tree.size for tree in some)

    async def _carry(self, scan: Scan, tree: TreeParts, erased: ErasedTenant) -> Carried:
        index, broken = scan.index, set[str]()
        async for number, part in scan.parts():
            try:
                check_part(tree, part)
            except ArchiveDamaged as error:
                scan.fail(number, error)
            else:
                broken.update(turn.id for turn in part.turns if not is_whole(turn))
        scan.check()
        lost = circular(index.parents, broken)
        numbers = [number for number in range(len(scan.etags)) if number not in scan.faults]
        is_sound = not (scan.faults or lost or erased.here) and _is_settled(index)
        if is_sound and await self._target.get(f"{tree.folder}0") is None:
            for number in (*numbers[1:], *numbers[:1]):  # nobody looks for the others before the first one is there
                if not await self._put(f"{tree.folder}{number}", await scan.value(number)):
                    break
            else:
                return Carried(tree.tenant, dict.fromkeys(index.entries, b"ok"), 0, 0)
        merging, named = _Merging(self._to, tree, index, lost, erased), filter(is_conversation, index.entries)
        for number in numbers:
            await merging.take(await scan.value(number), names=False)
        for number in index.numbers(named):
            await merging.take(await scan.value(number), names=True)
        return Carried(tree.tenant, merging.words, len(scan.faults) + len(lost), merging.removed)

    async def _put(self, key: str, value: bytes) -> bool:
        """Put a value where none is; False where another one is."""
        if await self._target.put(key, value, only_if=None) is not None:
            return True
        stored = await self._target.get(key)
        return stored is not None and stored.value == value


class _Merging:
    """The merge of a tree into an archive, a value at a time; `words` and `removed` are as in Carried."""

    def __init__(self, target: Keeping, tree: TreeParts, index: Index, lost: set[str], erased: ErasedTenant) -> None:
        """The tree has this index; its turns that are `lost` stay away."""
        self._target, self._tree, self._lost, self._erased = target, tree, lost, erased
        self._continued = {parent for parent in index.parents.values() if parent is not None}
        self.words: dict[str, bytes] = {}
        self.removed = 0

    async def take(self, value: bytes, *, names: bool) -> None:
        """Merge a value of the tree: its conversations, or all else."""
        part, outlines = decode(value), outline_of(value).turns
        both = [each for each in zip(part.turns, outlines, strict=True) if is_conversation(each[0].id) == names]
        some = [(turn, TurnEntry.of(outline)) for turn, outline in both if turn.id not in self._lost]
        before, alive, after = set[str](), set[str](), Index()

        async def news(there: Index) -> News:
            nonlocal before, alive, after
            before, after = set(there.entries), there
            alive = {id for id in before if not there.is_gone(id) and there.entries[id].created > self._erased.there}
            turns = [as_of(turn, self._erased.here) for turn, entry in some if self._is_news(turn, entry, there)]
            return News(turns, part.gone, part.gone_trees, self._continued)

        await self._target.change(self._tree.tenant, self._tree.digits, news)
        entries = after.entries
        for turn, _ in some:
            is_new = turn.id in entries and entries[turn.id].deleted == turn.deleted
            self.words.setdefault(turn.id, b"kept" if turn.id in before else b"ok" if is_new else b"deleted")
        self.removed += sum(id not in entries or entries[id].deleted for id in alive)

    def _is_news(self, turn: Saved, new: TurnEntry, index: Index) -> bool:
        """Whether a turn is news for somebody who has the index. One that stays away gets its word."""
        entry = index.entries.get(turn.id)
        goes_below = entry is None or new.parent != entry.parent
        is_below = goes_below and self.words.get(turn.parent or "") == b"conflict"
        if is_below or (entry is not None and is_another(turn.id, new, entry)):
            self.words[turn.id] = b"conflict"
            return False
        return entry is None or outdoes(turn.id, new, entry, index)


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
