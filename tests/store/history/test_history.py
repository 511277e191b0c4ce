"""Turns and chains: what was appended is what is read, however it is packed, by its own tenant, and noted as used."""

from collections.abc import Awaitable, Callable
from typing import Any

import pytest
from redis.asyncio import Redis

from bench._dictionary.samples import Samples
from store import codec
from store.errors import ChainTooLong, NotFound, ParentNotFound
from store.history.caps import Caps
from store.history.history import ConversationHistoryStore
from store.redis.connection import connect
from store.turn import Status, Turn
from tests.support.store.audit import complaints, dump, scores
from tests.support.store.counted import Usage, usage
from tests.support.store.fixtures import OpenStore
from tests.support.store.sample import TENANT, grow, said, turn

MALFORMED = ["", "resp_1", "resp_" + "0" * 47, "resp_" + "G" * 48, "resp_ff" + "0" * 46, "conv_" + "0" * 48]


@pytest.mark.parametrize("length", [31, 32, 33, 34, 64, 65, 66, 100])
async def test_a_long_chain_is_whole_wherever_it_is_read(store: ConversationHistoryStore, length: int) -> None:
    names = [str(number) for number in range(length)]
    ids = await grow(store, *names)
    for tip in (0, length // 2, length - 2, length - 1):
        assert await said(store, ids[tip]) == names[: tip + 1]
        assert list(await store.lineage(TENANT, ids[tip])) == ids[: tip + 1]


async def test_a_turn_whose_parent_is_not_there_is_refused_and_changes_nothing(
    store: ConversationHistoryStore, redis: Redis, prefix: str
) -> None:
    await grow(store, "one")
    before = await dump(redis, prefix)
    for parent in (store.new_id(), *MALFORMED):
        with pytest.raises(ParentNotFound):
            await store.append(TENANT, turn(store.new_id(), parent))
    assert await dump(redis, prefix) == before


LIMITS = {"turns": {"max_depth": 2}, "bytes": {"max_chain_bytes": 30}}


@pytest.mark.parametrize("limit", LIMITS.values(), ids=LIMITS.keys())
async def test_a_chain_at_its_limit_can_be_read_and_not_continued(
    open_store: OpenStore, store: ConversationHistoryStore, redis: Redis, prefix: str, limit: dict[str, int]
) -> None:
    short = open_store(**limit)
    *_, tip = await grow(short, "one", "two")
    before = await dump(redis, prefix)
    with pytest.raises(ChainTooLong, match="too long to continue"):
        await short.chain(TENANT, tip, pin=short.token())
    if "max_depth" in limit:
        with pytest.raises(ChainTooLong, match="too long to continue"):
            await short.append(TENANT, turn(short.new_id(tip), tip))
    assert await dump(redis, prefix) == before
    assert await said(store, tip) == ["one", "two"]


USES: dict[str, Callable[[ConversationHistoryStore, str], Awaitable[Any]]] = {
    "get": lambda store, id: store.get(TENANT, id),
    "chain": lambda store, id: store.chain(TENANT, id),
    "append": lambda store, id: grow(store, "child", parent=id),
}


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


async def test_shards_may_be_added_and_nothing_moves(open_store: OpenStore, redis: Redis, prefix: str) -> None:
    few, more = open_store(shards=1), open_store(shards=5)
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


async def test_a_chain_with_a_hole_is_never_returned_without_it(
    store: ConversationHistoryStore, redis: Redis, prefix: str, open_store: OpenStore
) -> None:
    reader = open_store()  # has seen none of it
    ids = await grow(store, "one", "two", "three")
    key = f"{prefix}:{{00}}:t:{TENANT}:messages:{ids[1][5:]}"
    blob = await redis.get(key)
    await redis.delete(key)
    assert any("messages don't have the length" in each for each in await complaints(redis, prefix))
    with pytest.raises(ParentNotFound):
        await reader.chain(TENANT, ids[-1])
    await redis.set(key, blob)
    assert await said(reader, ids[-1]) == ["one", "two", "three"]


@pytest.fixture
def patient(open_store: OpenStore) -> ConversationHistoryStore:
    """A store that notes a use once a day."""
    return open_store(caps=Caps(idle_seconds=0, touch_seconds=86_400))


async def test_to_read_again_writes_nothing(
    patient: ConversationHistoryStore, store: ConversationHistoryStore, redis: Redis, prefix: str
) -> None:
    (first, inner), (second,) = await grow(patient, "first", "inner"), await grow(patient, "second")
    seen = [await patient.find(TENANT, id) for id in (first, inner)]
    assert list(await scores(redis, prefix, "trees")) == [second, first]
    before = await dump(redis, prefix)
    assert [await patient.find(TENANT, id) for id in (first, inner)] == seen
    assert await dump(redis, prefix) == before
    await store.find(TENANT, second)  # another process, which has noted nothing
    assert list(await scores(redis, prefix, "trees")) == [first, second]


@pytest.mark.parametrize("deletes", ["response", "tree", "store"])
async def test_one_that_is_gone_is_not_found_again(
    patient: ConversationHistoryStore, store: ConversationHistoryStore, deletes: str
) -> None:
    root, tip = await grow(patient, "root", "tip")
    await patient.find(TENANT, tip)
    match deletes:
        case "response":
            await store.forget(TENANT, tip)
        case "tree":
            await store.forget_tree(TENANT, root)
        case _:
            store.caps = Caps(responses=1)
            await grow(store, "another")
    with pytest.raises(NotFound):
        await patient.find(TENANT, tip)


TEXTS = [b"{}", *(text.hex().encode() for text in Samples(5).blobs(4)), b"{}"]
PACKINGS = [codec.PLAIN, *[codec.ZSTD] * 4, codec.PLAIN]


async def test_a_chain_of_all_packings_is_read_as_it_was_written(
    store: ConversationHistoryStore, redis: Redis, prefix: str
) -> None:
    ids: list[str] = []
    for text in TEXTS:
        parent = ids[-1] if ids else None
        ids.append(store.new_id(parent))
        await store.append(TENANT, Turn(ids[-1], parent, Status.COMPLETED, (), text, b"[%b]" % text))
    blobs = [await redis.get(store.keyspace.turn(TENANT, id).key("response")) for id in ids]
    assert [blob[1] for blob in blobs] == PACKINGS
    assert [await store.get(TENANT, id) for id in ids] == TEXTS
    told = [(text, b"[%b]" % text) for text in TEXTS]
    assert await store.items(TENANT, ids) == told
    sizes = [codec.response_size(blob) for blob in blobs]
    for count in range(1, len(ids) + 1):
        assert await store.items(TENANT, ids, most_bytes=sum(sizes[:count])) == told[:count]
        assert await store.items(TENANT, ids, most_bytes=sum(sizes[:count]) - 1) == told[: max(1, count - 1)]
