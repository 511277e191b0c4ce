"""The archiver: writes the news of trees to the archive, some time after they changed.

Scripts note each change in the call that makes it (store/redis/lua/unarchived.lua), so a crash misses none. An archiver
reads the notes, then the parts, then the turns, and clears only the notes of turns that it has written. Any number of
archivers may do the same tree: one of them is late and begins again, or does it twice.

An archiver takes a tree in passes, so that it never holds more than some megabytes of it. The changed turns are taken
oldest first, each with those above it that the archive lacks, the nearest first. So a deleted turn, kept only for those
that continue it, never comes before them. A turn counts as archived once all above it is. A turn with more above it
than a pass takes is taken again with the next pass, and the rest of them.
"""

from collections.abc import Collection, Iterable, Sequence
from contextlib import aclosing
from typing import NamedTuple

from store.archive.archive import Archive
from store.backup.archiving.keeping import Keeping
from store.backup.archiving.marks import Marks
from store.backup.archiving.merging import News, as_of
from store.backup.archiving.parts import PART_BYTES, Index
from store.backup.archiving.shards import begin_archive
from store.backup.heads import Heads
from store.backup.reading import ABOVE, TURNS, Node, ShardReader
from store.backup.records import Saved
from store.history.delete import ERASED, FORGOTTEN, TREE
from store.keys import Keyspace, ShardKeys, digits_of, id_of, shard_of
from store.redis import scripts
from store.redis.connection import Server
from store.turn import TERMINAL

PASS_BYTES = 8 << 20
"""How many bytes of turns a pass takes, as the store has them and as they are unpacked; one alone may have more."""

AFTER_SECONDS = 60.0
"""How long after its first change a tree is archived, with all changes until then."""

FENCE_SECONDS = 60.0
"""How long a deletion is known, so that a reader of the archive from before it brings no deleted turn back."""

CHANGES = 1_000
"""How many changes of a tree are archived at once: more go with the next time."""

PASSES = 100
"""How many passes of a turn with much above it are made at once."""

HERE = "+"
"""The kind of a change that is no deletion, before the digits of a turn as it is now."""


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
        as they are now. Of the tenant's turns from until `erased`, in µs since 1970, it takes what is left for later
        ones that continue them.
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
                turn = read[node.digits] = as_of(turn, self._erased)
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
                if not nodes or nodes[0].status not in TERMINAL or nodes[0].created <= self._erased:
                    continue
                if not await self._choose_way(nodes[0]):
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
            self._above = {node.digits: node for node in nodes if node.status in TERMINAL}
        node = self._above.pop(digits, None)
        if node is None:
            self._nowhere.add(digits)
        return node

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


class Due(NamedTuple):
    """A tree with changes that the archive lacks, by the digits of its root."""

    tenant: str
    root: str


