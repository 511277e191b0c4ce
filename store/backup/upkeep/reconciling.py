"""Reconciling: turns that Redis has again, as it went back in time, are deleted there once more, and conversations that
stand where they stood before move on to where the archive has them.

The archive keeps the ids of deleted turns for as long as a tree lives, so it knows better than a server that was
restored from an old backup. Nothing else is changed: turns that such a server lacks come back from the archive when
they are asked for.
"""

from collections.abc import Callable
from contextlib import suppress
from functools import partial
from typing import NamedTuple

import msgspec

from store.archive.archive import Archive
from store.backup.archiving.archived_turns import ArchivedTurns
from store.backup.archiving.marks import Marks
from store.backup.archiving.merging import is_another, outdoes
from store.backup.archiving.parts import NOWHERE, Entry, Index, Part, decoded, key_of
from store.backup.reading import ABOVE, Node, ShardReader
from store.backup.records import Saved
from store.backup.turns import THERE, rows, store_row
from store.backup.upkeep.carrying import batches, side_by_side
from store.backup.upkeep.memory import Memory
from store.errors import ArchiveDamaged, ChainTooLong, NewerFormat, NotFound, NotTerminal
from store.history.delete import forget, forget_tree
from store.history.history import ConversationHistoryStore
from store.keys import TurnKeys, digits_of, id_of, is_conversation, shard_of
from store.redis import scripts
from store.turn import TERMINAL

TRIES = 8
"""How often a conversation is looked at again because somebody has used it meanwhile."""


class Gone(msgspec.Struct):
    """The facts about a tree that an archive has and an older Redis lacks: deleted turns by their digits, and whether
    their messages were erased; roots of trees that were deleted whole; turns of which items were erased, as they are
    now, and conversations; and what each turn continues.
    """

    turns: dict[str, bool] = {}
    trees: set[str] = set()
    cut: dict[str, Saved] = {}
    named: dict[str, Saved] = {}
    index: Index = msgspec.field(default_factory=Index)

    def add(self, part: Part) -> None:
        """Add the facts of one of its parts."""
        self.turns.update({digits_of(id): erased for id, erased in part.gone.items()})
        self.trees.update(map(digits_of, part.gone_trees))
        for turn in part.turns:
            if turn.id in self.index.entries:
                continue
            self.index.entries[turn.id] = Entry.of_saved(turn)
            if turn.deleted:
                digits = digits_of(turn.id)
                self.turns[digits] = self.turns.get(digits, False) or turn.erased is not None
            elif is_conversation(turn.id):
                self.named[digits_of(turn.id)] = turn
            elif turn.erased is not None:
                self.cut[digits_of(turn.id)] = turn


class Returned(NamedTuple):
    """A deletion that Redis has lost: of a turn by its digits, or with `whole` of the tree of that root. With `erase`
    its messages go too, and with `cut` only those items that the archive's turn lacks. With `later` it is the move of
    a conversation that the archive has so.
    """

    tenant: str
    digits: str
    whole: bool = False
    erase: bool = False
    cut: Saved | None = None
    later: Saved | None = None


class Reconciled(msgspec.Struct):
    """The result for a shard: how many trees were looked at, how many turns and trees were deleted again, and
    conversations moved on, which of them are under way and stay for now, and how many trees can't be read in the
    archive.
    """

    trees: int = 0
    deleted: int = 0
    moved: int = 0
    unreadable: int = 0
    under_way: list[Returned] = []


