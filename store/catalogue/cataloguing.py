"""Cataloguing: the row of a tree in the catalogue is made of what the archive has, whenever that changes.

A row's version is that of its tree: made of the etags of all that the archive has of it. So whether a catalogue is the
archive's is seen from a list of keys: one that is lost, an older copy, or that of another machine is made right again.
"""

import asyncio
import time
from collections.abc import AsyncGenerator, Callable, Iterable, Sequence
from hashlib import blake2b
from itertools import accumulate
from secrets import token_hex
from typing import NamedTuple

from store.archive.archive import Archive, ArchiveListener
from store.archive.port import MOST_LISTED, mark_of_etag
from store.backup.archiving.keeping import Keeping, Scan
from store.backup.archiving.marks import Marks
from store.backup.archiving.parts import Index
from store.backup.ownership import ID_KEY
from store.backup.records import Saved
from store.backup.upkeep.carrying import batches, side_by_side
from store.backup.upkeep.walking import ROOT, TreeParts, trees
from store.catalogue.catalogue import Catalogue, StoredRow, place_of
from store.catalogue.rows import CatalogueRow
from store.catalogue.sqlite import UNTIDY
from store.errors import ArchiveContended, ArchiveDamaged, ArchiveRefused, ArchiveUncatalogued, NewerFormat
from store.history.elsewhere import KeptQuery, KeptTree
from store.ids import tree_of
from store.keys import CONVERSATION_MARK, OMISSION_MARK, SHARD_DIGITS, digits_of, is_conversation, mark_of

TRIES = 8
"""How often the row of a tree is made again because somebody else has put one meanwhile."""

READ_BYTES = 1 << 20
"""How many bytes of a tree's turns are read for its row, beside those that it begins and ends with."""

OPENING = 2
"""How many turns a tree begins with, of which the first with words gives it its title."""

VERSION_BYTES = 8

WHOLE, LOOKED, UNREAD = "whole", "looked", "unread"
"""The notes of a catalogue: of which archive and in which form it was made whole, empty while it isn't; when it was
compared with the archive last, in seconds since 1970, with a token of who does; and the shards that could not be read.
"""

END = "~"
"""A place behind all others."""

SHARDS = [f"{number:0{SHARD_DIGITS}x}" for number in range(16**SHARD_DIGITS)]


class TreeToDescribe(NamedTuple):
    """A tree as an archive has it: the id of its root, its first and its last use in µs since 1970, how many turns it
    has, the id of a conversation that stands in it, those of the first turns of the way to its newest one, and of that;
    these turns, and all others as far as READ_BYTES reach.
    """

    root: str
    begun: int
    used: int
    number: int
    conversation: str | None
    opening: Sequence[str]
    newest: str
    turns: Sequence[Saved] = ()


class UnequalTree(NamedTuple):
    """A tree of which the archive and the catalogue have not the same; `there` says whether the archive has it."""

    tenant: str
    digits: str
    there: bool


Describe = Callable[[TreeToDescribe], CatalogueRow]
"""Makes the row of a tree, of which the store reads nothing."""


