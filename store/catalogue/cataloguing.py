"""Cataloguing: the row of a tree in the catalogue is made of what the archive has, whenever that changes."""

import asyncio
from collections.abc import AsyncGenerator, Awaitable, Callable, Sequence
from enum import Enum, auto
from itertools import accumulate, groupby
from typing import NamedTuple, TypeVar

from store.archive.archive import Archive, ArchiveListener
from store.archive.port import MOST_LISTED
from store.backup.archiving.keeping import Keeping, Scan
from store.backup.archiving.marks import Marks
from store.backup.archiving.parts import Index
from store.backup.records import Saved
from store.backup.upkeep.carrying import batches, side_by_side
from store.backup.upkeep.walking import ROOT, TreeParts, trees
from store.catalogue.rows import MAKING, WHOLE, Catalogue, CatalogueRow, is_by
from store.codec import THREAD_FROM_BYTES
from store.errors import ArchiveContended, ArchiveDamaged, ArchiveRefused, ArchiveUnavailable, NewerFormat
from store.history.elsewhere import KeptQuery, KeptTree
from store.ids import tree_of
from store.keys import SHARD_DIGITS, is_conversation

TRIES = 8
"""How often the row of a tree is made again because somebody else has put one meanwhile."""

CALL_SECONDS = 5.0
"""How long a catalogue may take for an answer, with all who wait before."""

READ_BYTES = 1 << 20
"""How many bytes of a tree's turns are read for its row, beside those that it begins and ends with."""

THREAD_FROM_TURNS = 200
"""From how many turns of a tree on a thread makes its row, as that takes more than a millisecond."""

OPENING = 2
"""How many turns a tree begins with, of which the first with words gives it its title."""


COPY_KEY = "v1/store/catalogue"
"""The key of the catalogue that an archive has: by what it was made, and its number, which rises as it changes."""

NUMBER, REACHED, UNREAD = "number", "reached", "unread"
"""The notes of a catalogue: its number, the last shard whose rows were made, and those that could not be read."""

SHARDS = [f"{number:0{SHARD_DIGITS}x}" for number in range(16**SHARD_DIGITS)]


class CatalogueStanding(Enum):
    """Whether a catalogue is whole, and the archive's own."""

    WHOLE = auto()
    LACKING = auto()
    OTHER_WORDS = auto()
    """Somebody made it by other words."""
    OTHER_COPY = auto()
    """The archive knows another one, or a later one: this is an older copy, or one of two machines has each its own."""


class ShardUnreadable(ArchiveRefused):
    """The archive refuses to say what is in a shard."""


class TreeToDescribe(NamedTuple):
    """A tree as an archive has it: the id of its root, its last use in µs since 1970, how many turns it has, the id of
    a conversation that stands in it, the first turns of the way to its newest one, that one, and all turns, as far as
    READ_BYTES reach.
    """

    root: str
    used: int
    number: int
    conversation: str | None
    opening: Sequence[Saved]
    newest: Saved
    turns: Sequence[Saved]


T = TypeVar("T")
Describe = Callable[[TreeToDescribe], CatalogueRow]
"""Makes the row of a tree, of which the store reads nothing."""


