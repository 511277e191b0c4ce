"""A turn that lacks a part leaves memory for the archive, and not before the archive has all that goes with it."""

from collections.abc import AsyncIterator
from pathlib import Path

import pytest
from redis.asyncio import Redis

from store.archive.opening import open_archive
from store.errors import ArchiveUnavailable, NotFound
from store.fsck.check import Archived, CheckReport
from store.keys import digits_of
from tests.support.archive.kept import Kept, kept
from tests.support.store.audit import complaints
from tests.support.store.sample import TENANT, alive, grow, said, turn
from tests.support.store.verdict import checked


@pytest.fixture
async def both(server_url: str, prefix: str, tmp_path: Path, redis: Redis) -> AsyncIterator[Kept]:
    """A store with an archive, which it asks for what left memory. After the test all in Redis adds up."""
    archive = open_archive("sqlite", tmp_path)
    async with kept(server_url, prefix, archive) as made:
        made.store.elsewhere = made.turns
        yield made
        assert await complaints(redis, prefix) == []
    await archive.close()


class Lost:
    """Keys that are lost, and repairs."""

    def __init__(self, redis: Redis, url: str, prefix: str) -> None:
        self._redis, self._url, self._prefix = redis, url, prefix

    def key(self, family: str, id: str) -> str:
        return f"{self._prefix}:{{00}}:t:{TENANT}:{family}:{digits_of(id)}"

    async def lose(self, family: str, id: str) -> None:
        assert await self._redis.delete(self.key(family, id)) == 1

    async def is_here(self, id: str) -> bool:
        return bool(await self._redis.exists(self.key("node", id)))

    async def repair(self, archived: Archived | None) -> CheckReport:
        _, report = await checked(self._url, self._prefix, repair=True, archived=archived)
        return report


@pytest.fixture
def lost(redis: Redis, server_url: str, prefix: str) -> Lost:
    return Lost(redis, server_url, prefix)


@pytest.mark.parametrize("family", ["node", "messages", "response"])
async def test_what_the_archive_has_comes_back_from_there_and_is_not_deleted(
    both: Kept, lost: Lost, family: str
) -> None:
    one, two = await grow(both.store, "one", "two")
    await both.archive_all()
    await lost.lose(family, one)
    assert (await lost.repair(both.has)).left == 0
    assert not await lost.is_here(one)
    assert await both.archive_all() == 0
    assert await both.told(two) == [one, two]
    assert await alive(both.store, [one, two]) == [one, two]
    assert await said(both.store, two) == ["one", "two"]


@pytest.mark.parametrize("family", ["node", "messages", "response"])
async def test_what_the_archive_lacks_of_a_tree_goes_there_first(both: Kept, lost: Lost, family: str) -> None:
    (one,) = await grow(both.store, "one")
    await both.archive_all()
    two, three = await grow(both.store, "two", "three", parent=one)
    await lost.lose(family, one)
    assert (await lost.repair(both.has)).left > 0
    assert [await lost.is_here(two), await lost.is_here(three)] == [True, True]
    await both.archive_all()
    assert (await lost.repair(both.has)).left == 0
    assert await said(both.store, three) == ["one", "two", "three"]


async def test_what_a_run_holds_stays_until_it_has_ended(both: Kept, lost: Lost) -> None:
    one, two = await grow(both.store, "one", "two")
    await both.archive_all()
    pin = both.store.token()
    await both.store.chain(TENANT, two, pin=pin)
    await lost.lose("response", one)
    assert (await lost.repair(both.has)).left > 0
    three = both.store.new_id(two)
    await both.store.append(TENANT, turn(three, two, text="three"), pin=pin)
    await both.archive_all()
    assert (await lost.repair(both.has)).left == 0
    assert await said(both.store, three) == ["one", "two", "three"]


async def test_nothing_goes_while_the_archive_can_t_be_asked(both: Kept, lost: Lost) -> None:
    one, two, three = await grow(both.store, "one", "two", "three")
    await both.archive_all()
    await lost.lose("response", one)
    await lost.lose("messages", two)

    async def away(tenant: str, digits: str) -> bool:
        raise ArchiveUnavailable("it is unplugged")

    for asked in (None, away):
        report = await lost.repair(asked)
        assert {"no-response", "no-messages"} <= {fault.what for fault, done in report.faults.items() if not done}
        assert await lost.is_here(three)
    assert (await lost.repair(both.has)).left == 0
    assert await said(both.store, three) == ["one", "two", "three"]


async def test_what_was_erased_of_a_turn_does_not_come_back_with_it(both: Kept, lost: Lost) -> None:
    (one,) = await grow(both.store, "one")
    await both.archive_all()
    await both.store.redact(TENANT, one, lambda messages, response, items: ((), response, b"[]"))
    await lost.lose("response", one)
    assert (await lost.repair(both.has)).left > 0
    await both.store.forget(TENANT, one, erase=True)
    await both.archive_all()
    assert (await lost.repair(both.has)).left == 0
    with pytest.raises(NotFound):
        await both.store.get(TENANT, one)


async def test_without_an_archive_what_others_continue_stays_until_it_is_deleted(both: Kept, lost: Lost) -> None:
    await both.store.server.command("DEL", both.store.keyspace.all_shards()[0].archive)
    one, two = await grow(both.store, "one", "two")
    await lost.lose("response", one)
    assert (await lost.repair(None)).left == 1
    assert await said(both.store, two) == ["one", "two"]
    await both.store.forget(TENANT, one)
    assert (await lost.repair(None)).left == 0
    assert await said(both.store, two) == ["one", "two"]
