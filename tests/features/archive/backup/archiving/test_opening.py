"""A store opens its archive: once for all who need it, however long that takes, and no other one than its own."""

import asyncio
from collections.abc import Sequence
from pathlib import Path

import pytest

from store.archive import archive as archives
from store.archive.archive import FORMAT, FORMAT_KEY, Archive
from store.archive.opening import open_archive
from store.archive.port import ArchiveEntry, Bounds, Stored
from store.backup.archiving.shards import end_archive
from store.backup.archiving.store_archive import StoreArchive
from store.backup.upkeep.reconciling import Reconciler
from store.errors import ArchiveReplaced, ArchiveUnavailable, NewerFormat
from store.history.history import ConversationHistoryStore
from store.keys import digits_of
from tests.support.store.sample import TENANT

SECONDS = 0.2
MANY = 10


class Silent:
    """A backend that never answers, and knows which keys it was asked for."""

    def __init__(self) -> None:
        self.asked = set[str]()

    async def get(self, key: str) -> Stored | None:
        self.asked.add(key)
        return await asyncio.get_running_loop().create_future()

    async def put(self, key: str, value: bytes, only_if: str | None) -> str | None:
        raise AssertionError("nobody got that far")

    async def delete(self, keys: Sequence[str]) -> None:
        raise AssertionError("nobody got that far")

    async def list(self, prefix: str, after: str, limit: int) -> Sequence[ArchiveEntry]:
        raise AssertionError("nobody got that far")

    def warnings(self) -> Sequence[str]:
        return ()

    async def close(self) -> None:
        pass


def opened(store: ConversationHistoryStore, archive: Archive) -> StoreArchive:
    return StoreArchive(store, archive, reconcile=Reconciler(store, archive).shard)


async def test_all_who_wait_for_an_archive_that_does_not_answer_are_told_at_the_same_time(
    store: ConversationHistoryStore,
) -> None:
    silent = Silent()
    archive = opened(store, Archive(silent, Bounds(total_seconds=SECONDS, request_seconds=SECONDS)))
    asked = (archive.turns.find(TENANT, digits_of(store.new_id())) for _ in range(MANY))
    told = await asyncio.gather(*asked, return_exceptions=True)
    assert [type(each) for each in told] == [ArchiveUnavailable] * MANY
    assert len(silent.asked) == 1, "one proof was tried for all"
    with pytest.raises(ArchiveUnavailable):
        await archive.open()
    assert len(silent.asked) == 2, "who comes later tries again"


async def test_of_two_empty_archives_that_are_opened_at_once_one_is_the_stores(
    store: ConversationHistoryStore, tmp_path: Path
) -> None:
    archives = [opened(store, open_archive("sqlite", tmp_path / name)) for name in ("one", "two")]
    told = await asyncio.gather(*(archive.open() for archive in archives), return_exceptions=True)
    assert sorted(type(each) for each in told if each is not None) == [ArchiveReplaced]


async def test_once_a_store_has_no_archive_any_more_it_may_have_another(
    store: ConversationHistoryStore, tmp_path: Path
) -> None:
    running = opened(store, open_archive("sqlite", tmp_path / "one"))
    other = opened(store, open_archive("sqlite", tmp_path / "two"))
    await running.archive_due()
    assert await end_archive(store.server, store.keyspace)
    assert not await end_archive(store.server, store.keyspace)
    await other.open()
    with pytest.raises(ArchiveReplaced):
        await running.archive_due()
    with pytest.raises(ArchiveReplaced):
        await running.turns.find(TENANT, digits_of(store.new_id()))


async def test_a_store_can_be_closed_once_its_archive_has_a_later_format(
    store: ConversationHistoryStore, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(archives, "FORMAT_SECONDS", 0.0)
    running = opened(store, open_archive("sqlite", tmp_path))
    await running.archive_due()
    kept = await running.archive.get(FORMAT_KEY)
    assert kept is not None
    await running.archive.put(FORMAT_KEY, str(FORMAT + 1).encode(), only_if=kept.etag)
    with pytest.raises(NewerFormat):
        await running.archive.get(FORMAT_KEY)
    await running.close()
