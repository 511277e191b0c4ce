"""Reconciling: turns that Redis has again, as it went back in time, are deleted there once more, and conversations that
stand where they stood before move on to where the archive has them.

The archive keeps the ids of deleted turns for as long as a tree lives, so it knows better than a server that was
restored from an old backup. Nothing else is changed: turns that such a server lacks come back from the archive when
they are asked for.
"""

from collections.abc import Callable, Mapping
from contextlib import suppress
from functools import partial
from typing import NamedTuple

import msgspec

from store.archive.archive import Archive
from store.backup.archiving.archived_turns import ArchivedTurns
from store.backup.archiving.keeping import Keeping, Scan
from store.backup.archiving.marks import Marks
from store.backup.archiving.merging import is_another, outdoes
from store.backup.archiving.parts import NOWHERE, Index, TurnEntry
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

TRIES = 8
"""How often a conversation is looked at again because somebody has used it meanwhile."""

CHANGING = ("parent", "messages", "response", "items")
"""The members of a turn or a conversation that change after it was made."""


class TreeFacts(NamedTuple):
    """An archived tree, or several that share their place, as a comparison with Redis needs it: what is `known` of its
    turns; its `deleted` turns by their digits, and whether their messages were erased; the roots of `trees` that were
    deleted whole; the `forms` of conversations, and of turns of which items were erased; why parts can't be read.
    """

    known: Index
    deleted: dict[str, bool]
    trees: set[str]
    forms: dict[str, Saved]
    faults: Mapping[int, ArchiveDamaged | NewerFormat]


async def facts_of(scan: Scan) -> TreeFacts:
    """The facts of a tree. Raises as a scan."""
    await scan.all()
    index, forms = scan.index, dict[str, Saved]()
    async for number, part in scan.parts():
        for turn in part.turns:
            is_there = turn.id in index.entries and index.entries[turn.id].number == number
            if is_there and not index.is_gone(turn.id) and (turn.erased is not None or is_conversation(turn.id)):
                forms[digits_of(turn.id)] = turn
    deleted = {digits_of(id): erased for id, erased in index.gone.items()}
    for id in filter(index.is_gone, index.entries):
        deleted[digits_of(id)] = index.gone.get(id, False) or index.entries[id].erased
    return TreeFacts(index, deleted, set(map(digits_of, index.gone_trees)), forms, scan.faults)


class Returned(NamedTuple):
    """A deletion that Redis has lost: of a turn by its digits, or with `whole` of the tree of that root. With `erase`
    its messages go too. With a `form` Redis has an earlier one of a turn, from which items were erased since, or of a
    conversation, which has moved.
    """

    tenant: str
    digits: str
    whole: bool = False
    erase: bool = False
    form: Saved | None = None

    @property
    def moves(self) -> bool:
        """Whether it is the move of a conversation."""
        return self.form is not None and is_conversation(self.form.id)


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
        self._keeping, self._marks = Keeping(archive), Marks(archive)
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

    async def found(self, tenant: str, facts: TreeFacts) -> list[Returned]:
        """The deleted turns and trees that Redis still has, of one tree, or of several that share their place."""
        trees = [digits for digits in sorted(facts.trees) if await self._has_tree(tenant, digits)]
        returned = [Returned(tenant, digits, whole=True) for digits in trees]
        nodes = await self._memory.nodes(tenant, [*facts.deleted, *facts.forms], idle_us=0)
        for digits, node in nodes.items():
            erase = facts.deleted.get(digits)
            if node.root in facts.trees:
                continue
            if erase is None:
                if await self._is_behind(tenant, node, facts):
                    returned.append(Returned(tenant, digits, form=facts.forms[digits]))
            elif not node.deleted or (erase and node.erased is None):
                returned.append(Returned(tenant, digits, erase=erase))
        return returned

    async def delete(self, returned: Returned) -> bool:
        """Delete it as a user would, or move it on; False where it is under way."""
        history, turn = self._history, returned.form
        keys = history.keyspace.keys(returned.tenant, returned.digits)
        if returned.moves:
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
        facts = await self._facts(tenant, root)
        done.unreadable += bool(facts.faults)
        for returned in await self.found(tenant, facts):
            if await self.delete(returned):
                done.deleted += not returned.moves
                done.moved += returned.moves
            else:
                done.under_way.append(returned)

    async def _facts(self, tenant: str, root: str) -> TreeFacts:
        """The facts that the archive has about a tree of Redis, as far as they can be read; `verify` finds the rest."""
        facts = await self._keeping.look(tenant, root, facts_of, listed=1)
        if erased := await self._marks.erased_until(tenant):
            turns = [turn.digits async for some in self._memory.turns(tenant, root) for turn in some]
            nodes = await self._memory.nodes(tenant, turns, idle_us=0)
            old = {digits: True for digits, node in nodes.items() if node.created <= erased}
            facts.deleted.update(old)
            facts.trees.update([root] if len(old) == len(nodes) > 0 else ())
        return facts

    async def _move_on(self, keys: TurnKeys) -> bool:
        """Have a conversation come from the archive in the place of an earlier form of it; False where that is used all
        the time.
        """
        for _ in range(TRIES):
            facts = await self._facts(keys.tenant, keys.digits)
            nodes = await self._memory.nodes(keys.tenant, [keys.digits], idle_us=0)
            if keys.digits not in facts.forms:
                return True
            if (node := nodes.get(keys.digits)) is not None:
                if not await self._is_behind(keys.tenant, node, facts):
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

    async def _is_behind(self, tenant: str, node: Node, facts: TreeFacts) -> bool:
        """Whether Redis has an earlier form of a turn or of a conversation than the archive. A change that is noted is
        of that time; without a note Redis had what the archive has.
        """
        form, index, shard = facts.forms[node.digits], facts.known, self._history.keyspace.shard(node.digits)
        reader = ShardReader(self._history.server, shard)
        here = None if node.deleted else await reader.turn(tenant, node)
        if here is None or all(getattr(here, name) == getattr(form, name) for name in CHANGING):
            return False
        used = await self._memory.changed_at(tenant, node.root, node.digits)
        if not is_conversation(form.id):
            return here.erased is None or not used
        at = node.parent
        while at is not None and id_of(at) not in index.entries:
            (above,) = await reader.describe([f"{tenant}/{at}"], ABOVE)
            if not above:
                break
            for each in above:
                index.entries.setdefault(id_of(each.digits), _entry_of(each))
                at = each.parent
        if not used and await self._history.server.command("EXISTS", shard.older):  # not all is noted
            used = node.used
        one, other = TurnEntry.of_saved(form), TurnEntry.of_saved(msgspec.structs.replace(here, used=used))
        return not is_another(form.id, one, other) and outdoes(form.id, one, other, index)

    async def _has_tree(self, tenant: str, root: str) -> bool:
        """Whether a tree is known."""
        if shard_of(root) >= self._history.keyspace.shards:
            return False
        trees = self._history.keyspace.shard(root).trees
        return float(await self._history.server.command("ZSCORE", trees, f"{tenant}/{root}") or 0) > 0


def _entry_of(node: Node) -> TurnEntry:
    """The entry of a turn that Redis alone has, which only says what it continues."""
    parent = None if node.parent is None else id_of(node.parent)
    return TurnEntry(NOWHERE, parent, 0, 0, node.deleted, False, node.digest, node.created, node.used)
