"""Verifying: whether every tree in an archive can be read and is whole, and whether it has what Redis has.

A tree is judged again before it is blamed, as it may change while it is read: only what is wrong both times is a fault.
Some trees are read side by side, within the memory that the archive has for all. A repair never overwrites a value that
it has not copied.
"""

import random
from collections.abc import AsyncGenerator, Mapping
from hashlib import blake2b
from typing import NamedTuple

import msgspec

from store.archive.archive import Archive
from store.backup.archiving.keeping import Keeping
from store.backup.archiving.parts import Part, encode, folder_of
from store.backup.reading import Node
from store.backup.upkeep.carrying import batches, side_by_side
from store.backup.upkeep.erasing import DAMAGED
from store.backup.upkeep.memory import Memory
from store.backup.upkeep.reconciling import Reconciler, Returned, TreeFacts, facts_of
from store.backup.upkeep.walking import TreeParts, listed_at, sample, trees
from store.errors import ArchiveDamaged, NewerFormat
from store.history.history import ConversationHistoryStore
from store.keys import digits_of, id_of

MOST_REPORTED = 1_000
"""How many faults are named; all are counted."""

DIGEST_BYTES = 8


class ArchiveMeaning(NamedTuple):
    """The meaning of a fault, and its remedy by `--repair`; empty where there is none."""

    says: str
    repair: str = ""


MEANINGS = {
    "unreadable": ArchiveMeaning(
        "a value is damaged", "copied below v1/damaged/, and replaced by one with nothing in it: the rest can be read"
    ),
    "newer": ArchiveMeaning("a value was written by a later release, or with a dictionary that this one doesn't have"),
    "no-part": ArchiveMeaning("a part that the first one counts is missing", "an empty one is put in its place"),
    "no-parent": ArchiveMeaning("a turn continues one that the archive doesn't have"),
    "not-archived": ArchiveMeaning(
        "a turn in Redis is not in the archive as it is, and isn't noted to be", "noted: the service archives it"
    ),
    "not-catalogued": ArchiveMeaning(
        "a tree is missing in the list of all that is kept, or is another there", "listed"
    ),
    "stray": ArchiveMeaning("the list of all that is kept has a tree that the archive doesn't have", "taken from it"),
    "gone-readable": ArchiveMeaning(
        "the archive says that a turn was deleted, an item of it erased, or a conversation went on, and Redis has what "
        "was before: it went back in time",
        "deleted there again, unless a response is under way in it; a conversation goes on as the archive has it",
    ),
}
"""By the words of the faults."""


class ArchiveFault(NamedTuple):
    """A fault: of a value with that key, or of the turn with that id."""

    what: str
    tenant: str
    key: str
    id: str | None = None
    detail: str = ""


class Verified(msgspec.Struct):
    """The result of a check of an archive: trees, values and turns read there, trees of Redis compared, values that
    were written and never counted, and faults, with whether each was repaired.
    """

    trees: int = 0
    values: int = 0
    turns: int = 0
    compared: int = 0
    uncounted: int = 0
    moved: int = 0
    """Values that earlier repairs have moved away."""
    found: int = 0
    repaired: int = 0
    newer: int = 0
    faults: dict[ArchiveFault, bool] = {}
    unjudged: list[int] = []
    """The shards that were not compared, as they have no archive yet, or not for all that is older than it."""

    @property
    def left(self) -> int:
        """The faults that are still there."""
        return self.found - self.repaired

    def add(self, fault: ArchiveFault, repaired: bool) -> None:
        """Count a fault, and name it as long as there is room."""
        self.found += 1
        self.repaired += repaired
        self.newer += fault.what == "newer"
        if len(self.faults) < MOST_REPORTED:
            self.faults[fault] = repaired


