"""A turn that lacks a part leaves memory for the archive, and not before the archive has all that goes with it."""

from collections.abc import AsyncIterator
from pathlib import Path

import pytest
from redis.asyncio import Redis

from store import codec
from store.archive.opening import open_archive
from store.errors import ArchiveUnavailable, NotFound
from store.fsck.check import Archived, CheckReport
from store.keys import ARCHIVE, digits_of
from store.redis import scripts
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

    async def set_root(self, id: str, root: str | None) -> None:
        node = self.key("node", id)
        await (self._redis.hset(node, "root", digits_of(root)) if root else self._redis.hdel(node, "root"))

    async def begin_older(self) -> None:
        """From now on nobody has noted what trees had before there was an archive."""
        await self._redis.set(f"{self._prefix}:{{00}}:older", 0)

    async def end_older(self) -> None:
        await self._redis.delete(f"{self._prefix}:{{00}}:older")

    async def is_here(self, id: str) -> bool:
        return bool(await self._redis.exists(self.key("node", id)))

    async def repair(self, archived: Archived | None) -> CheckReport:
        return await checked(self._url, self._prefix, repair=True, archived=archived)


@pytest.fixture
def lost(redis: Redis, server_url: str, prefix: str) -> Lost:
    return Lost(redis, server_url, prefix)


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


async def discard(both: Kept, top: str, *members: str) -> bytes:
    """The word of the store for these, of which the archive has the first."""
    named = [f"{TENANT}/{digits_of(id)}" for id in (top, *members)]
    shard = both.store.keyspace.turn(TENANT, top).shard
    told = {"top": named[0], "members": " ".join(named[:0:-1]), "circle": False, "archive": "there"}
    (word,) = await both.store.server.run(scripts.discard, shard, **told, version=codec.FORMAT)
    return word


async def test_a_turn_whose_node_names_another_tree_stays_until_the_archive_has_it(both: Kept, lost: Lost) -> None:
    one, two = await grow(both.store, "one", "two")
    (other,) = await grow(both.store, "other")
    await both.archive_all()
    (three,) = await grow(both.store, "three", parent=two)
    await lost.lose("response", one)
    await lost.set_root(three, other)
    assert await discard(both, one, one, two, three) == b"waits"
    assert (await lost.repair(both.has)).left > 0
    assert await lost.is_here(three)
    await both.archive_all()
    assert (await lost.repair(both.has)).left == 0
    assert await said(both.store, three) == ["one", "two", "three"]


async def test_an_erasure_that_the_archive_lacks_is_found_where_the_turn_is_and_not_where_its_node_says(
    both: Kept, lost: Lost
) -> None:
    one, two = await grow(both.store, "one", "two")
    (other,) = await grow(both.store, "other")
    await both.archive_all()
    await both.store.redact(TENANT, two, lambda messages, response, items: ((), response, b"[]"))
    await lost.lose("response", two)
    await lost.set_root(two, other)
    assert await discard(both, two, two) == b"waits"
    assert (await lost.repair(both.has)).left > 0
    assert await lost.is_here(two)
    await both.store.forget(TENANT, two, erase=True)
    await both.archive_all()
    assert (await lost.repair(both.has)).left == 0
    assert await alive(both.store, [one, two]) == [one]


@pytest.mark.parametrize("names_its_tree", [False, True])
async def test_what_a_tree_had_before_there_was_an_archive_stays_until_somebody_has_noted_it(
    both: Kept, lost: Lost, names_its_tree: bool
) -> None:
    one, two = await grow(both.store, "one", "two")
    await both.archive_all()
    await lost.lose("response", one)
    if not names_its_tree:
        await lost.set_root(one, None)
    await lost.begin_older()
    assert await discard(both, one, two) == b"waits"
    assert await lost.is_here(two)
    await lost.end_older()
    assert (await lost.repair(both.has)).left == 0
    assert await said(both.store, two) == ["one", "two"]


async def test_a_turn_that_names_no_tree_stays(both: Kept, lost: Lost) -> None:
    one, two = await grow(both.store, "one", "two")
    await both.archive_all()
    await lost.lose("response", one)
    await lost.set_root(two, None)
    assert await discard(both, one, two) == b"waits"
    assert await lost.is_here(two)
    assert (await lost.repair(both.has)).left == 0
    assert await said(both.store, two) == ["one", "two"]


async def test_without_an_archive_what_others_continue_stays_until_it_is_deleted(both: Kept, lost: Lost) -> None:
    await both.store.server.command("HDEL", both.store.keyspace.all_shards()[0].usage, ARCHIVE)
    one, two = await grow(both.store, "one", "two")
    await lost.lose("response", one)
    assert (await lost.repair(None)).left == 2  # its length is another one, too
    assert await said(both.store, two) == ["one", "two"]
    await both.store.forget(TENANT, one)
    assert (await lost.repair(None)).left == 0
    assert await said(both.store, two) == ["one", "two"]