class Written(NamedTuple):
    """A tree, and those of its changes that the archive has: `MEMBER=SCORE` of each, with spaces between."""

    tree: Due
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
        after_seconds: float = AFTER_SECONDS,
        fence_seconds: float = FENCE_SECONDS,
        part_bytes: int = PART_BYTES,
        pass_bytes: int = PASS_BYTES,
        passes: int = PASSES,
        heads: Heads | None = None,
    ) -> None:
        """`heads` are those of the store and the archive."""
        self._heads = heads or Heads(server, keyspace, archive)
        self._pass_bytes, self._passes = pass_bytes, passes
        self._server, self._keyspace = server, keyspace
        self._keeping, self._marks = Keeping(archive, part_bytes), Marks(archive)
        self._after_seconds, self._fence_ms = after_seconds, round(fence_seconds * 1000)

    async def begin(self) -> None:
        """Have every shard note its changes from now on."""
        await begin_archive(self._server, self._keyspace, self._after_seconds)

    async def due(self, shard: ShardKeys, most: int, *, early: bool = False) -> list[Due]:
        """The trees of a shard that are to be archived by now, the one that has waited longest first; with `early` also
        those that will be, but not those that could not be archived before.
        """
        async with self._server.operation() as operation:
            now = await operation.now_us(shard.clock) // 1000
            until = "+inf" if early else now
            found = await operation.command("ZRANGE", shard.unarchived, "-inf", until, "BYSCORE", "LIMIT", 0, most)
            if early and found:
                failed = await operation.command("HMGET", shard.archive_failed, *found)
                found = [member for member, reason in zip(found, failed, strict=True) if reason is None]
        return [Due(*member.decode().split("/")) for member in found]

    async def archive(self, tree: Due) -> int:
        """Archive up to CHANGES changes of a tree, and return how many are left. These are fewer each time, but for
        turns that can't be read, and changes meanwhile.
        """
        (left,) = await self.strike([await self.write(tree)])
        return left

    async def write(self, tree: Due) -> Written:
        """Write up to CHANGES changes of a tree to the archive; Redis goes on noting them until `strike`."""
        keys = self._keyspace.keys(tree.tenant, tree.root)
        async with self._server.operation() as operation:
            args = ("ZRANGE", keys.shard.changes_of(tree.tenant, tree.root), 0, CHANGES - 1, "WITHSCORES")
            replies = [each.decode() for each in await operation.command(*args)]
        changes = dict(zip(replies[::2], replies[1::2], strict=True))
        left: Collection[str] = ()
        before = set[str]()
        for _ in range(self._passes):
            taken = await self._pass(keys.shard, tree, changes, before)
            before.update(digits_of(turn.id) for turn in taken.turns)
            left = taken.left
            if not taken.new or len(left) < len(_here(changes)):
                break
        done = " ".join(
            f"{member}={score}" for member, score in changes.items() if member[0] != HERE or member[1:] not in left
        )
        return Written(tree, done)

    async def strike(self, written: Sequence[Written]) -> list[int]:
        """Have Redis strike out what was written of some trees of one shard; how many changes are left of each. The
        head is raised once for all: a copy of the archive from before is known for one.
        """
        left: list[int] = []
        if written:
            shard = shard_of(written[0].tree.root)
            await self._heads.know(shard, await self._heads.raise_(shard))
        for tree, done in written:
            keys = self._keyspace.keys(tree.tenant, tree.root)
            async with self._server.operation() as operation:
                _, remaining = await scripts.archived(operation, keys, done=done, fence_ms=self._fence_ms)
            left.append(int(remaining))
        return left

    async def _pass(self, shard: ShardKeys, tree: Due, changes: Collection[str], before: Collection[str]) -> Taken:
        """Archive as many changed turns as a pass takes, but for those that were archived just before."""
        reader = ShardReader(self._server, shard, 0)
        taken = Taken((), (), new=False)

        async def news(index: Index) -> News:
            nonlocal taken
            erased = await self._marks.erased(tree.tenant)
            made = Pass(reader, tree.tenant, index, self._pass_bytes, before=before, erased=erased)
            taken = await made.take(_here(changes))
            news = News(taken.turns, *gone_in(changes))
            if news.takes_away:
                await self._heads.raise_(shard_of(tree.root), gone=True)
            return news

        await self._keeping.change(tree.tenant, tree.root, news)
        return taken


def _here(changes: Iterable[str]) -> list[str]:
    """The digits of turns that are to be archived as they are."""
    return [each[1:] for each in changes if each[0] == HERE]


def gone_in(changes: Collection[str]) -> tuple[dict[str, bool], list[str]]:
    """The ids of deleted turns, each with whether its messages were erased, and of deleted trees."""
    turns = {id_of(each[1:]): False for each in changes if each[0] == FORGOTTEN}
    turns |= {id_of(each[1:]): True for each in changes if each[0] == ERASED}
    return turns, [id_of(each[1:]) for each in changes if each[0] == TREE]
