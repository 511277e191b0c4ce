"""What shards know of their archive on a real server: older trees are noted, idle ones leave memory, it may be
away, and it may be gone.
"""

from pathlib import Path

import pytest
from redis.asyncio import Redis

from store.archive.opening import open_archive
from store.backup.archiving.archiver import Archiver
from store.backup.archiving.shards import begin_archive, end_archive, note_older, tell_away
from store.backup.heads import Heads
from store.errors import NotFound, StoreFull
from store.history.caps import Caps
from store.history.conversations import Conversations, by_hand
from store.history.history import ConversationHistoryStore
from store.keys import ARCHIVE, digits_of
from store.redis.connection import connect
from tests.support.archive.kept import Open, archive_one
from tests.support.store.sample import DAY, TENANT, grow, leave_unused, set_use
from tests.support.store.verdict import checked

IDLE = Caps(idle_seconds=30 * DAY, idle_grace_seconds=0)
FEW = Caps(responses=3)
LATER = 3_000_000_000_000_000
"""A use to come, in µs."""


async def note_all(store: ConversationHistoryStore, trees: int = 50) -> int:
    """Note all that is older than the archive; how many calls that took."""
    calls = 1
    while await note_older(store.server, store.keyspace, trees=trees):
        calls += 1
    return calls


async def is_here(redis: Redis, prefix: str, id: str) -> bool:
    """Whether the server has a turn."""
    return bool(await redis.exists(f"{prefix}:{{00}}:t:{TENANT}:node:{digits_of(id)}"))


async def noted(redis: Redis, prefix: str) -> list[bytes]:
    """The keys that say that something is to be archived, or that there is an archive."""
    names = (b"archive", b"older", b"unarchived", b"changes")
    return [
        key
        async for key in redis.scan_iter(f"{prefix}:*")
        if key.split(b"}:")[1].startswith(names) or (key.endswith(b"}:usage") and await redis.hexists(key, ARCHIVE))
    ]


async def test_an_idle_tree_that_the_archive_lacks_is_next_and_others_go(
    begin: Open, redis: Redis, prefix: str
) -> None:
    made = await begin(IDLE)
    (archived,) = await grow(made.store, "archived")
    await made.archive_all()
    await begin_archive(made.store.server, made.store.keyspace, 3600)
    (new,) = await grow(made.store, "new")
    (shard,) = made.store.keyspace.all_shards()
    assert await made.archiver.due(shard, 10) == []
    await leave_unused(redis, prefix, 31)
    await made.store.sweep()
    assert (await is_here(redis, prefix, archived), await is_here(redis, prefix, new)) == (False, True)
    assert [tree.root for tree in await made.archiver.due(shard, 10)] == [digits_of(new)]


async def test_where_there_is_an_archive_an_idle_tree_goes_on(begin: Open, redis: Redis, prefix: str) -> None:
    made = await begin(IDLE)
    (id,) = await grow(made.store, "one")
    await leave_unused(redis, prefix, 31)
    assert await made.store.lineage(TENANT, id) == (id,)


async def test_a_conversation_stays_for_its_own_time_and_then_until_it_is_archived(
    begin: Open, redis: Redis, prefix: str
) -> None:
    made = await begin(Caps(idle_seconds=30 * DAY, idle_grace_seconds=0, named_idle_seconds=90 * DAY))
    conversations = Conversations(made.store)
    id = conversations.new_id()
    first = conversations.first_turn_id(id)
    await conversations.create(TENANT, id, by_hand(first, None, ()), b"{}")
    await made.archive_all()
    await leave_unused(redis, prefix, 60)
    await made.store.sweep()
    assert await is_here(redis, prefix, id)
    await conversations.amend(TENANT, id, b'{"changed":1}')
    await leave_unused(redis, prefix, 91)
    await made.store.sweep()
    assert await is_here(redis, prefix, id)

    async def sweep_a_day_later() -> None:
        await leave_unused(redis, prefix, 1)
        await redis.hincrby(f"{prefix}:{{00}}:t:{TENANT}:node:{digits_of(first)}", "idle_score", -DAY * 1_000_000)
        await made.store.sweep()

    await sweep_a_day_later()
    assert await is_here(redis, prefix, id)
    await made.archive_all()
    await sweep_a_day_later()
    assert not await is_here(redis, prefix, id)
    assert await made.told(id.replace("conv_", "resp_")) == [first, id.replace("conv_", "resp_")]