class Cataloguer(ArchiveListener):
    """Keeps a catalogue of an archive. All raise ArchiveUnavailable."""

    def __init__(self, archive: Archive, catalogue: Catalogue, describe: Describe) -> None:
        self.catalogue, self._archive, self._describe = catalogue, archive, describe
        self._keeping, self._marks = Keeping(archive), Marks(archive)
        self._has_changed = True

    async def tree_goes(self, tenant: str, digits: str) -> None:
        for _ in range(TRIES):
            version = await _in_time(self.catalogue.version(tenant, tree_at(digits)))
            if not version or await _in_time(self.catalogue.put(tenant, tree_at(digits), None, version)):
                return
        raise _contention()

    async def tree_changed(self, tenant: str, digits: str) -> None:
        """Make the row of a tree anew; that of one that can't be read stays as it is, and `verify` tells of it."""
        tree = tree_at(digits)
        self._has_changed = True
        for _ in range(TRIES):
            version = await _in_time(self.catalogue.version(tenant, tree))
            try:
                is_there, kept, erased = await self._look(tenant, digits)
            except (ArchiveDamaged, NewerFormat):
                return
            if not is_there:
                if await _in_time(self.catalogue.remove(tenant, tree, version)):
                    return
                continue
            row = kept and await self._row(kept)
            if not await _in_time(self.catalogue.put(tenant, tree, row, version)):
                continue
            # an erasure finds no row to remove where there was none, and its mark comes before: it is seen now
            if version or row is None or erased == await self._marks.erased_until(tenant, anew=True):
                return
        raise _contention()

    async def tenant_erased(self, tenant: str, until: int) -> None:
        self._has_changed = True
        await self.catalogue.erase(tenant, until)

    async def row_of(self, tenant: str, digits: str) -> CatalogueRow | None:
        """The row of a tree; None where nothing of it is there. Raises ArchiveDamaged, NewerFormat."""
        _, kept, _ = await self._look(tenant, digits)
        return kept and await self._row(kept)

    async def standing(self, about: str) -> CatalogueStanding:
        """How it stands to be made by these words, and to the archive, which hears of its changes then."""
        making = await self.catalogue.note(MAKING)
        if making and not is_by(making, about):
            return CatalogueStanding.OTHER_WORDS
        if making and not await self._count(making):
            return CatalogueStanding.OTHER_COPY
        return CatalogueStanding.WHOLE if await self.catalogue.note(WHOLE) == about else CatalogueStanding.LACKING

    async def begin_anew(self, about: str) -> None:
        """Empty it, to be made by these words."""
        await self.catalogue.begin(about, besides=await self.catalogue.note(MAKING))

    async def make_whole(self, about: str) -> AsyncGenerator[int]:
        """Make all rows, unless they were by these words; how many trees were looked at by now. It goes on where it
        was left, and past shards that can't be read: a later call tries these again.
        """
        making, made = await self.catalogue.begin(about), 0
        is_whole, reached = await self.catalogue.note(WHOLE) == about, await self.catalogue.note(REACHED)
        left = {*await self.unread()}
        for shard in sorted(left) if is_whole else [each for each in SHARDS if each > reached]:
            before, unread = made, set[str]()
            try:
                async for some in batches(self._trees_in(f"{ROOT}{shard}/")):
                    await side_by_side(self.tree_changed(tree.tenant, tree.digits) for tree in some)
                    made += len(some)
                    yield made
            except ShardUnreadable:
                unread = {shard}
            if unread != left & {shard}:
                left = left - {shard} | unread
                await self.catalogue.put_note(UNREAD, " ".join(sorted(left)), making)
            if not is_whole and made > before:
                await self.catalogue.put_note(REACHED, shard, making)
        await self.catalogue.put_note(WHOLE, about, making)

    async def unread(self) -> Sequence[str]:
        return (await _in_time(self.catalogue.note(UNREAD))).split()

    async def strays(self) -> AsyncGenerator[tuple[str, str]]:
        after = ("", "")
        while some := await _in_time(self.catalogue.trees(after, MOST_LISTED)):
            for (tenant, shard), rows in groupby(some, lambda row: (row[0], row[1][:SHARD_DIGITS])):
                listed, there = [tree for _, tree in rows], set[str]()
                folder = f"{ROOT}{shard}/t.{tenant}/"
                async for tree in self._trees_in(folder, f"{folder}{listed[0][SHARD_DIGITS:]}"):
                    there.add(tree_at(tree.digits))
                    if tree_at(tree.digits) >= listed[-1]:
                        break
                for tree in listed:
                    if tree not in there:
                        yield tenant, tree
            after = some[-1]

    async def find(self, tenant: str, query: KeptQuery) -> Sequence[KeptTree]:
        """The trees of a tenant that are wanted, the one used last first. Raises ArchiveUnavailable also where some are
        looked for while it is not whole: what it has of them would be taken for all.
        """
        if (query.facts or query.words) and not await _in_time(self.catalogue.note(WHOLE)):
            raise ArchiveUnavailable("its catalogue is being made, and finds only some of it")
        return await _in_time(self.catalogue.find(tenant, query))

    async def is_stale(self, tenant: str, digits: str) -> bool:
        """Whether a whole catalogue lacks the row of a tree, or has another one. Raises ArchiveDamaged, NewerFormat."""
        if not await _in_time(self.catalogue.note(WHOLE)):
            return False
        row = await self.row_of(tenant, digits)
        there = await _in_time(self.catalogue.row(tenant, tree_at(digits)))
        return there != (row and row._replace(words="", facts=()))

    async def close(self) -> None:
        await self.catalogue.close()

    async def _count(self, making: str) -> bool:
        """Raise the number of the catalogue, here and then in the archive, if it has changed. False where the archive
        has another number than one of these.
        """
        number, stored = await self.catalogue.note(NUMBER), await self._archive.get(COPY_KEY)
        known, _, last = ("", "", "") if stored is None else stored.value.decode().rpartition(" ")
        begins = not number and known != making
        goes_on = known == making and int(number or 0) - int(last) in (0, 1)  # a process may have died in between
        if begins or (goes_on and self._has_changed):
            self._has_changed, later = False, "1" if begins else str(int(last) + 1)
            try:
                if await self.catalogue.put_note(NUMBER, later, making, only_if=number):
                    await self._archive.put(COPY_KEY, f"{making} {later}".encode(), only_if=stored and stored.etag)
            except ArchiveUnavailable:
                self._has_changed = True
                raise
        return begins or goes_on

    async def _trees_in(self, folder: str, after: str = "") -> AsyncGenerator[TreeParts]:
        """The trees of a folder behind a key."""
        try:
            async for found in trees(self._archive, folder, after):
                if isinstance(found, TreeParts):
                    yield found
        except ArchiveRefused as error:
            raise ShardUnreadable(error.reason) from error.__cause__

    async def _look(self, tenant: str, digits: str) -> tuple[bool, TreeToDescribe | None, int]:
        """Whether the archive has anything of a tree, be it what is left of deleted turns; the tree, without turns from
        until all of its tenant was erased; and that time.
        """
        erased = await self._marks.erased_until(tenant, anew=True)

        async def look(scan: Scan) -> tuple[bool, TreeToDescribe | None]:
            return await self._tree_in(scan, erased)

        try:
            return *await self._keeping.look(tenant, digits, look), erased
        except ArchiveRefused as error:
            raise ShardUnreadable(error.reason) from error.__cause__

    async def _row(self, kept: TreeToDescribe) -> CatalogueRow:
        large = len(kept.turns) > THREAD_FROM_TURNS or sum(turn.payload for turn in kept.turns) > THREAD_FROM_BYTES
        return await asyncio.to_thread(self._describe, kept) if large else self._describe(kept)

    async def _tree_in(self, scan: Scan, erased: int) -> tuple[bool, TreeToDescribe | None]:
        await scan.all()
        large = len(scan.index.entries) > THREAD_FROM_TURNS
        chosen = await asyncio.to_thread(_choose, scan.index, erased) if large else _choose(scan.index, erased)
        if chosen is None:
            return bool(scan.etags), None
        wanted = list(dict.fromkeys((*chosen.opening, chosen.newest, *chosen.read)))
        turns = dict(zip(wanted, await scan.turns(wanted), strict=True))
        opening = [turns[id] for id in chosen.opening]
        return True, TreeToDescribe(*chosen[:4], opening, turns[chosen.newest], list(turns.values()))


