"""The registry: records and lists that change together, once, of what was read; and the audit log."""

import asyncio

import pytest
from redis.asyncio import Redis

from store.errors import RegistryFull, RegistryMoved
from store.fsck.check import Fsck, Report
from store.history.history import ConversationHistoryStore
from store.redis.connection import connect
from store.registry import STRANGERS, Change, RecordKey, Registry, repeat
from tests.support.store.audit import dump
from tests.support.store.sample import TENANT

ONE = Change("project/one", b"", b'{"name":"\\u00e9\\n"}')


@pytest.fixture
def registry(store: ConversationHistoryStore) -> Registry:
    """The registry of an empty store."""
    return Registry(store, most_entries=100)


async def test_a_change_of_what_is_otherwise_by_now_changes_nothing(registry: Registry) -> None:
    await registry.change([ONE])
    other = Change("project/other", b"", b"{}")
    with pytest.raises(RegistryMoved):
        await registry.change(
            [other, Change("project/one", b"{}", b"[]")], places=[RecordKey("projects", "other", 5)], entries=[b"x"]
        )
    assert await registry.read("project/one", "project/other") == [ONE.after, b""]
    assert await registry.page("projects") == []
    assert await registry.entries() == []


async def test_a_full_list_takes_nothing_more_but_for_what_is_in_it(registry: Registry) -> None:
    for name in ("a", "b"):
        await registry.change((), places=[RecordKey("keys", name, 2)])
    with pytest.raises(RegistryFull) as full:
        await registry.change([ONE], places=[RecordKey("keys", "c", 2)], entries=[b"x"])
    assert full.value.name == "keys"
    assert await registry.read("project/one") == [b""]
    await registry.change((), places=[RecordKey("keys", "a", 2)])
    await registry.change((), places=[RecordKey("keys", "a", 0)])
    await registry.change((), places=[RecordKey("keys", "c", 2)])
    assert await registry.page("keys") == ["b", "c"]


@pytest.mark.usefixtures("lost_replies")
async def test_a_change_whose_reply_is_lost_happens_once(registry: Registry) -> None:
    await registry.change([ONE], places=[RecordKey("projects", "one", 5)], entries=[b"made"])
    await registry.change(
        [Change(ONE.name, ONE.after, b"")], places=[RecordKey("projects", "one", 0)], entries=[b"gone"]
    )
    assert [each.record for each in await registry.entries()] == [b"gone", b"made"]
    assert await registry.read(ONE.name) == [b""]


async def test_of_many_who_change_the_same_each_one_counts(registry: Registry) -> None:
    async def add(name: str) -> None:
        async def once() -> None:
            (before,) = await registry.read("count")
            await registry.change([Change("count", before, before + name.encode())])

        await repeat(once)()

    await asyncio.gather(*(add(each) for each in "abcd"))
    (count,) = await registry.read("count")
    assert sorted(count.decode()) == list("abcd")


async def test_the_last_use_of_a_key_goes_with_it(registry: Registry) -> None:
    await registry.change([ONE])
    await registry.used({ONE.name: 7})
    assert await registry.last_used([ONE.name, "nobody"]) == [7, None]
    await registry.change([Change(ONE.name, ONE.after, b"")])
    assert await registry.last_used([ONE.name]) == [None]
    await registry.used({ONE.name: 8})  # by a process that has yet to hear of it
    assert await registry.last_used([ONE.name]) == [None]
    assert await registry.last_used([]) == []


async def test_fsck_leaves_it_as_it_is(registry: Registry, redis: Redis, server_url: str, prefix: str) -> None:
    await registry.change(
        [ONE], places=[RecordKey("projects", "one", 5), RecordKey("keys/one", "k", 5)], entries=[b"made"]
    )
    await registry.used({ONE.name: 7})
    for share in (TENANT, STRANGERS):
        await registry.note(share, b"done")
    before = await dump(redis, prefix)
    fsck = Fsck(connect(server_url), prefix=prefix)
    *_, report = [step async for step in fsck.run(repair=True)]
    await fsck.close()
    assert isinstance(report, Report)
    assert (report.found, report.unknown) == (0, 0)
    after = await dump(redis, prefix)
    assert {name: after[name] for name in before} == before
