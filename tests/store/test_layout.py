"""The terms of all who share a store: its layout record, written by the first and with no less than is there, and its
secret, made once, whoever asks first.
"""

import asyncio
from dataclasses import replace
from pathlib import Path

import pytest
from redis.asyncio import Redis

from store.errors import LayoutMismatch, OtherLayout, StoreBarred, StoreUnavailable
from store.history.history import ConversationHistoryStore
from store.keys import SECRET_BYTES, Keyspace
from store.layout import LAYOUT, Layout, StoreRecord, Terms, changes, mismatch, shared_secret
from store.redis.connection import Server, connect
from tests.support.store.fixtures import OpenStore
from tests.support.store.servers import PLAIN, server
from tests.support.store.verdict import checked

LIMITS = {"max_bytes": "1000", "idle_days": "30"}
TERMS = Terms(4, "harmonium 1", LIMITS)
RECORD = StoreRecord(LAYOUT, 4, 4, LIMITS, "harmonium 1", "1")


def test_who_brings_what_the_record_says_may_use_the_store_and_changes_nothing() -> None:
    assert mismatch(TERMS, RECORD) is None
    assert changes(TERMS, RECORD) == {}


@pytest.mark.parametrize(
    ("terms", "said"),
    [
        (replace(TERMS, shards=3), "the store has 4 shards, and HARMONIUM_SHARDS=3.*set HARMONIUM_SHARDS=4, or more"),
        (
            replace(TERMS, limits={**LIMITS, "idle_days": "1"}),
            "^HARMONIUM_IDLE_DAYS=1 here, and HARMONIUM_IDLE_DAYS=30 for the others.*HARMONIUM_CHANGE_LIMITS=true",
        ),
    ],
)
def test_a_refusal_names_the_value_the_setting_and_what_to_do(terms: Terms, said: str) -> None:
    found = mismatch(terms, RECORD)
    assert isinstance(found, LayoutMismatch)
    with pytest.raises(LayoutMismatch, match=said):
        raise found


@pytest.mark.parametrize("layout", [LAYOUT - 1, LAYOUT + 1])
def test_a_store_of_another_layout_is_refused_and_who_wrote_it_is_named(layout: int) -> None:
    found = mismatch(TERMS, replace(RECORD, layout=layout))
    assert found is not None
    assert found.reason == f"the store has layout {layout}, written by harmonium 1, and this release knows layout 5"
    assert "upgrade this process" in found.remedy


@pytest.mark.parametrize("layout", [f"{LAYOUT + 1}.1", f"{LAYOUT}.1", "", "0", "-1"])
def test_a_layout_that_can_not_be_read_is_another_one(layout: str) -> None:
    found = mismatch(TERMS, StoreRecord.of({"layout": layout, "release": "harmonium 2"}))
    assert found is not None
    assert found.reason.startswith("the store has an unreadable layout, written by harmonium 2")


def test_a_store_without_a_record_gets_one() -> None:
    assert mismatch(TERMS, StoreRecord.of({})) is None
    own = {"limit:max_bytes": "1000", "limit:idle_days": "30"}
    assert changes(TERMS, StoreRecord.of({})) == {"layout": str(LAYOUT), "shards": "4", "placed": "4", **own}


def test_whoever_decides_changes_the_limits_and_neither_shards_nor_layout() -> None:
    other = replace(TERMS, limits={**LIMITS, "max_bytes": "1"}, decides=True)
    assert mismatch(other, RECORD) is None
    assert changes(other, RECORD) == {"limit:max_bytes": "1"}
    assert mismatch(replace(other, shards=1), RECORD) is not None


def layout_of(store: ConversationHistoryStore, terms: Terms) -> Layout:
    return Layout(store.server, store.keyspace, terms)


async def test_the_first_that_starts_writes_who_it_is_and_others_only_what_they_change(
    store: ConversationHistoryStore, redis: Redis, prefix: str
) -> None:
    assert await layout_of(store, TERMS).check() is None
    await layout_of(store, TERMS).agree()
    first = await redis.hgetall(f"{prefix}:{{00}}:store")
    assert first[b"release"] == b"harmonium 1"
    assert int(first[b"written"]) <= (await redis.time())[0] * 1000 + 1000
    await layout_of(store, replace(TERMS, release="harmonium 2")).agree()
    assert await redis.hgetall(f"{prefix}:{{00}}:store") == first
    await layout_of(store, replace(TERMS, shards=8, release="harmonium 2")).agree()
    record = await layout_of(store, replace(TERMS, shards=8)).check()
    assert record == StoreRecord(LAYOUT, 8, 4, LIMITS, "harmonium 2", "2")
    assert await redis.pttl(f"{prefix}:{{00}}:store") == -1