class Cataloguer(ArchiveListener):
    """Keeps a catalogue of an archive. All raise ArchiveUnavailable."""

    def __init__(self, archive: Archive, catalogue: Catalogue, describe: Describe, form: str) -> None:
        """`form` names what `describe` makes of a tree: rows in another form are made anew."""
        self.catalogue, self._archive, self._describe, self._form = catalogue, archive, describe, form
        self._keeping, self._marks, self._id = Keeping(archive), Marks(archive), ""

    async def tree_goes(self, tenant: str, digits: str) -> None:
        before = await self.catalogue.row(tenant, tree_at(digits))
        await self.catalogue.put(tenant, tree_at(digits), None, "", before.version)

    async def tree_changed(self, tenant: str, digits: str, *, anew: bool = False) -> None:
        """Make the row of a tree anew; that of one that can't be read stays as it is, and `verify` tells of it. One of
        the same version is left, unless `anew`.
        """
        tree = tree_at(digits)
        for _ in range(TRIES):
            before = await self.catalogue.row(tenant, tree)
            try:
                (version, row), erased = await self.row_of(tenant, digits)
            except (ArchiveDamaged, NewerFormat):
                return
            if version == before.version and not (anew and version):
                return
            if not await self.catalogue.put(tenant, tree, row, version, before.version):
                continue
            # an erasure finds no row to remove where there was none, and its mark comes before: it is seen now
            if before.version or row is None or erased == await self._marks.erased_until(tenant, anew=True):
                return
        raise ArchiveContended(f"others have changed the same row of its catalogue {TRIES} times meanwhile")

    async def tenant_erased(self, tenant: str, until: int) -> None:
        await self.catalogue.erase(tenant, until)

    async def row_of(self, tenant: str, digits: str) -> tuple[StoredRow, int]:
        """The row of a tree as it is in the archive, and until when all of its tenant was erased, which it is without.
        It has no version where the archive has nothing of the tree, and is a bare one where that is what is left of
        deleted turns. Raises ArchiveDamaged, NewerFormat.
        """
        erased = await self._marks.erased_until(tenant, anew=True)

        async def look(scan: Scan) -> tuple[str, TreeToDescribe | None]:
            await scan.all()
            return self._version(map(mark_of_etag, scan.etags), erased), await _tree_in(scan, erased)

        version, kept = await self._keeping.look(tenant, digits, look)
        return StoredRow(version, kept and await asyncio.to_thread(self._describe, kept)), erased

    async def about(self) -> str:
        """The note of a whole catalogue; empty as long as the archive has no id."""
        if not self._id and (stored := await self._archive.get(ID_KEY)) is not None:
            self._id = stored.value.decode()
        return self._id and f"{self._id} {self._form}"

    async def whole(self) -> tuple[str, bool]:
        """The note of the catalogue, and whether it is another archive's."""
        note, about = await self.catalogue.note(WHOLE), await self.about()
        return note, bool(note) and note.partition(" ")[0] != about.partition(" ")[0]

    async def looked_at(self) -> float:
        """When it was compared with the archive last, in seconds since 1970."""
        return float((await self.catalogue.note(LOOKED)).partition(" ")[0] or 0)

    async def make_whole(self, only: Sequence[str] = SHARDS, *, anew: bool = False) -> AsyncGenerator[int]:
        """Make the rows of some shards as the archive has their trees, or all of them `anew`; how many trees were
        looked into by now. It goes past shards that can't be read, and ends where the catalogue is lost meanwhile, or
        somebody else begins the same.
        """
        about, unread, made, token = await self.about(), {*await self.unread()} - {*only}, 0, token_hex(VERSION_BYTES)
        whole, foreign = await self.whole()
        if whole != about and not foreign:
            await self.catalogue.put_note(WHOLE, "")
        await self.catalogue.put_note(LOOKED, f"{time.time()} {token}")
        for shard in only:
            try:
                async for some in batches(self.unequal(shard, anew=anew)):
                    await side_by_side(self.tree_changed(each.tenant, each.digits, anew=anew) for each in some)
                    made += len(some)
                    yield made
                    if not await self._goes_on(token):
                        return
            except ArchiveRefused:
                unread.add(shard)
        if await self._goes_on(token):
            for name, value in ((UNREAD, " ".join(sorted(unread))), (UNTIDY, token), (WHOLE, about)):
                await self.catalogue.put_note(name, value)

    async def _goes_on(self, token: str) -> bool:
        """Note that who compares it goes on with that; whether it is still the one who does."""
        is_so = (await self.catalogue.note(LOOKED)).endswith(token)
        if is_so:
            await self.catalogue.put_note(LOOKED, f"{time.time()} {token}")
        return is_so

    async def unequal(self, shard: str, *, anew: bool = False) -> AsyncGenerator[UnequalTree]:
        """The trees of a shard that are not the same in the archive and in the catalogue, by their keys; with `anew`
        all of them. Both have them in one order.
        """
        rows = self._rows(shard)
        place, version = await anext(rows)
        async for tree in trees(self._archive, f"{ROOT}{shard}/"):
            if not isinstance(tree, TreeParts):
                continue
            at = place_of(tree.tenant, tree.digits)
            while place < at:
                yield _stray(place)
                place, version = await anext(rows)
            known = ""
            if place == at:
                known = version
                place, version = await anext(rows)
            marks = (tree.parts[number].mark for number in sorted(tree.parts))
            if anew or known != self._version(marks, await self._marks.erased_until(tree.tenant)):
                yield UnequalTree(tree.tenant, tree.digits, there=True)
        while place != END:
            yield _stray(place)
            place, version = await anext(rows)

    async def unread(self) -> Sequence[str]:
        return (await self.catalogue.note(UNREAD)).split()

    async def strays(self) -> AsyncGenerator[tuple[str, str]]:
        for shard in SHARDS:
            async for each in self.unequal(shard):
                if not each.there:
                    yield each.tenant, each.digits

    async def find(self, tenant: str, query: KeptQuery) -> Sequence[KeptTree]:
        """The trees of a tenant that are wanted, the one used last first. Raises ArchiveUncatalogued where some are
        looked for while it is not whole, as what it has of them would be taken for all, or it is another archive's.
        """
        whole, foreign = await self.whole()
        if foreign or (not whole and (query.facts or query.words)):
            raise ArchiveUncatalogued
        return await self.catalogue.find(tenant, query)

    async def is_stale(self, tenant: str, digits: str) -> bool:
        """Whether a whole catalogue lacks the row of a tree, or has another one. Raises ArchiveDamaged, NewerFormat."""
        if not await self.catalogue.note(WHOLE):
            return False
        (version, row), _ = await self.row_of(tenant, digits)
        there = await self.catalogue.row(tenant, tree_at(digits))
        return there != (version, row and row._replace(words="", facts=()))

    async def close(self) -> None:
        await self.catalogue.close()

    async def _rows(self, shard: str) -> AsyncGenerator[tuple[str, str]]:
        """The places of the rows of a shard, and their versions; then END."""
        after = f"{shard}/"
        while some := await self.catalogue.versions(after, f"{shard}0", MOST_LISTED):
            for row in some:
                yield row
            after = some[-1][0]
        yield END, ""

    def _version(self, marks: Iterable[str], erased: int) -> str:
        """The version of a tree with these marks of etags; empty where there are none."""
        told = " ".join(marks)
        return told and blake2b(f"{self._form} {erased} {told}".encode(), digest_size=VERSION_BYTES).hexdigest()


