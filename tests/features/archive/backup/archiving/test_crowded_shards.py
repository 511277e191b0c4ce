"""A shard that is nearly full of what the archive lacks is archived before it refuses turns."""

import asyncio
import random
from collections.abc import AsyncIterator
from pathlib import Path

import pytest
from redis.asyncio import Redis

from store import codec
from store.archive.opening import open_archive
from store.archive.port import MOST_VALUE_BYTES
from store.backup.archiving.parts import Part, encode, key_of
from store.backup.archiving.store_archive import StoreArchive
from store.backup.upkeep.reconciling import Reconciler
from store.errors import ArchiveUnavailable, StoreUnarchived
from store.history.caps import Caps
from store.keys import digits_of
from store.turn import Status, Turn
from store.watcher import UNWATCHED
from tests.support.store.fixtures import PATIENCE, OpenStore
from tests.support.store.sample import TENANT, grow

TEN = 10
TOO_LARGE = MOST_VALUE_BYTES + 1
"""Bytes of noise that no archive takes as one value."""


@pytest.fixture(params=[Caps(responses=TEN), Caps(trees=TEN)], ids=["responses", "trees"])
async def archive(request: pytest.FixtureRequest, open_store: OpenStore, tmp_path: Path) -> AsyncIterator[StoreArchive]:
    """A store with little room, and an archive that takes what changed an hour ago."""
    store = open_store(caps=request.param)
    opened = open_archive("sqlite", tmp_path)
    made = StoreArchive(store, opened, reconcile=Reconciler(store, opened).shard, after_seconds=3600)
    await made.note()
    yield made
    await made.close()


async def lacked(redis: Redis, prefix: str) -> int:
    return await redis.zcard(f"{prefix}:{{00}}:unarchived")


async def test_from_nine_tenths_of_a_cap_on_all_is_archived_before_it_is_due(
    archive: StoreArchive, redis: Redis, prefix: str
) -> None:
    for number in range(8):
        await grow(archive.history, str(number))
    await archive.archive_due()
    assert await lacked(redis, prefix) == 8
    await grow(archive.history, "nine")
    await archive.archive_due()
    assert await lacked(redis, prefix) == 0
    for number in range(8):  # which evict what is archived
        await grow(archive.history, f"again {number}")


async def test_a_turn_that_needs_room_waits_until_the_archive_has_what_it_lacked(archive: StoreArchive) -> None:
    ids = [(await grow(archive.history, str(number)))[0] for number in range(6 * TEN)]
    assert [(await archive.history.find(TENANT, id)).status for id in ids] == [Status.COMPLETED] * len(ids)


async def test_trees_that_lost_their_places_in_line_give_room_all_the_same(
    archive: StoreArchive, redis: Redis, prefix: str
) -> None:
    ids = [(await grow(archive.history, str(number)))[0] for number in range(TEN)]
    await redis.delete(f"{prefix}:{{00}}:unarchived")
    ids += [(await grow(archive.history, str(number)))[0] for number in range(3 * TEN)]
    assert [(await archive.history.find(TENANT, id)).status for id in ids] == [Status.COMPLETED] * len(ids)


async def test_trees_that_lost_their_places_in_line_get_others(
    archive: StoreArchive, redis: Redis, prefix: str
) -> None:
    await grow(archive.history, "one", "two")
    await redis.delete(f"{prefix}:{{00}}:unarchived")
    async with asyncio.timeout(PATIENCE):
        while not await lacked(redis, prefix):
            await archive.archive_due()


async def test_where_the_archive_is_away_that_is_why_a_turn_is_refused(
    archive: StoreArchive, monkeypatch: pytest.MonkeyPatch
) -> None:
    for number in range(TEN):
        await grow(archive.history, str(number))

    async def away(*_: object, **__: object) -> None:
        raise ArchiveUnavailable("it is unplugged")

    monkeypatch.setattr(archive.archive, "put", away)
    with pytest.raises(StoreUnarchived, match="unplugged"):
        await grow(archive.history, "one too many")


async def test_no_conversation_keeps_others_from_the_archive(
    archive: StoreArchive, redis: Redis, prefix: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    failures: list[str] = []
    monkeypatch.setattr(UNWATCHED, "not_archived", lambda root, reason: failures.append(root))
    ids = [(await grow(archive.history, str(number)))[0] for number in range(8)]
    no_text = encode(Part(gone_trees=("resp_1",)))[:3] + codec.squeeze(packed(Part(gone_trees=("resp_1",))))
    await archive.archive.put(key_of(TENANT, digits_of(ids[0])), no_text.replace(b"resp_1", b"resp\xff1"), only_if=None)
    large = Turn(archive.history.new_id(), None, Status.COMPLETED, (), b"{}", random.Random(1).randbytes(TOO_LARGE))
    await archive.history.append(TENANT, large)
    await archive.archive_due()
    assert (await lacked(redis, prefix), sorted(failures)) == (2, sorted([ids[0], large.id]))


def packed(part: Part) -> bytes:
    """A part before it is compressed."""
    return codec.unsqueeze(encode(part)[3:])
