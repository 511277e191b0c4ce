"""A store with an archive that takes what changed as soon as it is asked to."""

from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import NamedTuple

from redis.asyncio import Redis

from store.archive.archive import Archive
from store.archive.opening import open_archive
from store.backup.archiving.archived_turns import ArchivedTurns
from store.backup.archiving.archiver import Archiver, Due
from store.backup.archiving.shards import begin_archive
from store.history.caps import Caps
from store.history.history import ConversationHistoryStore
from store.keys import digits_of
from store.redis.connection import connect
from tests.support.store.sample import TENANT


async def archive_one(archiver: Archiver, tree: Due) -> int:
    """Archive some changes of a tree; how many are left."""
    (left,) = await archiver.strike([await archiver.write(tree)])
    return left


class Archived(NamedTuple):
    """A store, its archive, and who moves turns from the one into the other."""

    store: ConversationHistoryStore
    archive: Archive
    archiver: Archiver
    turns: ArchivedTurns

    async def archive_all(self) -> int:
        """Archive all that is due; how many trees that was."""
        (shard,) = self.store.keyspace.all_shards()
        due = await self.archiver.due(shard, 100)
        for tree in due:
            while await archive_one(self.archiver, tree):
                pass
        return len(due)

    async def ids(self, id: str) -> list[str] | None:
        """The path to a turn, as the archive has it."""
        way = await self.turns.way(TENANT, digits_of(id))
        return None if way is None else [each.id for each in way.turns]


Open = Callable[..., Awaitable[Archived]]
"""Opens both, with some caps and sizes."""


async def lose(redis: Redis, prefix: str) -> None:
    """Have a server that lost all that it had, but for that there is an archive, its heads, and its own id in that."""
    kept = (b"}:archive", b"}:archive-head", b"}:archive-user")
    keys = [key async for key in redis.scan_iter(f"{prefix}:*") if not key.endswith(kept)]
    await redis.delete(*keys)


async def opened(url: str, prefix: str, folder: Path, caps: Caps, **sizes: int) -> Archived:
    """Open both; `sizes` are the archiver's."""
    store = ConversationHistoryStore(connect(url), prefix=prefix, caps=caps, timeout_seconds=15)
    archive = open_archive("sqlite", folder)
    archiver = Archiver(store.server, store.keyspace, archive, **sizes)
    await begin_archive(store.server, store.keyspace, 0)
    return Archived(store, archive, archiver, ArchivedTurns(store, archive, unknown_seconds=0))
