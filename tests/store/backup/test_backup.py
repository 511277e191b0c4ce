"""Backup and restore against real servers: what comes back is what there was, and nothing else changes."""

import asyncio
import random
import tracemalloc
from pathlib import Path

import msgspec
import pytest
from redis.asyncio import Redis

from store.backup.backup import BackupScope
from store.backup.reading import PIECE_BYTES
from store.backup.records import encoded
from store.backup.restore import Bounds
from store.embedded import EmbeddedServer
from store.errors import BadBackup, DoesNotFit, LayoutMismatch, NewerFormat, NotFound, StoreFull
from store.history.history import NOTHING_LISTED, ConversationHistoryStore
from store.jobs.jobs import Jobs
from store.layout import Layout, Terms, shared_secret
from store.redis.connection import connect
from tests.support.store.audit import dump, scores
from tests.support.store.backups import OTHER, RELEASE, back_up, bring_back, contents_of, cut, mixed, mode, nodes
from tests.support.store.sample import TENANT, grow, said, turn
from tests.support.store.servers import PLAIN, in_step, server
from tests.support.store.verdict import checked, faults
from tests.support.store.work import claim, finish, submit
from tests.support.waiting import until

COUNT = 30


async def test_payloads_of_many_megabytes_are_held_a_few_at_a_time(
    store: ConversationHistoryStore, server_url: str, prefix: str, file: Path
) -> None:
    tip = None
    for _ in range(COUNT):
        _, tip = await large(store, None), await large(store, tip)
    tracemalloc.start()
    await back_up(server_url, prefix, file)
    _, most = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert most < 6 * PIECE_BYTES  # packed as the store has them, unpacked, and as records of the file
    assert (await contents_of(file)).turns == 2 * COUNT


async def large(store: ConversationHistoryStore, parent: str | None) -> str:
    """A turn of 2 MiB; its id."""
    small = turn(store.new_id(parent), parent)
    items = b'["%b"]' % random.randbytes(1 << 20).hex().encode()
    await store.append(TENANT, msgspec.structs.replace(small, items=items))
    return small.id


async def test_what_is_restored_is_what_there_was(
    history: ConversationHistoryStore,
    second: ConversationHistoryStore,
    server_url: str,
    prefix: str,
    redis: Redis,
    file: Path,
) -> None:
    ids = await mixed(history)
    end = await back_up(server_url, prefix, file)
    restored = await bring_back(server_url, f"{prefix}-2", file)
    assert restored.whole
    assert (restored.restored, restored.kept) == (end.turns, 0)
    assert await nodes(redis, f"{prefix}-2:") == await nodes(redis, f"{prefix}:")
    for name in (f"leaves:{TENANT}", "trees"):
        assert await scores(redis, f"{prefix}-2", name) == await scores(redis, prefix, name)
    assert await said(second, ids["tip"]) == await said(history, ids["tip"]) == ["a", "b", "d"]
    assert await second.items(TENANT, [ids["tombstone"], ids["tip"]]) == [NOTHING_LISTED, (b'{"text":"d"}', b'["d"]')]
    again = await back_up(server_url, f"{prefix}-2", file.with_suffix(".2"))
    assert (again.content, again.turns) == (end.content, end.turns)


async def test_a_backup_changes_nothing_in_the_store(
    history: ConversationHistoryStore, server_url: str, prefix: str, redis: Redis, file: Path
) -> None:
    await mixed(history)
    before = await dump(redis, prefix)
    await back_up(server_url, prefix, file)
    assert await dump(redis, prefix) == before


async def test_the_order_of_use_decides_what_goes_first_after_a_restore_too(
    history: ConversationHistoryStore,
    second: ConversationHistoryStore,
    server_url: str,
    prefix: str,
    redis: Redis,
    file: Path,
) -> None:
    ids = [(await grow(history, name))[0] for name in "abcde"]
    for at in (3, 0, 4, 1, 2):
        await history.get(TENANT, ids[at])
    await back_up(server_url, prefix, file)
    await bring_back(server_url, f"{prefix}-2", file)
    order = [ids[at] for at in (3, 0, 4, 1, 2)]
    for each in (prefix, f"{prefix}-2"):
        assert list(await scores(redis, each, f"leaves:{TENANT}")) == order


