"""The archiver: writes the news of trees to the archive, some time after they changed.

Scripts note each change in the call that makes it (store/redis/lua/unarchived.lua), so a crash misses none. An archiver
reads the notes, then the parts, then the turns, and clears only the notes of turns that it has written. Any number of
archivers may do the same tree: one of them is late and begins again, or does it twice.

An archiver takes a tree in passes, so that it never holds more than some megabytes of it. The changed turns are taken
oldest first, each behind those above it that the archive lacks. A turn counts as archived once all above it is.
"""

from collections.abc import Collection, Mapping, Sequence
from contextlib import aclosing
from typing import NamedTuple

import msgspec

from store.archive.archive import Archive
from store.backup.archiving.keeping import Keeping
from store.backup.archiving.marks import Marks
from store.backup.archiving.merging import News, as_of
from store.backup.archiving.parts import PART_BYTES, Index, TurnEntry
from store.backup.heads import Heads
from store.backup.reading import ABOVE, BROKEN, TURNS, Node, ShardReader, portions
from store.backup.records import Saved
from store.history.delete import ERASED, FORGOTTEN, TREE
from store.keys import ARCHIVE, Keyspace, ShardKeys, digits_of, id_of, is_conversation, shard_of
from store.redis import scripts
from store.redis.connection import Server
from store.turn import TERMINAL

PASS_BYTES = 8 << 20
"""How many bytes of turns a pass takes, as the store has them and as they are unpacked; one alone may have more."""

AFTER_SECONDS = 60.0
"""How long after its first change a tree is archived, with all changes until then."""

FENCE_MS = 60_000
"""How long a deletion is known, so that a reader of the archive from before it brings no deleted turn back."""

CHANGES = 1_000
"""How many changes of a tree are archived at once: more go with the next time."""

LATER_SECONDS = 600.0
"""After how long a tree is tried again that can't be archived as it is."""

AHEAD_MS = 60_000
"""By how much a tree is due later than any can be where the clock was ahead when it changed."""

PASSES = 100
"""How many passes of a turn with much above it are made at once."""

HERE = "+"
"""The kind of a change that is no deletion, before the digits of a turn as it is now."""


