"""Passes: the turns that an archiver takes of a tree at once, so that it never holds more than some megabytes of it.

The changed turns are taken oldest first, each with those above it that the archive lacks, the nearest first. So a
deleted turn, kept only for those that continue it, never comes before them. A turn counts as archived once all above it
is. A turn with more above it than a pass takes is taken again with the next pass, and the rest of them.
"""

from collections.abc import Collection, Sequence
from contextlib import aclosing
from typing import NamedTuple

from store.backup.archiving.parts import Index
from store.backup.nodes import Node
from store.backup.reading import ABOVE, TURNS, ShardReader
from store.backup.records import Saved
from store.keys import digits_of, id_of
from store.turn import TERMINAL

PASS_BYTES = 8 << 20
"""How many bytes of turns a pass takes, as the store has them and as they are unpacked; one alone may have more."""


class Taken(NamedTuple):
    """The result of a pass: turns as they are now; the digits of changed turns that stay for another pass; and whether
    it took a turn that the archive lacked.
    """

    turns: Sequence[Saved]
    left: Collection[str]
    new: bool


class Pass:
    """Takes turns of one tree. Raises StoreUnavailable."""

    def __init__(
        self,
        reader: ShardReader,
        tenant: str,
        index: Index,
        pass_bytes: int = PASS_BYTES,
        *,
        before: Collection[str] = frozenset(),
        erased: int = 0,
    ) -> None:
        """`index` has the archived turns of the tree; those with the digits `before`, as far as it has them, are there
        as they are now. Turns of the tenant from until `erased`, in µs since 1970, are not archived.
        """
        self._reader, self._tenant, self._entries = reader, tenant, index.entries
        self._pass_bytes, self._before, self._erased = pass_bytes, before, erased
        self._chosen: dict[str, Node] = {}
        self._bytes = 0
        self._above: dict[str, Node] = {}
        self._nowhere = set[str]()
        """Digits that a turn continues and that are not there: nothing more can be archived of it."""
        self._whole = set[str]()
        """Digits above which all is archived or chosen."""
        self._moves = False
        """Whether the choice archives a turn that wasn't archived."""

    async def take(self, changed: Sequence[str]) -> Taken:
        """Take some of the turns that have changed, by their digits in order, with what is above them. Those that were
        taken before are not read again.
        """
        left = await self._choose(changed)
        read = dict[str, Saved]()
        unread, size, new = list[str](), 0, False
        nodes = list(self._chosen.values())
        self._whole.clear()
        async with aclosing(self._reader.turns(self._tenant, nodes)) as turns:
            async for node, turn in turns:
                if turn is None:
                    unread.append(node.digits)
                    continue
                read[node.digits] = turn
                size += turn.payload
                new = new or turn.id not in self._entries
                if size >= self._pass_bytes and (new or self._is_archived(node.digits, read)):
                    break
        described = await self._reader.describe([f"{self._tenant}/{digits}" for digits in unread])
        gone = {digits for digits, found in zip(unread, described, strict=True) if not found}
        chosen = [digits for digits in changed if self._was_chosen(digits) and digits not in gone]
        left.update(digits for digits in chosen if not self._is_archived(digits, read))
        return Taken(list(read.values()), left, new)

    async def _choose(self, changed: Sequence[str]) -> set[str]:
        """Choose as many as a pass takes; the others."""
        for at in range(0, len(changed), TURNS):
            some = changed[at : at + TURNS]
            described = await self._reader.describe([f"{self._tenant}/{digits}" for digits in some])
            for number, nodes in enumerate(described):
                if nodes and self._is_wanted(nodes[0]) and not await self._choose_way(nodes[0]):
                    return set(changed[at + number :])
        return set()

    async def _choose_way(self, node: Node) -> bool:
        """Choose a turn and those above it that the archive lacks; False where they are more than a pass takes.

        A changed turn is chosen even where one below it was chosen first: the archive's form of it is old.
        """
        way: dict[str, None] = {}
        at: str | None = node.digits
        self._above[node.digits] = node
        if node.digits not in self._chosen:
            self._whole.discard(node.digits)
        while at is not None and at not in self._whole and at not in way:
            way[at] = None
            if at in self._chosen:
                at = self._chosen[at].parent
            elif (at != node.digits or at in self._before) and (entry := self._entries.get(id_of(at))):
                at = entry.parent and digits_of(entry.parent)
            elif (above := await self._described(at)) is None:
                break
            elif self._moves and self._bytes + above.payload > self._pass_bytes:
                return False
            else:
                self._chosen[at] = above
                self._bytes += above.payload
                self._moves = self._moves or id_of(at) not in self._entries
                at = above.parent
        self._whole.update(way)
        self._moves = True
        return True

    async def _described(self, digits: str) -> Node | None:
        """A turn that has ended, as the store notes it; those above it are asked for with it."""
        if digits not in self._above:
            (nodes,) = await self._reader.describe([f"{self._tenant}/{digits}"], ABOVE)
            self._above = {node.digits: node for node in nodes if self._is_wanted(node)}
        node = self._above.pop(digits, None)
        if node is None:
            self._nowhere.add(digits)
        return node

    def _is_wanted(self, node: Node) -> bool:
        return node.status in TERMINAL and node.created > self._erased

    def _was_chosen(self, digits: str) -> bool:
        return digits in self._chosen or digits in self._before

    def _is_archived(self, digits: str, read: dict[str, Saved]) -> bool:
        """Whether a turn was read, now or before, and all that is there above it was or is archived."""
        way: dict[str, None] = {}
        if digits not in read and digits not in self._before:
            return False
        at: str | None = digits
        while at is not None and at not in self._whole and at not in self._nowhere and at not in way:
            way[at] = None
            turn = read.get(at) or self._entries.get(id_of(at))
            if turn is None:
                return False
            at = turn.parent and digits_of(turn.parent)
        self._whole.update(way)
        return True
