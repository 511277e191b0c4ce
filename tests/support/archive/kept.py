"""A store with an archive behind it, that takes what changed as soon as it is asked to."""

import time
from collections.abc import AsyncGenerator, Awaitable, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any, NamedTuple

from redis.asyncio import Redis

from store.archive.archive import Archive
from store.archive.opening import open_archive
from store.archive.port import Stored
from store.backup.archiving.archived_turns import ArchivedTurns
from store.backup.archiving.archiver import Archiver, DueTree
from store.backup.archiving.marks import Marks
from store.backup.archiving.shards import begin_archive
from store.backup.upkeep.memory import Memory
from store.history.caps import Caps
from store.history.history import ConversationHistoryStore
from store.keys import ARCHIVE, COUNTERS, digits_of
from store.redis.connection import connect
from tests.support.store.sample import TENANT, grow

DAY = 86_400


async def archive_one(archiver: Archiver, tree: DueTree) -> int:
    """Archive some changes of a tree; how many are left."""
    (left,) = await archiver.strike([await archiver.write(tree)])
    return left


class Kept(NamedTuple):
    """A store, its archive, and what goes over both."""

    store: ConversationHistoryStore
    archive: Archive
    archiver: Archiver
    turns: ArchivedTurns
    memory: Memory
    marks: Marks

    async def archive_all(self) -> int:
        """Archive all that is due; how many trees that was."""
        due = [tree for shard in self.store.keyspace.all_shards() for tree in await self.archiver.due(shard, 1_000)]
        for tree in due:
            while await archive_one(self.archiver, tree):
                pass
        return len(due)

    async def archived(self, *names: str) -> tuple[list[str], str]:
        """The ids of a chain that is archived, and the key of the value that has them."""
        ids = await grow(self.store, *names)
        await self.archive_all()
        (key,) = await self.keys()
        return ids, key

    async def told(self, id: str, tenant: str = TENANT) -> list[str] | None:
        """The path to a turn, as somebody who has not read it yet is told of it by the archive."""
        way = await ArchivedTurns(self.store, self.archive).way(tenant, digits_of(id))
        return None if way is None else [each.id for each in way.turns]

    async def has(self, tenant: str, digits: str) -> bool:
        """Whether the archive has a turn, as a repair of the store asks."""
        return await self.turns.found(tenant, digits, remains=True) is not None

    async def keys(self, prefix: str = "v1/") -> list[str]:
        """All keys of the archive below a folder, without those of heads."""
        return [entry.key for entry in await self.archive.list(prefix) if not entry.key.endswith("/head")]

    async def leave_memory(self, id: str, tenant: str = TENANT) -> None:
        """Have a tree go from Redis as if it had been evicted: the archive doesn't hear of it."""
        for shard in self.store.keyspace.all_shards():
            async with self.store.server.operation() as operation:
                after = await operation.command("HGET", shard.usage, ARCHIVE)
                await operation.command("HDEL", shard.usage, ARCHIVE)
            if shard == self.store.keyspace.turn(tenant, id).shard:
                await self.store.forget_tree(tenant, id)
            async with self.store.server.operation() as operation:
                await operation.command("HSET", shard.usage, ARCHIVE, after)

    async def value(self, key: str) -> Stored:
        """The value of a key, which there has to be."""
        found = await self.archive.get(key)
        assert found is not None
        return found

    async def overwrite(self, key: str, value: bytes) -> None:
        """Put a value whatever is there."""
        found = await self.archive.get(key)
        assert await self.archive.put(key, value, only_if=found and found.etag) is not None


Open = Callable[..., Awaitable[Kept]]
"""Opens both, with some caps and sizes."""


async def begun(url: str, prefix: str, archive: Archive, caps: Caps | None = None, **sizes: Any) -> Kept:
    """A store whose changes are due to be archived at once; `sizes` are the archiver's."""
    store = ConversationHistoryStore(connect(url), prefix=prefix, caps=caps or Caps(), timeout_seconds=15)
    await begin_archive(store.server, store.keyspace, 0)
    archiver, turns = (
        Archiver(store.server, store.keyspace, archive, **sizes),
        ArchivedTurns(store, archive, unknown_seconds=0),
    )
    return Kept(store, archive, archiver, turns, Memory(store.server, store.keyspace), Marks(archive))


@asynccontextmanager
async def kept(url: str, prefix: str, archive: Archive, caps: Caps | None = None) -> AsyncGenerator[Kept]:
    """The same, until the end of the block."""
    made = await begun(url, prefix, archive, caps)
    yield made
    await made.store.close()


async def opened(url: str, prefix: str, folder: Path, caps: Caps, **sizes: int) -> Kept:
    """The same, with its archive in a folder."""
    return await begun(url, prefix, open_archive("sqlite", folder), caps, **sizes)


async def lose(redis: Redis, prefix: str) -> None:
    """Have a server that lost all that it had, but for that there is an archive, its heads, and its own id in that."""
    await drop(redis, prefix, "archive-head", "archive-user")


async def drop(redis: Redis, prefix: str, *left: str) -> None:
    """Delete all keys but those of shards that are `left`, and that there is an archive."""
    ends = tuple(f"}}:{name}".encode() for name in left)
    keys = {key async for key in redis.scan_iter(f"{prefix}:*") if not key.endswith(ends)}
    counted = {key for key in keys if key.endswith(b"}:usage")}
    for key in counted:
        await redis.hdel(key, *COUNTERS)
    await redis.delete(*keys - counted)


def micros() -> int:
    """Now, in µs since 1970."""
    return round(time.time() * 1e6)
