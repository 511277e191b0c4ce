"""A store with an archive behind it, for tests of what an operator does with that."""

import time
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from typing import NamedTuple

from store.archive.archive import Archive
from store.backup.archiving.archived_turns import ArchivedTurns
from store.backup.archiving.archiver import Archiver
from store.backup.archiving.marks import Marks
from store.backup.archiving.shards import begin_archive
from store.backup.upkeep.memory import Memory
from store.history.caps import Caps
from store.history.history import ConversationHistoryStore
from store.keys import digits_of
from store.redis.connection import connect
from tests.support.archive.stored import archive_one
from tests.support.store.sample import TENANT

DAY = 86_400


class Kept(NamedTuple):
    """A store, its archive, and what goes over both."""

    store: ConversationHistoryStore
    archive: Archive
    archiver: Archiver
    memory: Memory
    marks: Marks

    async def archive_all(self) -> None:
        for shard in self.store.keyspace.all_shards():
            for tree in await self.archiver.due(shard, 1_000):
                while await archive_one(self.archiver, tree):
                    pass

    async def told(self, id: str, tenant: str = TENANT) -> list[str] | None:
        """The path to a turn, as somebody who has not read it yet is told of it by the archive."""
        way = await ArchivedTurns(self.store, self.archive).way(tenant, digits_of(id))
        return None if way is None else [each.id for each in way.turns]

    async def keys(self, prefix: str = "v1/") -> list[str]:
        """All keys of the archive below a folder, without those of heads."""
        return [entry.key for entry in await self.archive.list(prefix) if not entry.key.endswith("/head")]

    async def leave_memory(self, id: str, tenant: str = TENANT) -> None:
        """Have a tree go from Redis as if it had been evicted: the archive doesn't hear of it."""
        for shard in self.store.keyspace.all_shards():
            async with self.store.server.operation() as operation:
                after = await operation.command("GET", shard.archive)
                await operation.command("DEL", shard.archive)
            if shard == self.store.keyspace.turn(tenant, id).shard:
                await self.store.forget_tree(tenant, id)
            async with self.store.server.operation() as operation:
                await operation.command("SET", shard.archive, after)


@asynccontextmanager
async def kept(url: str, prefix: str, archive: Archive, caps: Caps | None = None) -> AsyncGenerator[Kept]:
    """A store whose changes are due to be archived at once."""
    store = ConversationHistoryStore(connect(url), prefix=prefix, caps=caps or Caps(), timeout_seconds=15)
    archiver = Archiver(store.server, store.keyspace, archive)
    await begin_archive(store.server, store.keyspace, 0)
    yield Kept(store, archive, archiver, Memory(store.server, store.keyspace), Marks(archive))
    await store.close()


def micros() -> int:
    """Now, in µs since 1970."""
    return round(time.time() * 1e6)
