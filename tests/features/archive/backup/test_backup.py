"""Backup and restore against real servers: what comes back is what there was, and nothing else changes."""

import asyncio
import random
import tracemalloc
from collections.abc import AsyncIterator
from pathlib import Path

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st
from redis.asyncio import Redis

from store import codec
from store.backup.upkeep.backup import BackupScope
from store.backup.upkeep.refilling import RefusedTurn, capped_use
from store.embedded import EmbeddedServer
from store.errors import LayoutMismatch, NewerFormat, NotFound
from store.files.files import FileRecord, Files
from store.history.caps import Caps
from store.history.history import NOTHING_LISTED, ConversationHistoryStore
from store.jobs.jobs import Jobs
from store.layout import Layout, Terms, shared_secret
from store.redis.connection import connect
from tests.support.store.audit import dump, scores
from tests.support.store.backups import Moves, back_up, bring_back, contents_of, mixed, nodes
from tests.support.store.fixtures import OpenStore
from tests.support.store.sample import TENANT, grow, said, turn
from tests.support.store.verdict import checked, faults
from tests.support.store.work import claim, finish, submit

COUNT = 20


async def test_payloads_of_many_megabytes_are_held_a_few_at_a_time(
    store: ConversationHistoryStore, moves: Moves
) -> None:
    tip = None
    for _ in range(COUNT):
        _, tip = await large(store, None), await large(store, tip)
    tracemalloc.start()
    end = await moves.save()
    _, most = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert most < 56 << 20  # packed as the store has them, unpacked, and as a part before and after a piece
    assert (await contents_of(moves.file)).turns == 2 * COUNT
    tracemalloc.start()
    assert (await moves.restore()).restored == 2 * COUNT  # of which half are one tree, in many parts
    _, most = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert most < 56 << 20
    assert (await moves.save_second()).content == end.content


async def test_one_tenant_of_a_file_may_have_files_alone(
    store: ConversationHistoryStore, second: ConversationHistoryStore, moves: Moves
) -> None:
    async def content() -> AsyncIterator[bytes]:
        yield b"words"

    await grow(store, "one")
    record = await Files(store).store("globex", FileRecord(filename="words.txt"), content())
    await moves.save()
    done = await moves.restore(only={"tenant": "globex"})
    assert (done.restored, done.files) == (0, 1)
    assert await Files(second).find("globex", record.id) is not None
    with pytest.raises(ValueError, match="nothing of tenant"):
        await moves.restore(only={"tenant": "initech"})


async def large(store: ConversationHistoryStore, parent: str | None) -> str:
    """A turn of 2 MiB; its id."""
    small = turn(store.new_id(parent), parent)
    items = b'["%b"]' % random.randbytes(1 << 20).hex().encode()
    await store.append(TENANT, msgspec.structs.replace(small, items=items))
    return small.id


async def test_what_is_restored_is_what_there_was(
    history: ConversationHistoryStore, second: ConversationHistoryStore, prefix: str, redis: Redis, moves: Moves
) -> None:
    ids = await mixed(history)
    end = await moves.save()
    restored = await moves.restore()
    assert restored.whole
    assert (restored.restored, restored.kept) == (end.turns, 0)
    assert await nodes(redis, f"{prefix}-2:") == await nodes(redis, f"{prefix}:")
    for name in (f"leaves:{TENANT}", "trees"):
        assert await scores(redis, f"{prefix}-2", name) == await scores(redis, prefix, name)
    assert await said(second, ids["tip"]) == await said(history, ids["tip"]) == ["a", "b", "d"]
    assert await second.items(TENANT, [ids["tombstone"], ids["tip"]]) == [NOTHING_LISTED, (b'{"text":"d"}', b'["d"]')]
    again = await moves.save_second()
    assert (again.content, again.turns) == (end.content, end.turns)


async def test_a_restore_that_is_run_again_keeps_what_is_there(
    history: ConversationHistoryStore,
    second: ConversationHistoryStore,
    server_url: str,
    prefix: str,
    redis: Redis,
    moves: Moves,
) -> None:
    ids = await mixed(history)
    end = await moves.save()
    await moves.restore()
    await second.forget(TENANT, ids["tip"])  # deleted after the backup: stays deleted, with all that only it needed
    before = await dump(redis, f"{prefix}-2")
    assert (await bring_back(server_url, prefix, moves.file)).kept == end.turns
    again = await moves.restore()
    assert again.restored > 0  # the tombstones went with the tip, so they and it are new again
    assert set(before) < set(await dump(redis, f"{prefix}-2"))


