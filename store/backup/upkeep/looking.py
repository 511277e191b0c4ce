"""Looking: the content of an archive, and the trees of a store that it still lacks."""

from collections.abc import AsyncGenerator
from typing import NamedTuple

import msgspec

from store.archive.archive import Archive
from store.backup.deletions import Deletions
from store.backup.upkeep.walking import TreeParts, trees
from store.keys import Keyspace, ShardKeys, id_of
from store.redis.connection import Server

HEARD = 1_000
"""How many values are read between two reports of progress."""


SCANNED = 1_000
"""How many keys of a server one call looks at: about a millisecond."""


class Waiting(msgspec.Struct, frozen=True):
    """The backlog of a shard: how many trees wait to be archived, and for how many seconds the first has waited.

    With no archive `noted` is false: nothing waits, and nothing will. `failed` is how many of the trees could not be
    archived as they are, and are tried again later. `behind` is whether the shard went back in time, and may have
    deleted turns again; None where that was not asked. `fences` is how many turns and trees were deleted within the
    last minute and are gone from the archive; None where they were not counted.
    """

    shard: int
    noted: bool
    trees: int = 0
    oldest_seconds: float = 0.0
    failed: int = 0
    fences: int | None = None
    behind: bool | None = None


class Stored(msgspec.Struct):
    """The counts of an archive: values and their bytes, trees, tenants; and values outside of trees, such as marks."""

    values: int = 0
    bytes: int = 0
    trees: int = 0
    other: int = 0


class Failed(NamedTuple):
    """A tree that could not be archived as it is, and why."""

    tenant: str
    root: str
    reason: str


async def waiting(
    server: Server, keyspace: Keyspace, deletions: Deletions | None = None, *, fences: bool = False
) -> list[Waiting]:
    """The backlog of each shard; also whether the shard is behind, where the counts of `deletions` are given. Counting
    the `fences` scans all keys of a server. Raises StoreUnavailable, ArchiveUnavailable.
    """
    found: list[Waiting] = []
    for number, shard in enumerate(keyspace.all_shards()):
        here = await _waiting(server, shard, number)
        found.append(
            msgspec.structs.replace(
                here,
                behind=None if deletions is None else await deletions.is_behind(number),
                fences=await _fences(server, shard) if fences else None,
            )
        )
    return found


async def failed(server: Server, keyspace: Keyspace, most: int) -> list[Failed]:
    """Some of the trees that could not be archived. Raises StoreUnavailable."""
    found: list[Failed] = []
    for shard in keyspace.all_shards():
        cursor: bytes | int = 0
        while cursor != b"0" and len(found) < most:
            async with server.operation() as operation:
                cursor, some = await operation.command("HSCAN", shard.archive_failed, cursor, "COUNT", most)
            for member, reason in zip(some[::2], some[1::2], strict=True):
                tenant, _, root = member.decode().partition("/")
                found.append(Failed(tenant, id_of(root), reason.decode()))
    return found[:most]


async def stored(archive: Archive) -> AsyncGenerator[Stored]:
    """Yields the counts of an archive, so far and in the end. It lists all keys: a thousand for each request. Raises
    ArchiveUnavailable.
    """
    found, heard = Stored(), 0
    async for each in trees(archive):
        if isinstance(each, TreeParts):
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
        failures = await operation.command("HLEN", shard.archive_failed)
    now = int(time[0]) * 1000 + int(time[1]) // 1000
    lag = max(0.0, (now - (float(first[1]) - int(after))) / 1000) if first else 0.0
    return Waiting(number, True, int(count), round(lag, 3), int(failures))


async def _fences(server: Server, shard: ShardKeys) -> int:
    cursor, count = b"", 0
    while cursor != b"0":
        async with server.operation() as operation:
            args = ("SCAN", cursor or 0, "MATCH", f"{shard.all_fences}*", "COUNT", SCANNED)
            cursor, found = await operation.command(*args, at=shard.clock)
        count += len(found)
    return count
