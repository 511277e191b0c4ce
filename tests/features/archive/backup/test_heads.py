"""Heads of a store and its archive show which of both went back in time, and that another Redis uses the archive."""

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path

import pytest
from redis.asyncio import Redis

from store.archive.archive import Archive
from store.archive.opening import open_archive
from store.backup import ownership
from store.backup.heads import Heads, Standing, key_of
from store.errors import ArchiveRefused, ArchiveShared, ArchiveUnavailable, ArchiveWentBack
from store.keys import Keyspace
from store.redis import scripts
from store.redis.connection import Server, connect

WATCHED = 2.0


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


def heads_of(server: Server, prefix: str, archive: Archive) -> Heads:
    return Heads(server, Keyspace(prefix, 2), archive)


async def known(server: Server, prefix: str, number: int, known: int) -> None:
    """Have Redis know that the archive has reached a number, as a pass of an archiver says at its end."""
    async with server.operation() as operation:
        shard = Keyspace(prefix, 2).all_shards()[number]
        await scripts.raise_head(operation, shard, known=known, gone=0, more=0)


async def test_a_redis_that_lost_a_number_is_older_until_it_has_caught_up(
    server: Server, prefix: str, archive: Archive, redis: Redis
) -> None:
    heads, key = heads_of(server, prefix, archive), f"{prefix}:{{01}}:archive-head"
    assert await heads.standing(1) is Standing.EVEN
    assert [await heads.raise_(1, gone=True), await heads.raise_(1, gone=True)] == [1, 2]
    assert ((await heads.read(0)).number, (await heads.read(1)).number) == (0, 2)
    await redis.hset(key, "raised", "1")
    assert await heads.standing(1) is Standing.REDIS_IS_OLDER
    assert await heads.standing(0) is Standing.EVEN
    assert await heads_of(server, prefix, archive).standing(1) is Standing.REDIS_IS_OLDER
    with pytest.raises(ArchiveUnavailable, match="shard 01 of Redis went back in time"):
        await heads.raise_(1)
    await heads.raise_everywhere()
    assert (await redis.hget(key, "raised"), (await heads.read(0)).number, (await heads.read(1)).number) == (b"1", 1, 2)
    await heads.catch_up(1)
    assert await heads.standing(1) is Standing.EVEN
    await redis.delete(key)  # the server has lost all
    assert await heads.standing(1) is Standing.REDIS_IS_OLDER


async def test_an_archive_below_what_is_known_is_older_until_it_is_accepted(
    server: Server, prefix: str, archive: Archive
) -> None:
    heads = heads_of(server, prefix, archive)
    number = await heads.raise_(0)
    copy = await archive.get(key_of(0))
    await heads.raise_(0)
    assert copy is not None
    await put_back(archive, copy.value)
    assert await heads_of(server, prefix, archive).standing(0) is Standing.EVEN, "nothing that was written is known yet"
    await known(server, prefix, 0, number + 1)
    assert await heads.standing(0) is Standing.EVEN, "by the head as it was read last"
    await heads.read(0)
    assert await heads.standing(0) is Standing.ARCHIVE_IS_OLDER
    with pytest.raises(ArchiveWentBack, match=r"shard 00 is of 20\d\d-.* UTC") as raised:
        await heads.raise_(0)
    assert (raised.value.shard, raised.value.at) == (0, (await heads.read(0)).at)
    await archive.delete(key_of(0))
    with pytest.raises(ArchiveWentBack, match="shard 00 is without its file"):
        await heads.raise_(0)
    await heads.accept(0)
    assert await heads_of(server, prefix, archive).standing(0) is Standing.EVEN
    assert await heads.raise_(0) > number + 1


async def test_a_copy_from_before_a_deletion_in_all_shards_or_a_restore_is_known_for_one(
    server: Server, prefix: str, archive: Archive
) -> None:
    heads = heads_of(server, prefix, archive)
    await heads.raise_(0)
    copy = await archive.get(key_of(0))
    assert copy is not None
    for change in (heads.raise_everywhere, heads.look_through_again):
        await change()
        for number in range(2):  # a restore leaves Redis behind, so that all of it is looked through
            assert (
                await heads.standing(number)
                is {
                    heads.raise_everywhere: Standing.EVEN,
                    heads.look_through_again: Standing.REDIS_IS_OLDER,
                }[change]
            )
            await heads.catch_up(number)
        now = await archive.get(key_of(0))
        assert now is not None
        await put_back(archive, copy.value)
        await heads.read(0)
        assert await heads.standing(0) is Standing.ARCHIVE_IS_OLDER
        await put_back(archive, now.value)
        await heads.read(0)


async def put_back(archive: Archive, value: bytes) -> None:
    there = await archive.get(key_of(0))
    assert there is not None
    assert await archive.put(key_of(0), value, only_if=there.etag) is not None


async def test_any_number_may_raise_a_head_at_once_and_the_archive_reaches_all_of_it(
    server: Server, prefix: str, archive: Archive, redis: Redis
) -> None:
    several = [heads_of(server, prefix, archive) for _ in range(4)]
    reached = await asyncio.gather(*(each.raise_(0) for each in several for _ in range(8)))
    assert int(await redis.hget(f"{prefix}:{{00}}:archive-head", "raised")) == (await several[0].read(0)).number == 32
    assert max(reached) <= 32


async def test_a_redis_that_others_use_is_not_taken_for_one_that_has_left(
    server: Server, prefix: str, archive: Archive
) -> None:
    here, there = Keyspace(f"{prefix}1", 2), Keyspace(f"{prefix}2", 2)
    one, sibling, two = (heads_of(server, f"{prefix}{n}", archive) for n in "112")
    await ownership.watch(server, here, one, WATCHED)
    await ownership.watch(server, here, sibling, WATCHED)
    await one.raise_(0)
    await one.release()
    assert (await one.read(0)).released
    watching = asyncio.create_task(ownership.watch(server, there, two, WATCHED))
    await asyncio.sleep(0)
    await sibling.raise_(0)
    with pytest.raises(ArchiveShared):
        await watching
    await sibling.release()
    await ownership.watch(server, there, two, WATCHED)
    await two.catch_up(0)
    await two.raise_(0)


@pytest.mark.parametrize("value", [b"many", b'{"number":-1}', b'{"number":"5"}', b'{"number":99999999999999999}'])
async def test_a_value_that_is_no_head_is_refused(server: Server, prefix: str, archive: Archive, value: bytes) -> None:
    await archive.put(key_of(0), value, only_if=None)
    with pytest.raises(ArchiveRefused, match=r"v1/00/head .* delete it, and have `harmonium archive accept` go on"):
        await heads_of(server, prefix, archive).standing(0)


async def test_the_head_of_a_later_release_is_left_to_it(server: Server, prefix: str, archive: Archive) -> None:
    value = b'{"number":"five","version":2}'
    await archive.put(key_of(0), value, only_if=None)
    for work in (heads_of(server, prefix, archive).accept, heads_of(server, prefix, archive).raise_):
        with pytest.raises(
            ArchiveRefused, match="a later release wrote v1/00/head, so this one leaves it alone: upgrade"
        ):
            await work(0)
    stored = await archive.get(key_of(0))
    assert stored is not None
    assert stored.value == value


async def test_a_head_names_its_version(server: Server, prefix: str, archive: Archive) -> None:
    await heads_of(server, prefix, archive).raise_(0)
    stored = await archive.get(key_of(0))
    assert stored is not None
    assert b'"version":1' in stored.value