class Reconciler:
    """Finds and deletes the deleted turns that a store has again, and moves the conversations that stand where they
    stood. All raise StoreUnavailable and ArchiveUnavailable.
    """

    def __init__(
        self,
        history: ConversationHistoryStore,
        archive: Archive,
        reconciled: Callable[[int, Reconciled], None] = lambda number, done: None,
    ) -> None:
        """`reconciled` is called with the result for a shard."""
        self._history, self._archive, self._reconciled = history, archive, reconciled
        self._marks = Marks(archive)
        self._memory = Memory(history.server, history.keyspace)
        self._under_way: dict[int, list[Returned]] = {}

    async def shard(self, number: int) -> bool:
        """Delete again what a shard should not have: a read of the archive for each part of each of its trees. Returns
        whether nothing is left; where a run is under way in some of it, the next call tries that again.
        """
        if number not in self._under_way:
            done = await self._all_of(number)
            self._reconciled(number, done)
            self._under_way[number] = done.under_way
        left = [each for each in self._under_way[number] if not await self.delete(each)]
        self._under_way[number] = left
        if not left:
            del self._under_way[number]
        return not left

    async def found(self, tenant: str, gone: Gone) -> list[Returned]:
        """The deleted turns and trees that Redis still has, of one tree, or of several that share their place."""
        trees = [digits for digits in sorted(gone.trees) if await self._has_tree(tenant, digits)]
        returned = [Returned(tenant, digits, whole=True) for digits in trees]
        nodes = await self._memory.nodes(tenant, [*gone.turns, *gone.cut, *gone.named], idle_us=0)
        for digits, node in nodes.items():
            if node.root in gone.trees:
                continue
            if digits in gone.named and digits not in gone.turns:
                if await self._is_behind(tenant, node, gone):
                    returned.append(Returned(tenant, digits, later=gone.named[digits]))
            elif digits not in gone.turns:
                if await self._lacks_cut(tenant, node, gone.cut[digits]):
                    returned.append(Returned(tenant, digits, cut=gone.cut[digits]))
            elif not node.deleted or (gone.turns[digits] and node.erased is None):
                returned.append(Returned(tenant, digits, erase=gone.turns[digits]))
        return returned

    async def delete(self, returned: Returned) -> bool:
        """Delete it as a user would, or move it on; False where it is under way."""
        history, turn = self._history, returned.cut
        keys = history.keyspace.keys(returned.tenant, returned.digits)
        if returned.later is not None:
            return await self._move_on(keys)
        try:
            if turn is not None:  # it gets the content that it has in the archive
                content = turn.messages, turn.response or b"", turn.items or b"[]"
                await history.redact_here(keys, turn.id, lambda messages, response, items: content)
            elif returned.whole:
                await self._forget_tree(keys)
            else:
                await history.server.run(forget, keys, token=history.token(), idle_us=0, erase=returned.erase)
        except NotTerminal:
            return False
        except NotFound:  # it went by itself, or a call before this one was cut short
            pass
        return True

    async def _forget_tree(self, keys: TurnKeys) -> None:
        """Delete a tree by its root, or where that was deleted by another turn of it."""
        history = self._history
        delete = partial(forget_tree, token=history.token(), caps=history.caps)
        try:
            await history.server.run(delete, keys)
        except NotFound:
            async for turns in self._memory.turns(keys.tenant, keys.digits):
                for turn in turns:
                    if not turn.deleted:
                        await history.server.run(delete, history.keyspace.keys(keys.tenant, turn.digits))
                        return

    async def _all_of(self, number: int) -> Reconciled:
        done = Reconciled()
        async for some in batches(self._memory.trees(number)):
            await side_by_side(self._tree(*each, done) for each in some)
        return done

    async def _tree(self, tenant: str, root: str, done: Reconciled) -> None:
        done.trees += 1
        gone = await self._gone(tenant, root)
        if gone is None:
            done.unreadable += 1
            return
        for returned in await self.found(tenant, gone):
            if await self.delete(returned):
                done.deleted += returned.later is None
                done.moved += returned.later is not None
            else:
                done.under_way.append(returned)

    async def _gone(self, tenant: str, root: str) -> Gone | None:
        """The deletions that the archive has of a tree of Redis; None where it can't be read."""
        gone = Gone()
        if erased := await self._marks.erased(tenant):
            turns = [turn.digits async for some in self._memory.turns(tenant, root) for turn in some]
            nodes = await self._memory.nodes(tenant, turns, idle_us=0)
            gone.turns = {digits: True for digits, node in nodes.items() if node.created <= erased}
            if len(gone.turns) == len(nodes) > 0:
                gone.trees.add(root)
                return gone
        number, parts = 0, 1
        while number < parts:
            stored = await self._archive.get(key_of(tenant, root, number))
            try:
                part = Part() if stored is None else decoded(stored.value)
            except (ArchiveDamaged, NewerFormat):  # `verify` reports it
                return None
            parts = part.parts if number == 0 else parts
            gone.add(part)
            number += 1
        return gone

    async def _move_on(self, keys: TurnKeys) -> bool:
        """Have a conversation come from the archive in the place of an earlier form of it; False where that is used all
        the time.
        """
        for _ in range(TRIES):
            gone = await self._gone(keys.tenant, keys.digits)
            nodes = await self._memory.nodes(keys.tenant, [keys.digits], idle_us=0)
            if gone is None or keys.digits not in gone.named:
                return True
            if (node := nodes.get(keys.digits)) is not None:
                if not await self._is_behind(keys.tenant, node, gone):
                    return True
                (word,) = await self._history.server.run(scripts.let_go, keys, used=str(node.used))
                if word != b"ok":
                    continue
            await self._bring_back(keys)
            return True
        return False

    async def _bring_back(self, keys: TurnKeys) -> None:
        """Bring a conversation back, as far as there is room: else it comes once it is asked for."""
        with suppress(ChainTooLong):
            way = await ArchivedTurns(self._history, self._archive).way(keys.tenant, keys.digits)
            if way is None:
                return
            for row in rows(way.turns):
                words = await store_row(self._history, keys.tenant, row, way.archived, lambda turn: turn.used)
                if any(word not in THERE for word in words or [b"full"]):
                    return

    async def _is_behind(self, tenant: str, node: Node, gone: Gone) -> bool:
        """Whether Redis has an earlier form of a conversation than the archive. A change that is noted is of that time;
        without a note Redis had what the archive has.
        """
        later, index, shard = gone.named[node.digits], gone.index, self._history.keyspace.shard(node.digits)
        reader = ShardReader(self._history.server, shard, 0)
        here = None if node.deleted else await reader.turn(tenant, node)
        if here is None or (here.parent, here.response) == (later.parent, later.response):
            return False
        at = node.parent
        while at is not None and id_of(at) not in index.entries:
            (above,) = await reader.describe([f"{tenant}/{at}"], ABOVE)
            if not above:
                break
            for each in above:
                index.entries.setdefault(id_of(each.digits), _entry_of(each))
                at = each.parent
        used = await self._memory.noted(tenant, node.root, node.digits)
        if not used and await self._history.server.command("EXISTS", shard.older):  # not all is noted
            used = node.used
        one, other = Entry.of_saved(later), Entry.of_saved(msgspec.structs.replace(here, used=used))
        return not is_another(later.id, one, other) and outdoes(later.id, one, other, index)

    async def _has_tree(self, tenant: str, root: str) -> bool:
        """Whether a tree is known."""
        if shard_of(root) >= self._history.keyspace.shards:
            return False
        trees = self._history.keyspace.shard(root).trees
        return float(await self._history.server.command("ZSCORE", trees, f"{tenant}/{root}") or 0) > 0

    async def _lacks_cut(self, tenant: str, node: Node, turn: Saved) -> bool:
        """Whether a turn of Redis still has items that were erased from it; not where that has yet to be archived."""
        if node.deleted or node.status not in TERMINAL:
            return False
        if node.erased is None:
            return True
        reader = ShardReader(self._history.server, self._history.keyspace.shard(node.digits), 0)
        here = await reader.turn(tenant, node)
        differs = here is not None and (here.messages, here.items) != (turn.messages, turn.items)
        return differs and not await self._memory.noted(tenant, node.root, node.digits)


def _entry_of(node: Node) -> Entry:
    """The entry of a turn that Redis alone has, which only says what it continues."""
    parent = None if node.parent is None else id_of(node.parent)
    return Entry(NOWHERE, parent, 0, 0, node.deleted, False, node.digest, node.used)