async def _tree_in(scan: Scan, erased: int) -> TreeToDescribe | None:
    """The tree that was read, without turns from until all of its tenant was erased; None where nothing is left."""
    tree, wanted = await asyncio.to_thread(_choose, scan.index, erased)
    return tree and tree._replace(turns=await scan.turns(wanted))


def _choose(index: Index, erased: int) -> tuple[TreeToDescribe | None, list[str]]:
    """The tree of an index as it is described, and the ids of its turns that are read for that."""
    entries = index.entries
    for root in [id for id, entry in entries.items() if entry.parent is None]:
        within = [id for id in index.within(root) if entries[id].created > erased]
        # these first, as they may name a person, or say what is not to be found
        within.sort(key=lambda id: mark_of(digits_of(id)) in (CONVERSATION_MARK, OMISSION_MARK), reverse=True)
        there = [id for id in within if not is_conversation(id)]
        if there:
            newest, kept = max(there, key=lambda id: entries[id].created), set(there)
            opening = [id for id in index.path(newest) or () if id in kept][:OPENING]
            sizes = accumulate(entries[id].payload for id in within)
            read = [id for id, size in zip(within, sizes, strict=True) if size <= READ_BYTES]
            begun, used = min(entries[id].created for id in within), max(entries[id].used for id in within)
            named = next(filter(is_conversation, within), None)
            tree = TreeToDescribe(root, begun, used, len(there), named, opening, newest)
            return tree, list(dict.fromkeys((*opening, newest, *read)))
    return None, []


def _stray(place: str) -> UnequalTree:
    shard, tenant, tree = place.split("/")
    return UnequalTree(tenant.removeprefix("t."), shard + tree, there=False)


def tree_at(digits: str) -> str:
    """The shard and the digits of the tree with a turn, by which its row is known."""
    return digits[:SHARD_DIGITS] + tree_of(digits)
