"""Looking: what an archive has, and what of a store it still lacks."""

from collections.abc import AsyncGenerator

import msgspec

from store.archive.archive import Archive
from store.backup.upkeep.walking import Listed, trees
from store.keys import Keyspace, ShardKeys
from store.redis.connection import Server

HEARD = 1_000
"""After how many values a caller hears how far it is."""


class Waiting(msgspec.Struct, frozen=True):
    """What waits in a shard to be archived: how many trees, and for how many seconds the one that waits longest has.

    With no archive `noted` is false: nothing waits, and nothing will.
    """

    shard: int
    noted: bool
    trees: int = 0
    oldest_seconds: float = 0.0


class Stored(msgspec.Struct):
    """What is in an archive: values and their bytes, trees, tenants; and what is no part of a tree, as marks are."""

    values: int = 0
    bytes: int = 0
    trees: int = 0
    other: int = 0


async def waiting(server: Server, keyspace: Keyspace) -> list[Waiting]:
    """What waits in each shard. Raises StoreUnavailable."""
    return [await _waiting(server, shard, number) for number, shard in enumerate(keyspace.all_shards())]


async def stored(archive: Archive) -> AsyncGenerator[Stored]:
    """What is in an archive, so far and in the end. It lists all keys: a thousand for each request. Raises
    ArchiveUnavailable.
    """
    found, heard = Stored(), 0
    async for each in trees(archive):
        if isinstance(each, Listed):
            found.trees += 1
            found.values += len(each.parts)
            found.bytes += each.size
        else:
            found.other += 1
            found.values += 1
            found.bytes += each.size
        if found.values - heard >= HEARD:
            heard = found.values
            yield found
    yield found


async def _waiting(server: Server, shard: ShardKeys, number: int) -> Waiting:
    async with server.operation() as operation:
        after = await operation.command("GET", shard.archive)
        if after is None:
            return Waiting(number, noted=False)
        time = await operation.command("TIME", at=shard.clock)
        count = await operation.command("ZCARD", shard.unarchived)
        # one that was moved to the front to make room has 0 for its time
        args = ("ZRANGE", shard.unarchived, 1, "+inf", "BYSCORE", "LIMIT", 0, 1, "WITHSCORES")
        first = await operation.command(*args)
    now = int(time[0]) * 1000 + int(time[1]) // 1000
    lag = max(0.0, (now - (float(first[1]) - int(after))) / 1000) if first else 0.0
    return Waiting(number, True, int(count), round(lag, 3))