@pytest.mark.parametrize("trees", [1, 3, 50])
async def test_trees_from_before_the_archive_are_archived_with_all_their_turns(
    before: ConversationHistoryStore, begin: Open, redis: Redis, prefix: str, trees: int
) -> None:
    chains = [await grow(before, *(f"{at} {turn}" for turn in range(120))) for at in range(3)]
    fork = await grow(before, "fork", parent=chains[0][50])
    gone = (await grow(before, "gone", parent=chains[1][50]))[0]
    await before.forget(TENANT, chains[2][60])
    made = await begin()
    assert await made.archive_all() == 0
    assert await note_all(made.store, trees) == {1: 3, 3: 1, 50: 1}[trees]
    changes = [f"{prefix}:{{00}}:changes:{TENANT}/{digits_of(chain[0])}" for chain in chains]
    assert [await redis.zcard(key) for key in changes] == [121, 121, 120]
    await made.store.forget(TENANT, gone)
    assert await made.archive_all() == 3
    assert [await made.told(chain[-1]) for chain in chains] == chains
    assert await made.told(fork[0]) == [*chains[0][:51], *fork]
    assert (await made.told(gone), await made.told(chains[2][60])) == (None, None)
    assert await made.archive_all() == 0
    await begin_archive(made.store.server, made.store.keyspace, 0)
    assert await note_all(made.store) == 1
    assert await made.archive_all() == 0


@pytest.mark.parametrize("trees", [1, 3])
async def test_trees_that_were_used_at_once_are_all_noted(
    before: ConversationHistoryStore, begin: Open, redis: Redis, prefix: str, trees: int
) -> None:
    ids = [(await grow(before, f"{at}"))[0] for at in range(7)]
    await set_use(redis, prefix, LATER, *ids[:5])
    await redis.set(f"{prefix}:{{00}}:clock", LATER)
    await note_all((await begin()).store, trees)
    assert await redis.zcard(f"{prefix}:{{00}}:unarchived") == len(ids)


@pytest.mark.parametrize("caps", [FEW, Caps(trees=3)], ids=["responses", "trees"])
async def test_a_tree_from_before_the_archive_stays_until_it_is_archived(
    before: ConversationHistoryStore, begin: Open, caps: Caps
) -> None:
    ids = [(await grow(before, text))[0] for text in ("one", "two", "three")]
    made = await begin(caps)
    with pytest.raises(StoreFull):
        await grow(made.store, "four")
    await note_all(made.store)
    assert await made.archive_all() == 3
    await grow(made.store, "four")
    assert await made.told(ids[0]) == [ids[0]]


async def test_while_the_archive_is_away_what_it_lacks_may_be_evicted_and_is_lost(
    begin: Open, redis: Redis, prefix: str
) -> None:
    made = await begin(FEW)
    ids = [(await grow(made.store, text))[0] for text in ("one", "two", "three")]
    with pytest.raises(StoreFull):
        await grow(made.store, "four")
    await tell_away(made.store.server, made.store.keyspace, 60)
    ids += await grow(made.store, "four")
    assert not await is_here(redis, prefix, ids[0])
    await redis.delete(f"{prefix}:{{00}}:archive-away")
    with pytest.raises(StoreFull):
        await grow(made.store, "five")
    assert await made.archive_all() == 4
    assert [await made.told(id) for id in ids] == [None, [ids[1]], [ids[2]], [ids[3]]]
    assert await made.archive_all() == 0