class ArchivePlan:
    """The turns of one tree that the archive lacks, or has as they were, each behind those that it continues. `changed`
    has the digits of those that changed; `nowhere` those that a turn continues and that are not there: nothing more can
    be archived of it. All raise StoreUnavailable.
    """

    def __init__(self, reader: ShardReader, tenant: str, erased: int) -> None:
        """Of the tenant's turns from until `erased`, in µs since 1970, it takes what is left for later ones."""
        self._reader, self._tenant, self._erased = reader, tenant, erased
        self.nodes: dict[str, Node] = {}
        self.changed: list[str] = []
        self.nowhere = set[str]()

    async def make(self, changed: Sequence[str], index: Index) -> None:
        """Look for these, in their order, and for those above them that an archive with this index lacks."""
        known = set[str]()
        for at in range(0, len(changed), TURNS):
            some = [f"{self._tenant}/{each}" for each in changed[at : at + TURNS]]
            described = await self._reader.describe(some, broken=True)
            for found in described:
                if found and found[0].status == BROKEN:  # it is left until a repair has made it whole
                    self.changed.append(found[0].digits)
                elif found and found[0].status in TERMINAL and found[0].created > self._erased:
                    self.changed.append(found[0].digits)
                    await self._add_way(found[0], index, known)

    async def _add_way(self, changed: Node, index: Index, known: set[str]) -> None:
        way = [] if changed.digits in self.nodes else [changed]
        above, at = dict[str, Node](), changed.parent
        while at is not None and at not in known and at not in self.nodes:
            known.add(at)
            if entry := index.entries.get(id_of(at)):
                at = entry.parent and digits_of(entry.parent)
                continue
            if at not in above:
                (nodes,) = await self._reader.describe([f"{self._tenant}/{at}"], ABOVE)
                above = {node.digits: node for node in nodes if node.status in TERMINAL}
            if at not in above:
                self.nowhere.add(at)
                break
            way.append(above[at])
            at = above[at].parent
        self.nodes.update((node.digits, node) for node in reversed(way))

    def continued_ids(self, taken: int) -> set[str]:
        """The ids of deleted turns that those continue which will be archived after the first so many."""
        found = set[str | None]()
        for node in [*self.nodes.values()][: taken - 1 if taken else None : -1]:
            if not node.deleted or node.digits in found:
                found.add(node.parent)
        return {id_of(digits) for digits in found if digits is not None}

    async def read(self, taken: int, most: int) -> dict[str, Saved | None]:
        """The next turns after the first so many, of `most` bytes or one turn; None for one that can't be read."""
        found, size = dict[str, Saved | None](), 0
        some = next(portions([*self.nodes.values()][taken:], lambda node: node.payload, most), list[Node]())
        async with aclosing(self._reader.turns(self._tenant, some)) as turns:
            async for node, turn in turns:
                found[node.digits] = turn and as_of(turn, self._erased)
                size += turn.payload if turn else 0
                if size >= most:
                    break
        return found

    async def turns_left(self, read: Mapping[str, Saved | None], index: Index) -> set[str]:
        """Those of the changed turns that an archive with this index has not got, of those that were `read`."""
        unread = [digits for digits in self.changed if read.get(digits) is None]
        there = await self._reader.nodes(self._tenant, unread, broken=True)
        return there.keys() | {
            digits for digits in self.changed if read.get(digits) and not self._is_there(digits, index)
        }

    def _is_there(self, digits: str, index: Index) -> bool:
        """Whether all that is there of a turn and above it is archived. A deleted one may have gone by now."""
        at, way = id_of(digits), set[str]()
        if at not in index.entries:
            return True
        while (entry := index.entries.get(at)) and entry.parent and at not in way:
            way.add(at)
            at = entry.parent
        return entry is not None or digits_of(at) in self.nowhere


class DueTree(NamedTuple):
    """A tree with changes that the archive lacks, by the digits of its root."""

    tenant: str
    root: str


class WrittenTree(NamedTuple):
    """A tree, and those of its changes that the archive has: `MEMBER=SCORE` of each, with spaces between."""

    tree: DueTree
    done: str