class Verify:
    """Checks an archive. It is compared with `store`; None leaves that out."""

    def __init__(
        self,
        archive: Archive,
        store: ConversationHistoryStore | None,
        choose: random.Random | None = None,
        *,
        turns_per_second: float = 0.0,
    ) -> None:
        """`turns_per_second` is the pace at which the store is read; 0 is as fast as it answers."""
        self._archive, self._keeping = archive, Keeping(archive)
        self._memory = None if store is None else Memory(store.server, store.keyspace, turns_per_second)
        self._reconciler = None if store is None else Reconciler(store, archive)
        self._choose = choose or random.Random()

    async def run(self, *, most: int | None, repair: bool) -> AsyncGenerator[Verified]:
        """Check all trees, or a sample of so many in the archive and as many in Redis. Yields the result so far, and in
        the end.

        Raises ArchiveUnavailable, StoreUnavailable.
        """
        report = Verified()
        walk = trees(self._archive) if most is None else sample(self._archive, most, self._choose)
        async for some in batches(walk):
            found = [tree for tree in some if isinstance(tree, TreeParts)]
            await side_by_side(self._verify(tree, report, repair) for tree in found)
            report.moved += sum(not isinstance(each, TreeParts) and each.key.startswith(DAMAGED) for each in some)
            yield report
        if most is None:
            async for _ in self._find_strays(report, repair):
                yield report
        if self._memory is not None:
            async for _ in self._compare_trees(self._memory, most, report, repair):
                yield report
        yield report

    async def _find_strays(self, report: Verified, repair: bool) -> AsyncGenerator[None]:
        """Look for what is listed and not there."""
        listener = self._archive.listener
        async for tenant, digits in listener.strays():
            if await listener.is_stale(tenant, digits):
                report.add(ArchiveFault("stray", tenant, f"{folder_of(tenant, digits)}0"), repair)
            if repair:
                await listener.tree_changed(tenant, digits)
            yield

    async def _compare_trees(
        self, memory: Memory, most: int | None, report: Verified, repair: bool
    ) -> AsyncGenerator[None]:
        """Compare the trees of Redis, or some of them, with the archive."""
        odds = 1.0 if most is None else most / max(1, await memory.number_of_trees())
        report.unjudged = await memory.unjudged_shards()
        for number in range(memory.keyspace.shards):
            if number in report.unjudged:
                continue
            chosen = (tree async for tree in memory.trees(number) if self._choose.random() < odds)
            async for some in batches(chosen):
                await side_by_side(self._compare(memory, *tree, report, repair) for tree in some)
                yield

    async def _verify(self, tree: TreeParts, report: Verified, repair: bool) -> None:
        facts = await self._read(tree)
        report.trees += 1
        report.values += len(tree.parts)
        report.uncounted += sum(number >= facts.known.parts for number in tree.parts)
        report.turns += len(facts.known.entries)
        first, returned = _faults(tree, facts), await self._returned_turns(tree, facts)
        stale = not facts.faults and await self._archive.listener.is_stale(tree.tenant, tree.digits)
        again = await listed_at(self._archive, tree.folder) if first or returned or stale else None
        if again is None:
            return
        facts = await self._read(again)
        for fault in _faults(again, facts):
            if fault in first:
                report.add(fault, repair and await self._repair(fault))
        if stale and await self._archive.listener.is_stale(tree.tenant, tree.digits):
            report.add(ArchiveFault("not-catalogued", tree.tenant, f"{tree.folder}0"), repair)
        if repair:
            await self._archive.listener.tree_changed(tree.tenant, tree.digits)
        for fault, what in (await self._returned_turns(again, facts)).items():
            if fault in returned:
                report.add(fault, repair and self._reconciler is not None and await self._reconciler.delete(what))

    async def _read(self, tree: TreeParts) -> TreeFacts:
        return await self._keeping.look(tree.tenant, tree.digits, facts_of, listed=tree.listed)

    async def _returned_turns(self, tree: TreeParts, facts: TreeFacts) -> dict[ArchiveFault, Returned]:
        """The faults of turns that are deleted in the archive and not in Redis."""
        if self._reconciler is None:
            return {}
        found = await self._reconciler.found(tree.tenant, facts)
        key = f"{tree.folder}0"
        return {ArchiveFault("gone-readable", tree.tenant, key, id_of(each.digits)): each for each in found}

    async def _compare(self, memory: Memory, tenant: str, root: str, report: Verified, repair: bool) -> None:
        """Compare a tree of Redis with the archive's. Redis is read first, as it is never behind."""
        report.compared += 1
        facts: TreeFacts | None = None
        async for some in memory.turns(tenant, root):
            facts = facts or await self._known_at(tenant, root)
            if root in facts.trees:  # a fault of the archive's tree
                return
            lacking = [turn for turn in some if not _has(facts, turn)]
            unnoted = [turn for turn in lacking if not await memory.changed_at(tenant, root, turn.digits)]
            if not unnoted:
                continue
            facts = await self._known_at(tenant, root)  # it may have been archived in between
            now = await memory.nodes(tenant, [turn.digits for turn in unnoted])
            lacking = [turn for turn in unnoted if _is_still(turn, now) and not _has(facts, turn)]
            done = repair and await memory.note(tenant, root, [turn.digits for turn in lacking]) == len(lacking)
            for turn in lacking:
                key = f"{folder_of(tenant, root)}0"
                report.add(ArchiveFault("not-archived", tenant, key, id_of(turn.digits)), done)

    async def _known_at(self, tenant: str, root: str) -> TreeFacts:
        return await self._keeping.look(tenant, root, facts_of, listed=1)

    async def _repair(self, fault: ArchiveFault) -> bool:
        """Repair a fault, if it can be: no readable turn is lost. Returns whether it is repaired."""
        if fault.what == "no-part":
            return await self._archive.put(fault.key, encode(Part()), only_if=None) is not None
        if fault.what != "unreadable":
            return False
        stored = await self._archive.get(fault.key)
        if stored is None:
            return True
        _, shard, tenant, tree, number = fault.key.split("/")
        name = blake2b(stored.value, digest_size=DIGEST_BYTES).hexdigest()
        # where it clashes, the same value was copied before
        await self._archive.put(f"{DAMAGED}{tenant}/{shard}/{tree}/{number}/{name}", stored.value, only_if=None)
        part = Part(parts=await self._parts(fault.key)) if number == "0" else Part()
        return await self._archive.put(fault.key, encode(part), only_if=stored.etag) is not None

    async def _parts(self, key: str) -> int:
        """How many parts a tree has without a hole, whose first one doesn't say."""
        tree = await listed_at(self._archive, key.rpartition("/")[0] + "/")
        number = 1
        while tree is not None and number in tree.parts:
            number += 1
        return number