class _ChosenTurns(NamedTuple):
    """The tree of an index, as it is described, and the ids of its turns that are read for that."""

    root: str
    used: int
    number: int
    conversation: str | None
    opening: Sequence[str]
    newest: str
    read: Sequence[str]


def _choose(index: Index, erased: int) -> _ChosenTurns | None:
    """The tree of an index, without turns from until all of its tenant was erased; None where nothing is left."""
    entries = index.entries
    for root in [id for id, entry in entries.items() if entry.parent is None]:
        within = index.within(root)
        there = [id for id in within if not is_conversation(id) and entries[id].created > erased]
        if there:
            newest, kept = max(there, key=lambda id: entries[id].created), set(there)
            way = [id for id in index.path(newest) or () if id in kept]
            sizes = accumulate(entries[id].payload for id in there)
            read = [id for id, size in zip(there, sizes, strict=True) if size <= READ_BYTES]
            used, named = max(entries[id].used for id in within), next(filter(is_conversation, within), None)
            return _ChosenTurns(root, used, len(there), named, way[:OPENING], newest, read)
    return None


def _contention() -> ArchiveContended:
    return ArchiveContended(f"others have changed the same row of its catalogue {TRIES} times meanwhile")


async def _in_time(asked: Awaitable[T]) -> T:
    """The answer of a catalogue. Raises ArchiveUnavailable where that takes too long."""
    try:
        async with asyncio.timeout(CALL_SECONDS):
            return await asked
    except TimeoutError:
        raise ArchiveUnavailable(f"its catalogue did not answer within {CALL_SECONDS:g} s") from None


def tree_at(digits: str) -> str:
    """The shard and the digits of the tree with a turn, by which its row is known."""
    return digits[:SHARD_DIGITS] + tree_of(digits)
