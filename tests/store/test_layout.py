"""The layout record: who may use a store is written in it by the first that does, and with no less than is there."""

import asyncio
from dataclasses import replace
from pathlib import Path

import pytest
from redis.asyncio import Redis

from store.errors import LayoutMismatch, LimitsDiffer
from store.fsck.check import Fsck
from store.history.history import ConversationHistoryStore
from store.layout import ARCHIVE_LAYOUT, FIRST, LAYOUT, Layout, Record, Terms, changes, mismatch
from store.redis.connection import Server, connect
from tests.support.store.sample import TENANT, grow, turn
from tests.support.store.servers import PLAIN, server

LIMITS = {"max_bytes": "1000", "idle_days": "30"}
TERMS = Terms(4, "harmonium 1", LIMITS)
RECORD = Record(LAYOUT, 4, LIMITS, "harmonium 1", "1")


def test_who_brings_what_the_record_says_may_use_the_store_and_changes_nothing() -> None:
    assert mismatch(TERMS, RECORD) is None
    assert changes(TERMS, RECORD) == {}


@pytest.mark.parametrize(
    ("terms", "said"),
    [
        (replace(TERMS, shards=3), "the store has 4 shards, and HARMONIUM_SHARDS=3.*set HARMONIUM_SHARDS=4, or more"),
        (
            replace(TERMS, layout=LAYOUT - 1),
            f"the store has layout {LAYOUT}, written by harmonium 1.*upgrade this process",
        ),
        (
            replace(TERMS, raises_to=LAYOUT + 1),
            f"^HARMONIUM_STORE_LAYOUT={LAYOUT + 1}, and this release knows layout {LAYOUT} at most",
        ),
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


def test_a_later_release_keeps_the_layout_until_it_is_to_be_raised() -> None:
    newer = replace(TERMS, layout=LAYOUT + 1)
    assert mismatch(newer, RECORD) is None
    assert changes(newer, RECORD) == {}
    assert changes(replace(newer, raises_to=LAYOUT + 1), RECORD) == {"layout": str(LAYOUT + 1)}
    assert changes(TERMS, replace(RECORD, layout=LAYOUT + 1)) == {}


@pytest.mark.parametrize(("unused", "layout"), [(True, LAYOUT), (False, FIRST)])
def test_a_store_without_a_record_has_the_latest_layout_if_it_was_never_used(unused: bool, layout: int) -> None:
    assert changes(TERMS, Record.of({}), unused=unused)["layout"] == str(layout)


def test_who_needs_a_later_layout_waits_until_the_store_is_raised_to_it() -> None:
    older, archiving = replace(RECORD, layout=ARCHIVE_LAYOUT - 1), replace(TERMS, needs=ARCHIVE_LAYOUT)
    found = mismatch(archiving, older)
    assert found is not None
    assert "needs layout 3, and the store has layout 2" in found.reason
    assert "set HARMONIUM_STORE_LAYOUT=3 once no older release uses the store" in str(found)
    assert mismatch(archiving, RECORD) is None
    raising = replace(archiving, raises_to=ARCHIVE_LAYOUT)
    assert mismatch(raising, older) is None
    assert changes(raising, older) == {"layout": "3"}


async def test_who_needs_the_latest_layout_may_use_a_store_that_was_never_used_and_no_other_without_a_record(
    store: ConversationHistoryStore, redis: Redis, prefix: str
) -> None:
    archiving = layout_of(store, Terms(1, needs=ARCHIVE_LAYOUT))
    await archiving.agree()
    assert await archiving.check() == Record(LAYOUT, 1, {}, "unknown", "1")
    await redis.delete(f"{prefix}:{{00}}:store")
    await grow(store, "one")
    with pytest.raises(LayoutMismatch, match="and the store has layout 1; set HARMONIUM_STORE_LAYOUT=3 once no older"):
        await layout_of(store, Terms(1, needs=ARCHIVE_LAYOUT)).agree()
    assert not await redis.exists(f"{prefix}:{{00}}:store")
    await archiving.agree()  # it knows what the server has lost
    assert await archiving.check() == Record(LAYOUT, 1, {}, "unknown", "1")


def test_more_shards_a_later_layout_and_limits_that_are_new_are_written() -> None:
    newer = Terms(8, "harmonium 2", {**LIMITS, "max_trees": "5"}, layout=LAYOUT + 1, raises_to=LAYOUT + 1)
    assert mismatch(newer, RECORD) is None
    assert changes(newer, RECORD) == {"shards": "8", "layout": str(LAYOUT + 1), "limit:max_trees": "5"}
    assert mismatch(replace(TERMS, limits=None), RECORD) is None


def test_whoever_decides_changes_the_limits_and_neither_shards_nor_layout() -> None:
    other = replace(TERMS, limits={**LIMITS, "max_bytes": "1"}, decides=True)
    assert mismatch(other, RECORD) is None
    assert changes(other, RECORD) == {"limit:max_bytes": "1"}
    assert mismatch(replace(other, shards=1), RECORD) is not None


def layout_of(store: ConversationHistoryStore, terms: Terms) -> Layout:
    return Layout(store.server, store.keyspace.prefix, terms)


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
    assert record == Record(LAYOUT, 8, LIMITS, "harmonium 2", "2")
    assert await redis.pttl(f"{prefix}:{{00}}:store") == -1


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


@pytest.mark.usefixtures("lost_replies")
async def test_a_record_whose_reply_was_lost_is_written_once(store: ConversationHistoryStore) -> None:
    await layout_of(store, TERMS).agree()
    record = await layout_of(store, TERMS).check()
    assert record is not None
    assert record.revision == "1"


@pytest.mark.parametrize("number", [1, 200, 255])
async def test_a_store_of_the_release_before_is_recorded_with_all_its_shards_or_not_at_all(
    store: ConversationHistoryStore, redis: Redis, prefix: str, number: int
) -> None:
    clock = f"{prefix}:{{{number:02x}}}:clock"
    await redis.set(clock, 1)
    with pytest.raises(
        LayoutMismatch, match=f"turns in shard {number:02x}.*set HARMONIUM_SHARDS={number + 1}, or more"
    ):
        await layout_of(store, Terms(number)).agree()
    assert not await redis.exists(f"{prefix}:{{00}}:store")
    await layout_of(store, Terms(number + 1)).agree()
    assert await redis.hget(f"{prefix}:{{00}}:store", "shards") == str(number + 1).encode()
    await redis.delete(clock)


async def test_a_store_that_was_used_is_raised_when_it_is_to_be_and_all_who_look_hear_of_it(
    store: ConversationHistoryStore, redis: Redis, prefix: str
) -> None:
    await grow(store, "one")
    heard: list[int] = []
    one = layout_of(store, Terms(1))
    one.recorded = heard.append
    await one.agree()
    assert heard == [FIRST]
    await layout_of(store, Terms(1, raises_to=LAYOUT)).agree()
    assert await redis.hget(f"{prefix}:{{00}}:store", "layout") == str(LAYOUT).encode()
    await one.check()
    await one.agree()
    assert heard == [FIRST, LAYOUT, LAYOUT]
    with pytest.raises(LayoutMismatch, match=f"has layout {LAYOUT}.*and this release knows layout {FIRST} at most"):
        await layout_of(store, Terms(1, layout=FIRST)).agree()


async def test_a_store_that_has_lost_its_record_is_written_by_the_first_layout(
    store: ConversationHistoryStore, redis: Redis, prefix: str
) -> None:
    heard: list[int] = []
    one = layout_of(store, Terms(1))
    one.recorded = heard.append
    await one.agree()
    await redis.delete(f"{prefix}:{{00}}:store")
    assert await one.check() is None
    assert heard == [LAYOUT, FIRST]


@pytest.mark.parametrize("number", [0, 3])
async def test_a_store_is_used_once_any_shard_of_it_was(
    store: ConversationHistoryStore, redis: Redis, prefix: str, number: int
) -> None:
    clock = f"{prefix}:{{{number:02x}}}:clock"
    await redis.set(clock, 1)
    await layout_of(store, TERMS).agree()
    assert await redis.hget(f"{prefix}:{{00}}:store", "layout") == str(FIRST).encode()
    await redis.delete(clock)


async def test_a_mismatch_that_comes_while_a_process_runs_is_told_once(store: ConversationHistoryStore) -> None:
    told: list[str] = []
    one, other = layout_of(store, TERMS), layout_of(store, replace(TERMS, shards=5))
    one.contradicted = lambda mismatch: told.append(mismatch.reason)
    await one.agree()
    await other.agree()
    for _ in range(3):
        for ask in (one.agree, one.check, lambda: one.check(limits=False)):
            with pytest.raises(LayoutMismatch):
                await ask()
    assert len(told) == 1


async def test_other_limits_are_no_mismatch_for_who_asks_for_the_rest_and_are_told_once(
    store: ConversationHistoryStore,
) -> None:
    told: list[str] = []
    one, other = layout_of(store, TERMS), layout_of(store, replace(TERMS, limits={"max_bytes": "7"}, decides=True))
    one.contradicted = lambda mismatch: told.append(mismatch.reason)
    await one.agree()
    await other.agree()
    for _ in range(3):
        assert await one.check(limits=False) is not None
        with pytest.raises(LimitsDiffer):
            await one.agree()
    assert len(told) == 1


async def test_what_is_no_number_in_a_record_is_written_anew(
    store: ConversationHistoryStore, redis: Redis, prefix: str
) -> None:
    await redis.hset(f"{prefix}:{{00}}:store", mapping={"layout": "x", "shards": "", "odd": "\ufffd"})
    await layout_of(store, TERMS).agree()
    record = await layout_of(store, TERMS).check()
    assert record is not None
    assert (record.layout, record.shards) == (FIRST, 4)


async def test_fsck_judges_no_store_that_has_more_shards_or_a_later_layout(
    store: ConversationHistoryStore, server_url: str, prefix: str
) -> None:
    for terms in (replace(TERMS, shards=2), replace(TERMS, layout=LAYOUT + 1, raises_to=LAYOUT + 1)):
        await layout_of(store, terms).agree()
        fsck = Fsck(connect(server_url), prefix=prefix)
        with pytest.raises(LayoutMismatch):
            async for _ in fsck.run():
                pass
        await fsck.close()


async def test_a_cluster_has_one_record_and_is_looked_through_on_all_nodes(cluster_url: str, prefix: str) -> None:
    store = ConversationHistoryStore(connect(cluster_url), prefix=prefix, shards=16)
    for _ in range(64):
        await store.append(TENANT, turn(store.new_id()))
    with pytest.raises(LayoutMismatch, match="turns in shard"):
        await layout_of(store, Terms(2)).agree()
    await layout_of(store, Terms(16)).agree()
    with pytest.raises(LayoutMismatch, match="the store has 16 shards"):
        await layout_of(store, Terms(2)).agree()
    await store.close()


async def test_a_server_that_takes_no_writes_keeps_nobody_from_starting_but_who_is_refused(tmp_path: Path) -> None:
    with server(tmp_path, *PLAIN) as one:
        own = Server(connect(f"redis://{one.address}"), timeout_seconds=2.0, attempts=2)
        await Layout(own, "p", TERMS).agree()
        one.ask("REPLICAOF", "127.0.0.1", 1)
        await Layout(own, "p", replace(TERMS, shards=9)).agree()
        with pytest.raises(LayoutMismatch):
            await Layout(own, "p", replace(TERMS, shards=1)).agree()
        one.ask("REPLICAOF", "NO", "ONE")
        record = await Layout(own, "p", TERMS).check()
        assert record is not None
        assert record.shards == 4
        await own.close()


async def test_a_store_that_grew_is_used_by_who_knows_all_its_shards(
    store: ConversationHistoryStore, server_url: str, prefix: str
) -> None:
    await layout_of(store, Terms(1)).agree()
    wide = ConversationHistoryStore(connect(server_url), prefix=prefix, shards=4)
    await layout_of(wide, Terms(4)).agree()
    await grow(wide, "one")
    await wide.close()