class Archiver:
    """Archives what is new in a store. All raise StoreUnavailable and ArchiveUnavailable, also where the
    shard went back in time, ArchiveWentBack, and ArchiveShared; about one tree also ArchiveDamaged and NewerFormat,
    where what is archived of it can't be read.
    """

    def __init__(
        self,
        server: Server,
        keyspace: Keyspace,
        archive: Archive,
        *,
        part_bytes: int = PART_BYTES,
        pass_bytes: int = PASS_BYTES,
        passes: int = PASSES,
        heads: Heads | None = None,
    ) -> None:
        """`heads` are those of the store and the archive."""
        self._heads = heads or Heads(server, keyspace, archive)
        self._pass_bytes, self._passes = pass_bytes, passes
        self._server, self._keyspace = server, keyspace
        self._archive, self._keeping, self._marks = archive, Keeping(archive, part_bytes), Marks(archive)

    async def due(self, shard: ShardKeys, most: int, *, early: bool = False) -> list[DueTree]:
        """The trees of a shard that are to be archived by now, the one that has waited longest first; with `early` also
        those that will be, but not those that could not be archived before. First come those that changed while the
        clock was ahead: no other ones are due so late.
        """
        async with self._server.operation() as operation:
            now = await operation.now_us(shard.clock) // 1000
            after = int(await operation.command("HGET", shard.usage, ARCHIVE) or 0)
            latest = now + max(after, round(LATER_SECONDS * 1000)) + AHEAD_MS
            spans = ((f"({latest}", "+inf"), ("-inf", latest if early else now))
            found = list[bytes]()
            for span in spans:
                found += await operation.command("ZRANGE", shard.unarchived, *span, "BYSCORE", "LIMIT", 0, most)
            if early and found:
                failed = await operation.command("HMGET", shard.archive_failed, *found)
                found = [member for member, reason in zip(found, failed, strict=True) if reason is None]
        return [DueTree(*member.decode().split("/")) for member in found[:most]]

    async def write(self, tree: DueTree) -> WrittenTree:
        """Write up to CHANGES changes of a tree to the archive; Redis goes on noting them until `strike`. Fewer are
        left each time, but for turns that can't be read, and changes meanwhile.
        """
        keys = self._keyspace.keys(tree.tenant, tree.root)
        async with self._server.operation() as operation:
            args = ("ZRANGE", keys.shard.changes_of(tree.tenant, tree.root), 0, CHANGES - 1, "WITHSCORES")
            replies = [each.decode() for each in await operation.command(*args)]
        changes = dict(zip(replies[::2], replies[1::2], strict=True))
        left = await self._archive_turns(keys.shard, tree, changes)
        await self._archive.listener.tree_changed(tree.tenant, tree.root)
        done = " ".join(
            f"{member}={score}" for member, score in changes.items() if member[0] != HERE or member[1:] not in left
        )
        return WrittenTree(tree, done)

    async def strike(self, written: Sequence[WrittenTree]) -> list[int]:
        """Have Redis strike out what was written of some trees of one shard; how many changes are left of each. The
        head is raised once for all: a copy of the archive from before is known for one.
        """
        left: list[int] = []
        if written:
            shard = shard_of(written[0].tree.root)
            await self._heads.know(shard, await self._heads.raise_(shard))
        for tree, done in written:
            keys = self._keyspace.keys(tree.tenant, tree.root)
            _, remaining = await self._server.run(scripts.archived, keys, done=done, fence_ms=FENCE_MS)
            left.append(int(remaining))
        return left

    async def _archive_turns(self, shard: ShardKeys, tree: DueTree, changes: Collection[str]) -> Collection[str]:
        """Archive changed turns in passes, until some of them are there with all above them; the others."""
        reader, changed = ShardReader(self._server, shard), [each[1:] for each in changes if each[0] == HERE]
        plan = ArchivePlan(reader, tree.tenant, await self._marks.erased_until(tree.tenant))
        read, some, after = dict[str, Saved | None](), dict[str, Saved | None](), Index()
        left: Collection[str] = changed

        async def news(index: Index) -> News:
            nonlocal some, after
            after = index
            if not plan.changed:
                await plan.make(changed, index)
            some = await plan.read(len(read), self._pass_bytes)
            turns = [_used_since(turn, index.entries.get(turn.id)) for turn in some.values() if turn]
            news = News(turns, *gone_in(changes), plan.continued_ids(len(read) + len(some)))
            if news.takes_away or any(is_conversation(turn.id) and turn.id in index.entries for turn in turns):
                await self._heads.raise_(shard_of(tree.root), gone=True)
            return news

        for _ in range(self._passes):
            await self._keeping.change(tree.tenant, tree.root, news)
            read |= some
            left = await plan.turns_left(read, after)
            if len(left) < len(changed) or len(read) == len(plan.nodes):
                break
        return left


def _used_since(turn: Saved, archived: TurnEntry | None) -> Saved:
    """A turn as it is now: used no earlier than the archive says, whatever the clock of the server that it was on."""
    if archived is None or archived.used <= turn.used:
        return turn
    return msgspec.structs.replace(turn, used=archived.used)


def gone_in(changes: Collection[str]) -> tuple[dict[str, bool], list[str]]:
    """The ids of deleted turns, each with whether its messages were erased, and of deleted trees."""
    turns = {id_of(each[1:]): False for each in changes if each[0] == FORGOTTEN}
    turns |= {id_of(each[1:]): True for each in changes if each[0] == ERASED}
    return turns, [id_of(each[1:]) for each in changes if each[0] == TREE]
