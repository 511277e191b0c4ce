"""The archiver: writes the news of trees to the archive, some time after they changed.

Scripts note each change in the call that makes it (store/redis/lua/unarchived.lua), so a crash misses none. An archiver
reads the notes, then the parts, then the turns, and clears only the notes of turns that it has written. Any number of
archivers may do the same tree: one of them is late and begins again, or does it twice.
"""

from collections.abc import Collection, Iterable
from typing import NamedTuple

from store.archive.archive import Archive
from store.backup.archiving.keeping import Keeping
from store.backup.archiving.marks import Marks
from store.backup.archiving.merging import News
from store.backup.archiving.parts import PART_BYTES, Index
from store.backup.archiving.passes import PASS_BYTES, Pass, Taken
from store.backup.archiving.shards import begin_archive
from store.backup.deletions import Deletions
from store.backup.reading import ShardReader
from store.keys import Keyspace, ShardKeys, digits_of, id_of, shard_of
from store.redis import scripts
from store.redis.connection import Server

AFTER_SECONDS = 60.0
"""How long after its first change a tree is archived, with all changes until then."""

FENCE_SECONDS = 60.0
"""How long a deletion is known, so that a reader of the archive from before it brings no deleted turn back."""

CHANGES = 1_000
"""How many changes of a tree are archived at once: more go with the next time."""

PASSES = 100
"""How many passes of a turn with much above it are made at once."""

HERE, FORGOTTEN, ERASED, TREE = "+", "-", "x", "*"
"""The kinds of a change, before its digits: a turn as it is now, a deleted turn, an erased turn, a deleted tree."""


class Due(NamedTuple):
    """A tree with changes that the archive lacks, by the digits of its root."""

    tenant: str
    root: str


class Archiver:
    """Archives what is new in a store. All raise StoreUnavailable and ArchiveUnavailable, also where something was
    deleted and the shard went back in time before; about one tree also ArchiveDamaged and NewerFormat, where what is
    archived of it can't be read.
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
        deletions: Deletions | None = None,
    ) -> None:
        """`deletions` counts deleted turns and trees."""
        self._deletions = deletions or Deletions(server, keyspace, archive)
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
            seconds, micros = await operation.command("TIME", at=shard.clock)
            now = int(seconds) * 1000 + int(micros) // 1000
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
        async with self._server.operation() as operation:
            _, remaining = await scripts.archived(operation, keys, done=done, fence_ms=self._fence_ms)
        return int(remaining)

    async def _pass(self, shard: ShardKeys, tree: Due, changes: Collection[str], before: Collection[str]) -> Taken:
        """Archive as many changed turns as a pass takes, but for those that were archived just before."""
        reader = ShardReader(self._server, shard, 0)
        taken = Taken((), (), new=False)

        async def news(index: Index) -> News:
            nonlocal taken
            erased = await self._marks.erased(tree.tenant)
            made = Pass(reader, tree.tenant, index, self._pass_bytes, before=before, erased=erased)
            taken = await made.take(_here(changes))
            news = News(taken.turns, *_gone(changes))
            if news.takes_away:
                await self._deletions.count(shard_of(tree.root))
            return news

        await self._keeping.change(tree.tenant, tree.root, news)
        return taken


def _here(changes: Iterable[str]) -> list[str]:
    """The digits of turns that are to be archived as they are."""
    return [each[1:] for each in changes if each[0] == HERE]


def _gone(changes: Iterable[str]) -> tuple[dict[str, bool], list[str]]:
    """The ids of deleted turns, each with whether its messages were erased, and of deleted trees."""
    turns = {id_of(each[1:]): False for each in changes if each[0] == FORGOTTEN}
    turns |= {id_of(each[1:]): True for each in changes if each[0] == ERASED}
    return turns, [id_of(each[1:]) for each in changes if each[0] == TREE]
