"""Counts of deletions in a store and its archive: a shard that went back in time is known by them, and no other."""

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path

import pytest
from redis.asyncio import Redis

from store.archive.archive import Archive
from store.archive.opening import open_archive
from store.backup.deletions import Deletions, key_of
from store.errors import ArchiveRefused, ArchiveUnavailable
from store.keys import Keyspace
from store.redis.connection import Server, connect


@pytest.fixture
async def archive(tmp_path: Path) -> AsyncIterator[Archive]:
    made = open_archive("sqlite", tmp_path)
    yield made
    await made.close()


@pytest.fixture
async def server(server_url: str) -> AsyncIterator[Server]:
    made = Server(connect(server_url), timeout_seconds=15, attempts=3)
    yield made
    await made.close()


def counts(server: Server, prefix: str, archive: Archive) -> Deletions:
    return Deletions(server, Keyspace(prefix, 2), archive)


async def test_a_shard_that_lost_a_count_is_behind_until_it_has_caught_up(
    server: Server, prefix: str, archive: Archive, redis: Redis
) -> None:
    deletions, key = counts(server, prefix, archive), f"{prefix}:{{01}}:archive-deletions"
    assert not await deletions.is_behind(1)
    await deletions.count(1)
    await deletions.count(1)
    assert (await deletions.read(0), await deletions.read(1)) == (0, 2)
    await redis.decr(key)
    assert await deletions.is_behind(1)
    assert not await deletions.is_behind(0)
    assert await counts(server, prefix, archive).is_behind(1)
    with pytest.raises(ArchiveUnavailable, match="shard 01 went back in time"):
        await deletions.count(1)
    await deletions.count_everywhere()
    assert (await redis.get(key), await deletions.read(0), await deletions.read(1)) == (b"1", 1, 2)
    await deletions.catch_up(1)
    assert not await deletions.is_behind(1)
    await redis.delete(key)  # the server has lost all
    assert await deletions.is_behind(1)


async def test_any_number_may_count_at_once_and_the_archive_knows_of_all(
    server: Server, prefix: str, archive: Archive, redis: Redis
) -> None:
    several = [counts(server, prefix, archive) for _ in range(4)]
    await asyncio.gather(*(each.count(0) for each in several for _ in range(8)))
    assert int(await redis.get(f"{prefix}:{{00}}:archive-deletions")) == await several[0].read(0) == 32


async def test_a_shard_that_is_ahead_of_its_archive_is_not_behind(
    server: Server, prefix: str, archive: Archive, redis: Redis
) -> None:
    await redis.set(f"{prefix}:{{00}}:archive-deletions", 5)
    deletions = counts(server, prefix, archive)
    assert not await deletions.is_behind(0)
    await deletions.catch_up(0)
    await deletions.count(0)
    assert await deletions.read(0) == 6


async def test_what_is_no_count_is_told(server: Server, prefix: str, archive: Archive) -> None:
    await archive.put(key_of(0), b"many", only_if=None)
    with pytest.raises(ArchiveRefused, match="v1/store/deletions/00 is no count"):
        await counts(server, prefix, archive).is_behind(0)
