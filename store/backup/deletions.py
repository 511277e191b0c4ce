"""Deletions: how many an archive was told, counted in each shard of a store and in the archive. The counts show a shard
that went back in time: by an old backup, or by a server that lost its last second.

    v1/store/deletions/SHARD    the count of the archive, in decimal digits

An archiver counts a deletion in the shard first, which has the deletion by then, and then tells the archive the count
before the deletion. So a shard with a lower count than the archive's may have deleted turns again. A shard with the
same count, or a higher one, has all the deletions that the archive knows.
"""

from store.archive.archive import Archive
from store.errors import ArchiveContended, ArchiveRefused, ArchiveUnavailable
from store.keys import Keyspace, ShardKeys
from store.redis import scripts
from store.redis.connection import Server

TRIES = 8
"""How often the archive's count is raised again because somebody else has done that."""

MOST_DIGITS = 18
"""How many digits a count has."""


def key_of(number: int) -> str:
    """Where an archive has the count of a shard."""
    return f"v1/store/deletions/{number:02x}"


class Deletions:
    """The counts of a store and its archive. All raise StoreUnavailable and ArchiveUnavailable, which is ArchiveRefused
    where the archive's count is none.
    """

    def __init__(self, server: Server, keyspace: Keyspace, archive: Archive) -> None:
        self._server, self._keyspace, self._archive = server, keyspace, archive
        self._known: dict[int, int] = {}

    async def read(self, number: int) -> int:
        """The archive's count of a shard, as it is now."""
        count, _ = await self._read(number)
        return count

    async def is_behind(self, number: int) -> bool:
        """Whether a shard may have deleted turns again, by the archive's count as it is known here: `read` it first
        where somebody else may have raised it.
        """
        archived = self._known[number] if number in self._known else await self.read(number)
        return await self._own(number) < archived

    async def count(self, number: int) -> None:
        """Count the deletions of a shard, before the archive is told of them.

        Raises ArchiveUnavailable where the shard is behind: nothing is counted there until it has caught up.
        """
        if await self.is_behind(number):
            raise ArchiveUnavailable(f"shard {number:02x} went back in time, and has what was deleted since")
        own = await self._count(number, 1)
        for _ in range(TRIES):
            if self._known[number] >= own:  # somebody else has told it of more
                return
            archived, etag = await self._read(number)
            own = max(own, await self._own(number))
            if archived >= own:
                return
            if await self._archive.put(key_of(number), str(own).encode(), only_if=etag) is not None:
                self._known[number] = max(self._known[number], own)
                return
        raise ArchiveContended(f"others have counted deletions {TRIES} times meanwhile")

    async def count_everywhere(self) -> None:
        """Count a deletion that concerns all shards in each. A shard that is behind is looked through anyway."""
        for number in range(self._keyspace.shards):
            if not await self.is_behind(number):
                await self.count(number)

    async def catch_up(self, number: int) -> None:
        """Note that a shard has no deleted turns any more."""
        lacks = await self.read(number) - await self._own(number)
        if lacks > 0:
            await self._count(number, lacks)

    async def _own(self, number: int) -> int:
        """A shard's own count."""
        async with self._server.operation() as operation:
            return int(await operation.command("GET", self._shard(number).archive_deletions) or 0)

    async def _count(self, number: int, more: int) -> int:
        """Raise a shard's own count, and return it. A retry after a lost reply raises it twice, which does no harm."""
        async with self._server.operation() as operation:
            operation.wrote = True
            _, count = await scripts.count_deletions(operation, self._shard(number), more=more)
        return int(count)

    def _shard(self, number: int) -> ShardKeys:
        return self._keyspace.all_shards()[number]

    async def _read(self, number: int) -> tuple[int, str | None]:
        stored = await self._archive.get(key_of(number))
        if stored is not None and not (stored.value.isdigit() and len(stored.value) <= MOST_DIGITS):
            raise ArchiveRefused(f"{key_of(number)} is no count: delete it, and verify all with a repair")
        count = 0 if stored is None else int(stored.value)
        self._known[number] = max(count, self._known.get(number, 0))
        return count, stored and stored.etag


async def fall_behind(server: Server, keyspace: Keyspace) -> None:
    """Note that all shards may have deleted turns again, for all that an archive knows. Raises StoreUnavailable."""
    for shard in keyspace.all_shards():
        async with server.operation() as operation:
            await operation.command("DEL", shard.archive_deletions)