@pytest.mark.parametrize("caps", [FEW, Caps(trees=3)], ids=["responses", "trees"])
async def test_a_turn_of_which_something_was_erased_stays_while_the_archive_is_away(
    begin: Open, redis: Redis, prefix: str, caps: Caps
) -> None:
    made = await begin(caps)
    (id,) = await grow(made.store, "a secret")
    assert await made.archive_all() == 1
    await made.store.redact(TENANT, id, lambda messages, response, items: (messages, b"{}", b"[]"))
    await tell_away(made.store.server, made.store.keyspace, 60)
    for text in ("two", "three", "four", "five"):
        await grow(made.store, text)
    assert await is_here(redis, prefix, id)


async def test_fsck_knows_all_that_is_noted_and_that_away_is_not_for_ever(
    before: ConversationHistoryStore, begin: Open, server_url: str, redis: Redis, prefix: str
) -> None:
    await grow(before, "one")
    made = await begin()
    (id,) = await grow(made.store, "two")
    await made.archive_all()
    await made.store.forget(TENANT, id)
    await tell_away(made.store.server, made.store.keyspace, 60)
    report = await checked(server_url, prefix)
    assert (report.found, report.unknown) == (0, 0)
    away = f"{prefix}:{{00}}:archive-away"
    await redis.persist(away)
    assert [fault.what for fault in (await checked(server_url, prefix)).faults] == ["endless-note"]
    await redis.expire(away, 60)


async def test_without_the_archive_all_is_evicted_again_and_idle_trees_go(
    begin: Open, redis: Redis, prefix: str
) -> None:
    made = await begin(FEW)
    ids = [(await grow(made.store, text))[0] for text in ("one", "two", "three")]
    await made.store.forget(TENANT, ids[1])
    await end_archive(made.store.server, made.store.keyspace)
    assert await noted(redis, prefix) == []
    await grow(made.store, "four", "five")
    assert not await is_here(redis, prefix, ids[0])
    assert await noted(redis, prefix) == []
    made.store.caps = made.store._all_caps = IDLE  # pyright: ignore[reportPrivateUsage]
    await leave_unused(redis, prefix, 31)
    with pytest.raises(NotFound):
        await made.store.get(TENANT, ids[2])
    await made.store.sweep()
    assert not await is_here(redis, prefix, ids[2])


async def test_an_archive_that_begins_again_gets_what_came_without_it(begin: Open, redis: Redis, prefix: str) -> None:
    made = await begin()
    ids = await grow(made.store, "one")
    await made.archive_all()
    await end_archive(made.store.server, made.store.keyspace)
    ids += await grow(made.store, "two", parent=ids[0])
    await begin_archive(made.store.server, made.store.keyspace, 0)
    await Heads(made.store.server, made.store.keyspace, made.archive).catch_up(0)
    await note_all(made.store)
    assert await made.archive_all() == 1
    assert await made.told(ids[1]) == ids


async def test_on_a_cluster_each_shard_is_told(cluster_url: str, prefix: str, tmp_path: Path) -> None:
    store = ConversationHistoryStore(connect(cluster_url), prefix=prefix, shards=8, timeout_seconds=15)
    archive = open_archive("sqlite", tmp_path)
    archiver = Archiver(store.server, store.keyspace, archive)
    older = [await grow(store, "one", "two") for _ in range(24)]
    await begin_archive(store.server, store.keyspace, 0)
    await note_all(store)
    due = [tree for shard in store.keyspace.all_shards() for tree in await archiver.due(shard, 100)]
    assert {tree.root for tree in due} == {digits_of(ids[0]) for ids in older}
    for tree in due:
        assert await archive_one(archiver, tree) == 0
    await grow(store, "new")
    await tell_away(store.server, store.keyspace, 60)
    await end_archive(store.server, store.keyspace)
    assert [await archiver.due(shard, 100) for shard in store.keyspace.all_shards()] == [[]] * 8
    await store.close()
    await archive.close()