@pytest.mark.parametrize("caps", [Caps(responses=5), Caps(trees=2), Caps(bytes=15_000)])
async def test_as_much_is_restored_as_the_caps_have_room_for_first_what_was_used_last(
    caps: Caps, history: ConversationHistoryStore, second: ConversationHistoryStore, moves: Moves
) -> None:
    old, middle, new = [await grow(history, name, "below") for name in ("old", "middle", "new")]
    await history.get(TENANT, old[1])
    await moves.save()
    found = await moves.restore(caps=caps)
    assert (found.restored, found.trees, found.no_room, found.whole) == (4, 2, 1, False)
    assert [await said(second, ids[1]) for ids in (old, new)] == [["old", "below"], ["new", "below"]]
    again = await moves.restore(caps=caps)
    assert (again.kept, again.restored, again.no_room) == (4, 0, 1)  # what is there needs no room, nor goes for others
    assert (await moves.restore()).restored == 2
    assert await said(second, middle[1]) == ["middle", "below"]


async def test_a_store_that_others_fill_meanwhile_evicts_nothing(
    history: ConversationHistoryStore, second: ConversationHistoryStore, monkeypatch: pytest.MonkeyPatch, moves: Moves
) -> None:
    await grow(history, "a", "b", "c")
    await moves.save()
    there = await grow(second, "x", "y")

    async def fits(*_: object) -> bool:
        """True, as it did a moment ago."""
        return True

    monkeypatch.setattr("store.backup.upkeep.refilling.Refill._fits", fits)
    found = await moves.restore(caps=Caps(responses=4))
    assert (found.restored, found.no_room) == (2, 1)
    assert await said(second, there[1]) == ["x", "y"]
    assert (await moves.restore()).kept == 2


async def test_fewer_shards_are_refused_and_more_are_not(
    open_store: OpenStore, server_url: str, prefix: str, redis: Redis, file: Path
) -> None:
    store = open_store(shards=3)
    ids = [(await grow(store, name))[0] for name in "abcdefghijkl"]
    await back_up(server_url, prefix, file, shards=3)
    with pytest.raises(LayoutMismatch, match="HARMONIUM_SHARDS to at least 3"):
        await bring_back(server_url, f"{prefix}-2", file, shards=2)
    assert (await bring_back(server_url, f"{prefix}-2", file, shards=5)).restored == len(ids)
    assert await faults(redis, server_url, f"{prefix}-2", shards=5) == []


async def test_the_secret_is_restored_where_there_is_none(
    history: ConversationHistoryStore, second: ConversationHistoryStore, server_url: str, prefix: str, moves: Moves
) -> None:
    secret = await shared_secret(history)
    await grow(history, "a")
    await moves.save()
    assert (await moves.restore()).secret == "restored"
    assert await shared_secret(second) == secret
    assert (await moves.restore()).secret == "kept"
    await moves.save(BackupScope(secret=False), beside=".2")
    assert (await bring_back(server_url, prefix, moves.file.with_suffix(".2"))).secret == "none"


async def test_of_a_response_under_way_what_it_continues_is_saved(
    jobs: Jobs, history: ConversationHistoryStore, second: ConversationHistoryStore, moves: Moves
) -> None:
    root, above = await grow(history, "root", "above")
    ended = await submit(jobs, "ended", parent=root)
    await finish(jobs, await claim(jobs))
    waiting = await submit(jobs, "waiting", parent=above)
    fleeting = await submit(jobs, "fleeting", fleeting=True)
    cancelled = await submit(jobs, "cancelled", parent=above)
    assert await jobs.cancel(TENANT, cancelled)  # whoever asked for that has yet to end it
    end = await moves.save()
    assert end.turns == 3
    await moves.restore()
    assert await said(second, above) == ["root", "above"]
    assert (await second.find(TENANT, ended)).background == "stream"
    for id in (waiting, fleeting, cancelled):
        with pytest.raises(NotFound):
            await second.get(TENANT, id)


async def test_a_conversation_with_more_turns_than_a_call_describes(
    history: ConversationHistoryStore, second: ConversationHistoryStore, moves: Moves
) -> None:
    chain = await grow(history, *map(str, range(250)))
    fork = await grow(history, *map(str, range(120)), parent=chain[100])
    for id in (*chain[50:60], chain[199], fork[98]):  # the last of the first piece, whichever branch comes first
        await history.forget(TENANT, id)
    end = await moves.save()
    assert (end.turns, end.deleted, end.unsettled) == (370, 12, 0)
    assert (await moves.restore()).restored == 370
    assert await second.lineage(TENANT, fork[-1]) == await history.lineage(TENANT, fork[-1])