async def test_the_file_says_what_it_is_and_only_its_owner_may_read_it(
    history: ConversationHistoryStore, server_url: str, prefix: str, file: Path
) -> None:
    await mixed(history)
    secret = await shared_secret(history)
    end = await back_up(server_url, prefix, file)
    found = await contents_of(file)
    assert (found.header.release, found.header.shards, found.header.secret) == (RELEASE, 1, True)
    assert (found.trees, found.turns, found.tenants, found.deleted) == (4, 11, 2, 3)
    assert found.header.expected.turns == found.turns
    assert found.content == end.content
    assert mode(file) == 0o600
    assert secret not in encoded(found.header)
    assert not file.with_name(file.name + ".partial").exists()


async def test_a_backup_of_one_tenant_or_one_conversation_has_nothing_else(
    history: ConversationHistoryStore, second: ConversationHistoryStore, server_url: str, prefix: str, file: Path
) -> None:
    ids = await mixed(history)
    one = await back_up(server_url, prefix, file.with_suffix(".t"), BackupScope(tenant=OTHER, secret=False))
    assert (one.turns, one.tenants) == (1, 1)
    tree = await back_up(server_url, prefix, file.with_suffix(".r"), BackupScope(tree=ids["fork"], secret=False))
    assert (tree.trees, tree.turns) == (1, 6)
    await bring_back(server_url, f"{prefix}-2", file.with_suffix(".r"))
    assert await said(second, ids["fork"]) == ["a", "b", "e", "f"]
    with pytest.raises(NotFound):
        await second.get(OTHER, ids["foreign"])
    with pytest.raises(NotFound):
        await back_up(server_url, prefix, file, BackupScope(tenant=OTHER, tree=ids["fork"]))


async def test_one_tenant_or_one_conversation_is_restored_of_a_whole_backup(
    history: ConversationHistoryStore, second: ConversationHistoryStore, server_url: str, prefix: str, file: Path
) -> None:
    ids = await mixed(history)
    await back_up(server_url, prefix, file)
    assert (await bring_back(server_url, f"{prefix}-2", file, only={"tenant": OTHER})).restored == 1
    assert (await bring_back(server_url, f"{prefix}-2", file, only={"tree": ids["kept"]})).restored == 2
    assert await said(second, ids["kept"]) == ["kept"]
    with pytest.raises(NotFound):
        await bring_back(server_url, f"{prefix}-2", file, only={"tree": second.new_id()})
    with pytest.raises(ValueError, match="nothing of tenant 'nobody'"):
        await bring_back(server_url, f"{prefix}-2", file, only={"tenant": "nobody"})


async def test_a_restore_that_is_run_again_keeps_what_is_there(
    history: ConversationHistoryStore,
    second: ConversationHistoryStore,
    server_url: str,
    prefix: str,
    redis: Redis,
    file: Path,
) -> None:
    ids = await mixed(history)
    end = await back_up(server_url, prefix, file)
    await bring_back(server_url, f"{prefix}-2", file)
    await second.forget(TENANT, ids["tip"])  # deleted after the backup: stays deleted, with all that only it needed
    before = await dump(redis, f"{prefix}-2")
    assert (await bring_back(server_url, prefix, file)).kept == end.turns
    again = await bring_back(server_url, f"{prefix}-2", file)
    assert again.restored > 0  # the tombstones went with the tip, so they and it are new again
    assert set(before) < set(await dump(redis, f"{prefix}-2"))


async def test_another_turn_with_the_same_id_is_a_conflict_and_stays(
    history: ConversationHistoryStore, second: ConversationHistoryStore, server_url: str, prefix: str, file: Path
) -> None:
    first, below = await grow(history, "ours", "below")
    (free,) = await grow(history, "free")
    await back_up(server_url, prefix, file)
    await second.append(TENANT, turn(first, text="theirs"))
    restored = await bring_back(server_url, f"{prefix}-2", file)
    assert not restored.whole
    assert (restored.restored, restored.conflict, restored.lost) == (1, 2, 0)
    assert set(restored.conflicts) == {(TENANT, first), (TENANT, below)}
    assert await said(second, first) == ["theirs"]
    assert await said(second, free) == ["free"]


async def test_nothing_of_a_damaged_file_is_restored(
    history: ConversationHistoryStore,
    second: ConversationHistoryStore,
    server_url: str,
    prefix: str,
    redis: Redis,
    file: Path,
) -> None:
    await mixed(history)
    await back_up(server_url, prefix, file)
    cut(file, 1)
    with pytest.raises(BadBackup):
        await bring_back(server_url, f"{prefix}-2", file)
    assert await dump(redis, f"{prefix}-2") == {}