def _faults(tree: TreeParts, facts: TreeFacts) -> list[ArchiveFault]:
    """The faults of a tree as it was read; of one that could be read whole also the turns whose parents are missing."""
    faults: list[ArchiveFault] = []
    for number, error in facts.faults.items():
        what = "newer" if isinstance(error, NewerFormat) else "unreadable" if number in tree.parts else "no-part"
        detail = "" if what == "no-part" else error.fault if isinstance(error, ArchiveDamaged) else str(error)
        faults.append(ArchiveFault(what, tree.tenant, f"{tree.folder}{number}", detail=detail))
    entries = {} if faults else facts.known.entries
    for id, entry in entries.items():
        if entry.parent is not None and entry.parent not in entries:
            faults.append(ArchiveFault("no-parent", tree.tenant, f"{tree.folder}0", id, digits_of(entry.parent)))
    return faults


def _has(facts: TreeFacts, turn: Node) -> bool:
    """Whether the archive has a turn as Redis has it, or knows that it is gone."""
    entry = facts.known.entries.get(id_of(turn.digits))
    there = entry is not None and entry.digest == turn.digest and not turn.deleted
    return there or turn.digits in facts.deleted


def _is_still(turn: Node, now: Mapping[str, Node]) -> bool:
    """Whether a turn is there as it was."""
    node = now.get(turn.digits)
    return node is not None and (node.digest, node.deleted) == (turn.digest, turn.deleted)