async def test_turns_that_are_damaged_are_counted_and_all_others_are_saved(
    unaudited: ConversationHistoryStore, redis: Redis, moves: Moves
) -> None:
    for harmed in range(6):
        chain = await grow(unaudited, *"abcde")
        await grow(unaudited, "fork", parent=chain[0])
        keys = unaudited.keyspace.turn(TENANT, chain[2])
        match harmed:
            case 0:
                await redis.delete(keys.key("messages"))
            case 1:
                await redis.delete(keys.key("node"))
            case 2:
                await redis.hdel(keys.key("node"), "digest")
            case 3:
                await redis.delete(unaudited.keyspace.turn(TENANT, chain[0]).key("node"))
            case 4:
                await redis.set(keys.key("response"), b"\1\1no zstd")
            case _:
                await redis.set(keys.key("response"), blob := codec.encode_response(b"no JSON", b"[]"))
                await redis.hset(keys.key("node"), "response_bytes", len(blob))
    end = await moves.save()
    assert end.broken == 6  # what continues one isn't counted
    assert end.unsettled == 0
    found = await contents_of(moves.file)
    # a, b and the fork of each; nothing leads to b without the node of c, nor to anything without that of the root
    assert (found.trees, found.turns) == (5, 14)


async def test_what_a_later_release_wrote_is_refused_and_not_left_out(
    unaudited: ConversationHistoryStore, redis: Redis, moves: Moves
) -> None:
    (id,) = await grow(unaudited, "a")
    blob = unaudited.keyspace.turn(TENANT, id).key("messages")
    await redis.setrange(blob, 0, b"\x63")
    with pytest.raises(NewerFormat):
        await moves.save()


async def test_a_store_with_more_shards_than_are_set_is_not_saved_in_part(
    open_store: OpenStore, prefix: str, moves: Moves
) -> None:
    store = open_store(shards=3)
    await Layout(store.server, store.keyspace, Terms(3)).agree()
    with pytest.raises(LayoutMismatch):
        await moves.save(shards=2)


async def test_a_cluster_is_saved_and_restored(cluster_url: str, tmp_path: Path) -> None:
    store = ConversationHistoryStore(connect(cluster_url), prefix="a", shards=8, timeout_seconds=15.0)
    for name in map(str, range(40)):
        await grow(store, name, "below")
    await store.close()
    end = await back_up(cluster_url, "a", tmp_path / "one", shards=8)
    assert end.turns == 80
    assert (await bring_back(cluster_url, "b", tmp_path / "one", shards=8)).restored == 80
    assert (await back_up(cluster_url, "b", tmp_path / "two", shards=8)).content == end.content


@pytest.mark.full
@pytest.mark.timeout(900)
async def test_a_hundred_thousand_turns_are_the_same_by_digest(tmp_path: Path) -> None:
    with EmbeddedServer(tmp_path / "data") as running:
        store = ConversationHistoryStore(connect(running.url, timeout_seconds=30.0), timeout_seconds=60.0)
        chance = random.Random(1)
        for _ in range(1_000):
            trees = [tree_of_turns(store, chance.randrange(1 << 30)) for _ in range(10)]
            await asyncio.gather(*trees)
        await store.close()
        end = await back_up(running.url, "harmonium", tmp_path / "one")
        assert (end.turns, end.broken, end.unsettled) == (100_000, 0, 0)
        assert (await bring_back(running.url, "again", tmp_path / "one")).restored == 100_000
        assert (await back_up(running.url, "again", tmp_path / "two")).content == end.content
        report = await checked(running.url, "again")
    assert (report.found, report.turns, report.unjudged) == (0, 100_000, [])


async def tree_of_turns(store: ConversationHistoryStore, seed: int) -> None:
    """A conversation of ten turns with forks."""
    chance, ids = random.Random(seed), list[str | None]([None])
    for _ in range(10):
        parent = chance.choice(ids[1:]) if len(ids) > 1 else None
        id = store.new_id(parent)
        text = chance.randbytes(chance.randrange(1_000)).hex()
        await store.append(f"tenant-{seed % 5}", turn(id, parent, text=text))
        ids.append(id)


DAY = 86_400_000_000
NOW = 20_000 * DAY


@given(st.lists(st.integers(1, NOW + DAY), min_size=1, max_size=20), st.sampled_from([0, DAY, 30 * DAY]))
def test_the_order_survives_and_no_age_is_more_than_half_of_what_may_be(uses: list[int], idle: int) -> None:
    found = [capped_use(used, NOW, idle) for used in sorted(uses)]
    assert found == sorted(found)
    if idle:
        assert all(used >= NOW - idle // 2 for used in found)


async def test_another_turn_with_the_same_id_is_a_conflict_and_stays(
    history: ConversationHistoryStore, second: ConversationHistoryStore, moves: Moves
) -> None:
    first, below = await grow(history, "ours", "below")
    (free,) = await grow(history, "free")
    await moves.save()
    await second.append(TENANT, turn(first, text="theirs"))
    restored = await moves.restore()
    assert not restored.whole
    assert (restored.restored, restored.conflicts, restored.lost) == (1, 2, 0)
    assert set(restored.refused) == {RefusedTurn(TENANT, first), RefusedTurn(TENANT, below)}
    assert await said(second, first) == ["theirs"]
    assert await said(second, free) == ["free"]
