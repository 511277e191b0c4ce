"""A store opens its archive: once for all who need it, however long that takes."""

import asyncio
from collections.abc import Sequence

import pytest

from store.archive.archive import Archive
from store.archive.port import Bounds, Entry, Stored
from store.backup.archiving.store_archive import StoreArchive
from store.backup.upkeep.reconciling import Reconciler
from store.errors import ArchiveUnavailable
from store.history.history import ConversationHistoryStore
from store.keys import digits_of
from store.secret import shared_secret
from tests.support.store.sample import TENANT
from tests.support.waiting import until

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

    async def list(self, prefix: str, after: str, limit: int) -> Sequence[Entry]:
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


async def test_nobody_waits_for_an_archive_to_know_a_secret_that_the_store_has(store: ConversationHistoryStore) -> None:
    silent, known = Silent(), await shared_secret(store)
    archive = opened(store, Archive(silent))
    assert await archive.secret() == known
    assert silent.asked == set()


async def test_who_waits_for_an_archive_that_is_closed_waits_no_more(store: ConversationHistoryStore) -> None:
    silent = Silent()
    archive = opened(store, Archive(silent, Bounds(total_seconds=60, request_seconds=60)))
    opening = asyncio.create_task(archive.open())
    await until(lambda: silent.asked)
    await archive.close()
    with pytest.raises(asyncio.CancelledError):
        await asyncio.wait_for(opening, 10)
