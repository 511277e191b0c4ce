"""Turns and chains: what was appended is what is read, by its own tenant, however many append at once."""

from collections.abc import Awaitable, Callable
from typing import Any

import pytest
from redis.asyncio import Redis

from store.errors import ChainTooLong, Conflict, NotContinuable, NotFound, ParentNotFound
from store.history.history import ConversationHistoryStore
from store.redis.connection import connect
from store.turn import Status
from tests.support.store.audit import complaints, dump, scores
from tests.support.store.counted import Usage, usage
from tests.support.store.sample import TENANT, grow, said, turn

MALFORMED = ["", "resp_1", "resp_" + "0" * 47, "resp_" + "G" * 48, "resp_ff" + "0" * 46, "conv_" + "0" * 48]


async def test_a_chain_has_every_turn_from_the_root_to_its_tip(store: ConversationHistoryStore) -> None:
    ids = await grow(store, "one", "two", "three")
    chain = await store.chain(TENANT, ids[-1])
    assert list(chain.ids) == ids
    assert chain.tip == ids[-1]
    assert chain.pin is None
    assert await said(store, ids[1]) == ["one", "two"]


@pytest.mark.parametrize("length", [31, 32, 33, 34, 64, 65, 66, 100])
async def test_a_long_chain_is_whole_wherever_it_is_read(store: ConversationHistoryStore, length: int) -> None:
    names = [str(number) for number in range(length)]
    ids = await grow(store, *names)
    for tip in (0, length // 2, length - 2, length - 1):
        assert await said(store, ids[tip]) == names[: tip + 1]
        assert list(await store.lineage(TENANT, ids[tip])) == ids[: tip + 1]


async def test_a_fork_never_sees_its_sibling(store: ConversationHistoryStore) -> None:
    (root,) = await grow(store, "root")
    left, right = await grow(store, "left", parent=root), await grow(store, "right", parent=root)
    assert await said(store, left[-1]) == ["root", "left"]
    assert await said(store, right[-1]) == ["root", "right"]


async def test_a_listing_has_the_responses_and_items_of_the_turns_asked_for(store: ConversationHistoryStore) -> None:
    ids = await grow(store, "one", "two")
    assert await store.items(TENANT, ids) == [(b'{"text":"one"}', b'["one"]'), (b'{"text":"two"}', b'["two"]')]
    assert await store.items(TENANT, []) == []


async def test_another_turn_with_the_same_id_is_a_conflict_and_changes_nothing(
    store: ConversationHistoryStore, redis: Redis, prefix: str
) -> None:
    root, child = await grow(store, "one", "two")
    before = await dump(redis, prefix)
    for other in (turn(child, root, text="other"), turn(child, None, text="two")):
        with pytest.raises(Conflict):
            await store.append(TENANT, other)
    assert await dump(redis, prefix) == before


async def test_a_turn_whose_parent_is_not_there_is_refused_and_changes_nothing(
    store: ConversationHistoryStore, redis: Redis, prefix: str
) -> None:
    await grow(store, "one")
    before = await dump(redis, prefix)
    for parent in (store.new_id(), *MALFORMED):
        with pytest.raises(ParentNotFound):
            await store.append(TENANT, turn(store.new_id(), parent))
    assert await dump(redis, prefix) == before


async def test_a_failed_turn_can_be_read_but_not_continued(
    store: ConversationHistoryStore, redis: Redis, prefix: str
) -> None:
    failed = store.new_id()
    await store.append(TENANT, turn(failed, status=Status.FAILED))
    assert await store.get(TENANT, failed) == turn(failed).response
    before = await dump(redis, prefix)
    with pytest.raises(NotContinuable, match="is failed and can't be continued"):
        await store.chain(TENANT, failed, pin=store.token())
    with pytest.raises(NotContinuable):
        await store.append(TENANT, turn(store.new_id(failed), failed))
    assert await dump(redis, prefix) == before


LIMITS = {"turns": {"max_depth": 2}, "bytes": {"max_chain_bytes": 30}}


@pytest.mark.parametrize("limit", LIMITS.values(), ids=LIMITS.keys())
async def test_a_chain_at_its_limit_can_be_read_and_not_continued(
    server_url: str, store: ConversationHistoryStore, redis: Redis, prefix: str, limit: dict[str, int]
) -> None:
    short = ConversationHistoryStore(connect(server_url), prefix=prefix, **limit)
    *_, tip = await grow(short, "one", "two")
    before = await dump(redis, prefix)
    with pytest.raises(ChainTooLong, match="too long to be continued"):
        await short.chain(TENANT, tip, pin=short.token())
    if "max_depth" in limit:
        with pytest.raises(ChainTooLong, match="too long to be continued"):
            await short.append(TENANT, turn(short.new_id(tip), tip))
    assert await dump(redis, prefix) == before
    assert await said(store, tip) == ["one", "two"]
    await short.close()


USES: dict[str, Callable[[ConversationHistoryStore, str], Awaitable[Any]]] = {
    "get": lambda store, id: store.get(TENANT, id),
    "chain": lambda store, id: store.chain(TENANT, id),
    "append": lambda store, id: grow(store, "child", parent=id),
}


@pytest.mark.parametrize("use", USES.values(), ids=USES.keys())
async def test_trees_stand_in_the_order_of_use(
    store: ConversationHistoryStore, redis: Redis, prefix: str, use: Callable[..., Awaitable[Any]]
) -> None:
    (first, inner), (second,) = await grow(store, "first", "inner"), await grow(store, "second")
    assert list(await scores(redis, prefix, "trees")) == [first, second]
    for id, order in ((inner, [second, first]), (second, [first, second]), (first, [second, first])):
        await use(store, id)
        assert list(await scores(redis, prefix, "trees")) == order


async def test_who_looks_of_itself_finds_the_same_and_uses_nothing(
    store: ConversationHistoryStore, redis: Redis, prefix: str
) -> None:
    (first, inner), (second,) = await grow(store, "first", "inner"), await grow(store, "second")
    before = await dump(redis, prefix)
    seen = [await store.find(TENANT, id, touches=False) for id in (inner, second, first)]
    assert await dump(redis, prefix) == before
    assert seen == [await store.find(TENANT, id) for id in (inner, second, first)]
    await store.forget(TENANT, second)
    with pytest.raises(NotFound):
        await store.find(TENANT, second, touches=False)


@pytest.mark.parametrize("use", USES.values(), ids=USES.keys())
async def test_scores_rise_though_the_clock_of_the_server_steps_back(
    store: ConversationHistoryStore, redis: Redis, prefix: str, use: Callable[..., Awaitable[Any]]
) -> None:
    (root,) = await grow(store, "one")
    ahead = int((await scores(redis, prefix, "trees"))[root]) + 3_600_000_000  # the last use was an hour from now
    await redis.set(f"{prefix}:{{00}}:clock", ahead)
    for rise in (1, 2):
        await use(store, root)
        assert await scores(redis, prefix, "trees") == {root: ahead + rise}
        assert max((await scores(redis, prefix, f"leaves:{TENANT}")).values()) == ahead + rise


async def test_another_tenant_finds_nothing(store: ConversationHistoryStore, redis: Redis, prefix: str) -> None:
    (mine,) = await grow(store, "secret")
    before = await dump(redis, prefix)
    refusals: list[Any] = [store.get("rival", mine), store.lineage("rival", mine), store.forget("rival", mine)]
    refusals += [store.chain("rival", mine, pin=store.token()), store.append("rival", turn(store.new_id(mine), mine))]
    for refusal in refusals:
        with pytest.raises(NotFound):
            await refusal
    assert await store.items("rival", [mine]) == [(b"", b"")]
    assert await usage(store, "rival") == Usage()
    assert await dump(redis, prefix) == before


async def test_two_tenants_may_have_the_same_id(store: ConversationHistoryStore) -> None:
    (id,) = await grow(store, "mine")
    await store.append("rival", turn(id, text="theirs"))
    await store.forget("rival", id)
    assert await said(store, id) == ["mine"]


@pytest.mark.parametrize("id", MALFORMED)
async def test_a_malformed_id_is_not_found_without_asking_the_server(id: str) -> None:
    store = ConversationHistoryStore(connect("redis://127.0.0.1:1"))
    for refusal in (store.get(TENANT, id), store.lineage(TENANT, id), store.forget(TENANT, id)):
        with pytest.raises(NotFound):
            await refusal
    with pytest.raises(ParentNotFound):
        await store.chain(TENANT, id)
    with pytest.raises(ParentNotFound):
        store.new_id(id)


async def test_a_malformed_tenant_is_refused(store: ConversationHistoryStore) -> None:
    (mine,) = await grow(store, "one")
    for tenant in ("", "a:b", "a/b", "*"):
        with pytest.raises(ValueError, match="tenant"):
            await store.chain(tenant, mine)


async def test_children_go_to_the_shard_of_their_parent(server_url: str, redis: Redis, prefix: str) -> None:
    store = ConversationHistoryStore(connect(server_url), prefix=prefix, shards=16)
    trees = [await grow(store, "one", "two", "three") for _ in range(40)]
    assert len({tree[0][:7] for tree in trees}) > 1
    assert all(len({id[:7] for id in tree}) == 1 for tree in trees)
    total, mine = await usage(store), await usage(store, TENANT)
    assert (total.responses, total.trees) == (mine.responses, mine.trees) == (120, 40)
    assert await complaints(redis, prefix) == []
    await store.close()


async def test_shards_may_be_added_and_nothing_moves(server_url: str, redis: Redis, prefix: str) -> None:
    few, more = (ConversationHistoryStore(connect(server_url), prefix=prefix, shards=shards) for shards in (1, 5))
    old = await grow(few, "one", "two")
    grown = await grow(more, "three", parent=old[-1])
    assert await said(more, grown[-1]) == await said(few, grown[-1]) == ["one", "two", "three"]
    new = [(await grow(more, str(number)))[0] for number in range(60)]
    assert {int(id[5:7], 16) for id in new} == set(range(5))
    assert (await usage(more)).responses == 63
    for id in new:
        if not id.startswith("resp_00"):
            with pytest.raises(NotFound):  # who doesn't know of a shard yet finds nothing in it
                await few.get(TENANT, id)
    assert await complaints(redis, prefix) == []
    await few.close()
    await more.close()


async def test_a_child_in_another_shard_than_its_parent_is_refused(prefix: str) -> None:
    store = ConversationHistoryStore(connect("redis://127.0.0.1:1"), prefix=prefix, shards=2)
    with pytest.raises(ValueError, match=r"make it by new_id\(parent\)"):
        await store.append(TENANT, turn("resp_00" + "a" * 46, "resp_01" + "a" * 46))


async def test_ids_come_from_the_randomness_given() -> None:
    store = ConversationHistoryStore(connect("redis://127.0.0.1:1"), entropy=lambda count: bytes(range(count)))
    assert store.new_id() == "resp_00" + bytes(range(23)).hex()
    assert store.new_id("resp_00" + "a" * 46) == "resp_00" + "a" * 18 + bytes(range(9, 23)).hex()


async def test_a_chain_with_a_hole_is_never_returned_without_it(
    store: ConversationHistoryStore, redis: Redis, prefix: str, server_url: str
) -> None:
    reader = ConversationHistoryStore(connect(server_url), prefix=prefix)  # has seen none of it
    ids = await grow(store, "one", "two", "three")
    key = f"{prefix}:{{00}}:t:{TENANT}:messages:{ids[1][5:]}"
    blob = await redis.get(key)
    await redis.delete(key)
    assert any("messages don't have the length" in each for each in await complaints(redis, prefix))
    with pytest.raises(ParentNotFound):
        await reader.chain(TENANT, ids[-1])
    await redis.set(key, blob)
    assert await said(reader, ids[-1]) == ["one", "two", "three"]
    await reader.close()


async def test_the_check_after_each_test_sees_a_key_that_belongs_to_nothing(
    store: ConversationHistoryStore, redis: Redis, prefix: str
) -> None:
    await grow(store, "one")
    strays = [f"{prefix}:{{00}}:t:{TENANT}:pins:{'0' * 48}", f"{prefix}:{{00}}:stray"]
    for stray in strays:
        await redis.zadd(stray, {"x": 1})
    assert len(await complaints(redis, prefix)) == 3
    await redis.delete(*strays)