async def test_a_store_with_more_shards_finds_what_is_placed_by_its_first_number(open_store: OpenStore) -> None:
    before, after = open_store(shards=2), open_store(shards=64)
    names = [f"tenant-{number}" for number in range(100)]
    assert [after.keyspace.place_of(name) for name in names] != [before.keyspace.place_of(name) for name in names]
    await layout_of(before, Terms(2)).agree()
    await layout_of(after, Terms(64)).agree()
    assert [after.keyspace.place_of(name) for name in names] == [before.keyspace.place_of(name) for name in names]


async def test_of_many_that_start_at_once_all_are_heard(store: ConversationHistoryStore) -> None:
    terms = [replace(TERMS, shards=number, limits={f"limit_{number}": "1"}) for number in range(4, 0, -1)]
    results = await asyncio.gather(*(layout_of(store, each).agree() for each in terms), return_exceptions=True)
    assert results[0] is None
    assert all(each is None or isinstance(each, LayoutMismatch) for each in results)
    record = await layout_of(store, terms[0]).check()
    assert record is not None
    assert record.shards == 4
    agreed = {f"limit_{each.shards}" for each, result in zip(terms, results, strict=True) if result is None}
    assert record.limits.keys() == agreed


async def test_a_store_that_has_got_another_layout_is_asked_for_nothing_until_it_has_this_one_again(
    store: ConversationHistoryStore, redis: Redis, prefix: str
) -> None:
    layout, record = layout_of(store, TERMS), f"{prefix}:{{00}}:store"
    await layout.agree()
    for limits in (True, False):
        await redis.hset(record, "layout", LAYOUT + 1)
        with pytest.raises(OtherLayout):
            await layout.check(limits=limits)
        for asked in (store.check(), shared_secret(store), store.server.command("PING")):
            with pytest.raises(StoreBarred, match=f"the store has layout {LAYOUT + 1}"):
                await asked
        with pytest.raises(OtherLayout):
            await layout.agree()
        await redis.hset(record, "layout", LAYOUT)
        await layout.check(limits=limits)
        await store.check()


async def test_a_store_that_has_got_more_shards_or_other_limits_is_still_asked(
    store: ConversationHistoryStore, redis: Redis, prefix: str
) -> None:
    layout = layout_of(store, TERMS)
    await layout.agree()
    for field, value in (("limit:idle_days", "1"), ("shards", "8")):
        await redis.hset(f"{prefix}:{{00}}:store", field, value)
        with pytest.raises(LayoutMismatch):
            await layout.check()
        await store.check()


@pytest.mark.parametrize("fields", [{"shards": 2}, {"shards": 1, "layout": LAYOUT + 1}])
async def test_fsck_judges_no_store_that_has_more_shards_or_a_later_layout(
    store: ConversationHistoryStore, redis: Redis, server_url: str, prefix: str, fields: dict[str, int]
) -> None:
    await redis.hset(f"{prefix}:{{00}}:store", mapping=fields)
    with pytest.raises(LayoutMismatch):
        await checked(server_url, prefix)


async def test_a_server_that_takes_no_writes_keeps_nobody_from_starting_but_who_is_refused(tmp_path: Path) -> None:
    with server(tmp_path, *PLAIN) as one:
        own = Server(connect(f"redis://{one.address}"), timeout_seconds=10.0, attempts=2)
        await Layout(own, Keyspace("p", 9), TERMS).agree()
        one.ask("REPLICAOF", "127.0.0.1", 1)
        await Layout(own, Keyspace("p", 9), replace(TERMS, shards=9)).agree()
        with pytest.raises(LayoutMismatch):
            await Layout(own, Keyspace("p", 9), replace(TERMS, shards=1)).agree()
        one.ask("REPLICAOF", "NO", "ONE")
        record = await Layout(own, Keyspace("p", 9), TERMS).check()
        assert record is not None
        assert record.shards == 4
        await own.close()


async def test_all_who_ask_at_once_get_the_same_one(open_store: OpenStore) -> None:
    stores = [open_store(shards=4) for _ in range(5)]
    found = await asyncio.gather(*(shared_secret(store) for store in stores * 4))
    assert len(set(found)) == 1
    assert len(found[0]) == SECRET_BYTES


@pytest.mark.parametrize("damage", [b"", b"short", b"x" * (SECRET_BYTES + 1)])
async def test_what_is_no_secret_is_never_used_as_one(
    store: ConversationHistoryStore, redis: Redis, prefix: str, damage: bytes
) -> None:
    await redis.set(f"{prefix}:{{00}}:secret", damage)
    with pytest.raises(StoreUnavailable, match=f"has {len(damage)} bytes and should have {SECRET_BYTES}"):
        await shared_secret(store)
    assert await redis.get(f"{prefix}:{{00}}:secret") == damage
    await redis.delete(f"{prefix}:{{00}}:secret")
