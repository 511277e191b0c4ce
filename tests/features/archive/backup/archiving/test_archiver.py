"""The archiver on a real server: what changed is archived, what is not stays, and what was deleted never comes back."""

from typing import Any

import pytest
from redis.asyncio import Redis

from store.backup.archiving.archived_turns import HIT, MISS, ArchivedTurns
from store.history.elsewhere import AwayBranches, Outdated
from store.history.history import ConversationHistoryStore
from store.keys import digits_of
from store.layout import shared_secret
from store.watcher import Watcher
from tests.support.archive.kept import Kept, Open, archive_one, lose
from tests.support.store.sample import TENANT, grow, said, turn


async def test_another_tenant_finds_nothing(archived: Kept) -> None:
    (id,) = await grow(archived.store, "one")
    await archived.archive_all()
    assert await archived.turns.way("globex", digits_of(id)) is None


async def test_what_was_read_too_long_ago_does_not_come_back(archived: Kept, redis: Redis, prefix: str) -> None:
    ids = await grow(archived.store, "one")
    await archived.archive_all()
    way = await archived.turns.way(TENANT, digits_of(ids[0]))
    assert way is not None
    await lose(redis, prefix)
    long_ago = way.archived._replace(asked_ms=str(int(way.archived.asked_ms) - 61_000))
    with pytest.raises(Outdated):
        await archived.turns._store(TENANT, way._replace(archived=long_ago))


async def test_what_changes_once_it_was_written_is_still_to_be_archived(
    archived: Kept, redis: Redis, prefix: str
) -> None:
    (id,) = await grow(archived.store, "one")
    (tree,) = [each for shard in archived.store.keyspace.all_shards() for each in await archived.archiver.due(shard, 9)]
    written = await archived.archiver.write(tree)
    await archived.store.redact(TENANT, id, lambda *_: ((), b"{}", b"[]"))
    assert await archived.archiver.strike([written]) == [1]
    await archived.archive_all()
    await lose(redis, prefix)
    assert await archived.turns.bring_back(TENANT, digits_of(id))
    assert await archived.store.get(TENANT, id) == b"{}"


async def test_what_somebody_else_puts_meanwhile_is_read_again_and_nothing_is_lost(
    archived: Kept, monkeypatch: pytest.MonkeyPatch
) -> None:
    (one,), _ = await archived.archived("one")
    (two,) = await grow(archived.store, "two", parent=one)
    put = archived.archive.put

    async def late(key: str, value: bytes, *, only_if: str | None) -> str | None:
        monkeypatch.undo()
        await archived.overwrite(key, (await archived.value(key)).value)
        return await put(key, value, only_if=only_if)

    monkeypatch.setattr(archived.archive, "put", late)
    await archived.archive_all()
    assert await archived.told(two) == [one, two]


async def test_a_turn_that_can_not_be_read_stays_in_the_store(archived: Kept, redis: Redis, prefix: str) -> None:
    one, two = await grow(archived.store, "one", "two")
    key = f"{prefix}:{{00}}:t:{TENANT}:messages:{digits_of(two)}"
    messages = await redis.get(key)
    await redis.set(key, b"\x01" + b"?" * (len(messages) - 1))
    (shard,) = archived.store.keyspace.all_shards()
    (tree,) = await archived.archiver.due(shard, 10)
    assert await archive_one(archived.archiver, tree) == 1
    assert (await archived.told(one), await archived.told(two)) == ([one], None)
    await redis.set(key, messages)
    await archived.archive_all()
    assert await archived.told(two) == [one, two]


@pytest.mark.parametrize("field", ["root", "status", "digest", "created"])
async def test_a_turn_whose_node_is_damaged_waits_for_its_repair(
    archived: Kept, redis: Redis, prefix: str, field: str
) -> None:
    one, two = await grow(archived.store, "one", "two")
    node = f"{prefix}:{{00}}:t:{TENANT}:node:{digits_of(two)}"
    value = await redis.hget(node, field)
    assert value is not None
    await redis.hdel(node, field)
    (tree,) = await archived.archiver.due(archived.store.keyspace.all_shards()[0], 1)
    assert [await archive_one(archived.archiver, tree) for _ in range(2)] == [1, 1]
    assert await archived.told(one) == [one]
    await redis.hset(node, field, value)
    assert await archive_one(archived.archiver, tree) == 0
    assert await archived.told(two) == [one, two]


async def test_a_guess_is_looked_for_once_and_what_may_come_yet_again(
    archived: Kept, redis: Redis, prefix: str
) -> None:
    store, asked = archived.store, list[str]()
    store.ids.prove_by(await shared_secret(store))
    watcher = store.server.watcher = Watcher()
    watcher.archive_asked = asked.append
    turns, digits = ArchivedTurns(store, archived.archive), digits_of(id := store.new_id())
    guessed = digits[:-1] + ("0" if digits[-1] != "0" else "1")
    for _ in range(3):
        assert await turns.find(TENANT, guessed) is None
        assert not await turns.bring_back(TENANT, guessed)
    assert asked == [MISS]
    assert await turns.find(TENANT, digits) is None
    await store.append(TENANT, turn(id))
    await archived.archive_all()
    await lose(redis, prefix)
    assert await turns.find(TENANT, digits) is not None
    assert asked == [MISS, MISS, HIT]


async def test_without_an_archive_nothing_is_noted(store: ConversationHistoryStore, redis: Redis, prefix: str) -> None:
    ids = await grow(store, "one", "two")
    await store.forget(TENANT, ids[1])
    assert [key async for key in redis.scan_iter(f"{prefix}:*changes*")] == []
    assert await redis.exists(f"{prefix}:{{00}}:unarchived") == 0
    assert await said(store, ids[0]) == ["one"]


@pytest.fixture
async def made(begin: Open) -> Kept:
    return await begin(part_bytes=20)


async def away(made: Kept, root: str, *here: str, most: int = 10) -> AwayBranches:
    return await made.turns.away(TENANT, digits_of(root), [digits_of(id) for id in here], most)


async def test_what_was_deleted_is_not_told_and_what_is_above_it_is(made: Kept) -> None:
    one, two, three = await grow(made.store, "one", "two", "three")
    forks = [(await grow(made.store, "fork", parent=one))[0] for _ in range(2)]
    await made.store.forget(TENANT, forks[0])
    await made.archive_all()
    assert await away(made, one, one) == AwayBranches([digits_of(forks[1]), digits_of(three)], True)
    await made.store.forget(TENANT, forks[1])  # which the archive doesn't know yet
    assert await away(made, one, one) == AwayBranches([digits_of(three)], True)
    await made.store.forget(TENANT, three)
    await made.archive_all()
    assert await away(made, one, one) == AwayBranches([digits_of(two)], True)


async def test_what_comes_back_while_it_is_listed_is_listed(
    archived: Kept, redis: Redis, prefix: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    ids = await grow(archived.store, "one", "two")
    await archived.archive_all()
    listed = await archived.store.items(TENANT, ids)
    await lose(redis, prefix)
    archived.store.elsewhere = archived.turns
    ask = archived.store.server.row

    async def late(*commands: Any, **options: Any) -> Any:
        monkeypatch.undo()
        assert await archived.turns.bring_back(TENANT, digits_of(ids[-1]))
        return await ask(*commands, **options)

    monkeypatch.setattr(archived.store.server, "row", late)
    assert await archived.store.items(TENANT, ids) == listed