@pytest.mark.parametrize("bounds", [Bounds(responses=6), Bounds(trees=3), Bounds(bytes=4_000)])
async def test_a_backup_that_the_caps_have_no_room_for_is_refused_before_anything_is_written(
    bounds: Bounds,
    history: ConversationHistoryStore,
    second: ConversationHistoryStore,
    server_url: str,
    prefix: str,
    redis: Redis,
    file: Path,
) -> None:
    await mixed(history)
    await back_up(server_url, prefix, file)
    with pytest.raises(DoesNotFit) as refused:
        await bring_back(server_url, f"{prefix}-2", file, bounds=bounds)
    assert refused.value.wanted > refused.value.most
    assert await dump(redis, f"{prefix}-2") == {}


async def test_what_is_there_already_needs_no_room(
    history: ConversationHistoryStore, server_url: str, prefix: str, file: Path
) -> None:
    await mixed(history)
    end = await back_up(server_url, prefix, file)
    restored = await bring_back(server_url, prefix, file, bounds=Bounds(responses=8, trees=4))
    assert restored.kept == end.turns


async def test_a_store_that_others_fill_meanwhile_is_full_and_evicts_nothing(
    history: ConversationHistoryStore,
    second: ConversationHistoryStore,
    server_url: str,
    prefix: str,
    redis: Redis,
    file: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    await grow(history, "a", "b", "c")
    await back_up(server_url, prefix, file)
    there = await grow(second, "x", "y")
    monkeypatch.setattr("store.backup.restore.Restore._fits", _does_fit)
    with pytest.raises(StoreFull):
        await bring_back(server_url, f"{prefix}-2", file, bounds=Bounds(responses=4))
    assert await said(second, there[1]) == ["x", "y"]


async def _does_fit(*_: object) -> None:
    """As it did a moment ago."""


async def test_fewer_shards_are_refused_and_more_are_not(
    server_url: str, prefix: str, redis: Redis, file: Path
) -> None:
    store = ConversationHistoryStore(connect(server_url), prefix=prefix, shards=3)
    ids = [(await grow(store, name))[0] for name in "abcdefghijkl"]
    await store.close()
    await back_up(server_url, prefix, file, shards=3)
    with pytest.raises(DoesNotFit):
        await bring_back(server_url, f"{prefix}-2", file, shards=2)
    assert (await bring_back(server_url, f"{prefix}-2", file, shards=5)).restored == len(ids)
    assert await faults(redis, server_url, f"{prefix}-2", shards=5) == []


async def test_a_restored_conversation_may_be_unused_for_half_of_the_time_before_it_expires(
    history: ConversationHistoryStore,
    second: ConversationHistoryStore,
    server_url: str,
    prefix: str,
    redis: Redis,
    file: Path,
) -> None:
    ids = [(await grow(history, name))[0] for name in "abc"]
    await back_up(server_url, prefix, file)
    seconds, micros = await redis.time()
    await bring_back(server_url, f"{prefix}-2", file, bounds=Bounds(idle_us=4_000))
    found = await scores(redis, f"{prefix}-2", "trees")
    assert list(found) == ids
    assert min(found.values()) >= seconds * 1_000_000 + micros - 2_000


async def test_the_secret_is_restored_where_there_is_none(
    history: ConversationHistoryStore, second: ConversationHistoryStore, server_url: str, prefix: str, file: Path
) -> None:
    secret = await shared_secret(history)
    await grow(history, "a")
    await back_up(server_url, prefix, file)
    assert (await bring_back(server_url, f"{prefix}-2", file)).secret == "restored"
    assert await shared_secret(second) == secret
    assert (await bring_back(server_url, f"{prefix}-2", file)).secret == "kept"
    await back_up(server_url, prefix, file.with_suffix(".2"), BackupScope(secret=False))
    assert (await bring_back(server_url, prefix, file.with_suffix(".2"))).secret == "none"


async def test_another_secret_stays(
    history: ConversationHistoryStore, second: ConversationHistoryStore, server_url: str, prefix: str, file: Path
) -> None:
    await shared_secret(history)
    theirs = await shared_secret(second)
    await back_up(server_url, prefix, file)
    assert (await bring_back(server_url, f"{prefix}-2", file)).secret == "other"
    assert await shared_secret(second) == theirs


async def test_of_a_response_under_way_what_it_continues_is_saved(
    jobs: Jobs,
    history: ConversationHistoryStore,
    second: ConversationHistoryStore,
    server_url: str,
    prefix: str,
    file: Path,
) -> None:
    root, above = await grow(history, "root", "above")
    ended = await submit(jobs, "ended", parent=root)
    await finish(jobs, await claim(jobs))
    waiting = await submit(jobs, "waiting", parent=above)
    fleeting = await submit(jobs, "fleeting", fleeting=True)
    end = await back_up(server_url, prefix, file)
    assert end.turns == 3
    await bring_back(server_url, f"{prefix}-2", file)
    assert await said(second, above) == ["root", "above"]
    assert (await second.find(TENANT, ended)).background == "stream"
    for id in (waiting, fleeting):
        with pytest.raises(NotFound):
            await second.get(TENANT, id)


async def test_a_conversation_with_more_turns_than_a_call_describes(
    history: ConversationHistoryStore, second: ConversationHistoryStore, server_url: str, prefix: str, file: Path
) -> None:
    chain = await grow(history, *map(str, range(250)))
    fork = await grow(history, *map(str, range(120)), parent=chain[100])
    for id in chain[50:60]:
        await history.forget(TENANT, id)
    end = await back_up(server_url, prefix, file)
    assert (end.turns, end.deleted, end.unsettled) == (370, 10, 0)
    assert (await bring_back(server_url, f"{prefix}-2", file)).restored == 370
    assert await second.lineage(TENANT, fork[-1]) == await history.lineage(TENANT, fork[-1])


async def test_turns_that_are_damaged_are_counted_and_all_others_are_saved(
    unaudited: ConversationHistoryStore, server_url: str, prefix: str, redis: Redis, file: Path
) -> None:
    for harmed in range(4):
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
            case _:
                await redis.set(keys.key("response"), b"\1\1no zstd")
    end = await back_up(server_url, prefix, file)
    assert end.broken >= 4
    assert end.unsettled == 0
    found = await contents_of(file)
    assert (found.trees, found.turns) == (4, 11)  # a, b and the fork of each; nothing leads to b without the node of c


async def test_a_large_conversation_with_damage_has_no_hole_in_the_file(
    unaudited: ConversationHistoryStore, server_url: str, prefix: str, redis: Redis, file: Path
) -> None:
    chain = await grow(unaudited, *map(str, range(450)))
    fork = await grow(unaudited, *map(str, range(3)), parent=chain[20])
    await redis.set(unaudited.keyspace.turn(TENANT, chain[30]).key("messages"), b"\1no msgpack")
    end = await back_up(server_url, prefix, file)
    assert (end.broken, end.turns) == (1, 30 + len(fork))
    assert (await contents_of(file)).turns == end.turns


async def test_what_a_later_release_wrote_is_refused_and_not_left_out(
    unaudited: ConversationHistoryStore, server_url: str, prefix: str, redis: Redis, file: Path
) -> None:
    (id,) = await grow(unaudited, "a")
    blob = unaudited.keyspace.turn(TENANT, id).key("messages")
    await redis.setrange(blob, 0, b"\x63")
    with pytest.raises(NewerFormat):
        await back_up(server_url, prefix, file)


async def test_a_store_with_more_shards_than_are_set_is_not_saved_in_part(
    server_url: str, prefix: str, file: Path
) -> None:
    store = ConversationHistoryStore(connect(server_url), prefix=prefix, shards=3)
    await Layout(store.server, prefix, Terms(3)).agree()
    await store.close()
    with pytest.raises(LayoutMismatch):
        await back_up(server_url, prefix, file, shards=2)


async def test_a_replica_serves_a_backup(tmp_path: Path) -> None:
    with server(tmp_path, *PLAIN) as primary:
        store = ConversationHistoryStore(connect(f"redis://{primary.address}"))
        ids = await grow(store, *"abc")
        await store.close()
        with server(tmp_path, *PLAIN, "--replicaof", "127.0.0.1", primary.port) as replica:
            await until(lambda: in_step(replica), passing=Exception)
            end = await back_up(f"redis://{replica.address}", "harmonium", tmp_path / "backup")
    assert end.turns == len(ids)


async def test_a_cluster_is_saved_and_restored(cluster_url: str, tmp_path: Path) -> None:
    store = ConversationHistoryStore(connect(cluster_url), prefix="a", shards=8)
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
        found, report = await checked(running.url, "again")
    assert (found, report.turns, report.unjudged) == ([], 100_000, [])


async def tree_of_turns(store: ConversationHistoryStore, seed: int) -> None:
    """A conversation of ten turns with forks."""
    chance, ids = random.Random(seed), list[str | None]([None])
    for _ in range(10):
        parent = chance.choice(ids[1:]) if len(ids) > 1 else None
        id = store.new_id(parent)
        text = chance.randbytes(chance.randrange(1_000)).hex()
        await store.append(f"tenant-{seed % 5}", turn(id, parent, text=text))
        ids.append(id)
