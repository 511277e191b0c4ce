"""Turns taken out one by one and brought back: the same tree, with its tokens and ids, as a new use of it."""

import asyncio
import random
from collections.abc import Callable
from contextlib import suppress

import pytest
from redis.asyncio import Redis

from store.backup.records import Saved
from store.backup.turns import Brought, bring_back, look_up, take_out
from store.errors import Conflict, NotFound, NotTerminal, ParentNotFound, StoreFull
from store.history.caps import Caps
from store.history.conversations import Conversations
from store.history.history import ConversationHistoryStore
from store.history.tree_turns import turns_of
from store.jobs.jobs import Jobs
from store.redis.connection import connect
from store.turn import Messages
from tests.support.store.audit import dump
from tests.support.store.backups import mixed, nodes
from tests.support.store.sample import TENANT, grow, said, set_use, turn
from tests.support.store.verdict import faults
from tests.support.store.work import submit

NEW, KEPT, DELETED = Brought.NEW, Brought.KEPT, Brought.DELETED


async def out(store: ConversationHistoryStore, id: str, tenant: str = TENANT) -> Saved:
    """A turn, taken out."""
    return await take_out(tenant, await look_up(store, tenant, id))


async def moved(one: ConversationHistoryStore, other: ConversationHistoryStore, id: str) -> list[Brought]:
    """Bring the tree of a turn from one store to another; what became of each turn there."""
    tree = await turns_of(one, TENANT, id)
    return [await bring_back(other, TENANT, await out(one, node.id)) for node in tree.nodes]


async def test_what_comes_back_is_what_was_taken_out(
    store: ConversationHistoryStore, second: ConversationHistoryStore, prefix: str, redis: Redis
) -> None:
    ids = await mixed(store)
    before = await dump(redis, prefix)
    for name in ("tip", "alone", "kept"):
        assert set(await moved(store, second, ids[name])) == {NEW}
    assert await dump(redis, prefix) == before  # to be taken out changes nothing
    there = {key: node for key, node in (await nodes(redis, f"{prefix}:")).items() if f":{TENANT}:" in key}
    back = await nodes(redis, f"{prefix}-2:")
    for node in (*there.values(), *back.values()):
        del node[b"touched"]
    assert back == there
    assert await said(second, ids["tip"]) == ["a", "b", "d"]
    assert set(await moved(store, second, ids["tip"])) == {KEPT}
    with pytest.raises(NotFound):
        await second.get(TENANT, ids["tombstone"])


async def test_a_conversation_comes_back_where_it_stood(
    store: ConversationHistoryStore, second: ConversationHistoryStore
) -> None:
    conversations = Conversations(store)
    id = conversations.new_id()
    root = turn(conversations.first_turn_id(id), text="hello")
    await conversations.create(TENANT, id, root, b'{"metadata":{}}')
    (behind,) = await grow(store, "next", parent=root.id)
    assert await moved(store, second, id) == [NEW, NEW, NEW]
    there = Conversations(second)
    assert await there.get(TENANT, id) == await conversations.get(TENANT, id)
    assert list(await there.lineage(TENANT, id)) == [root.id]
    assert await said(second, behind) == ["hello", "next"]


async def test_what_is_brought_back_is_used_now_and_evicts_what_was_used_least(
    store: ConversationHistoryStore, server_url: str, prefix: str
) -> None:
    small = ConversationHistoryStore(connect(server_url), prefix=f"{prefix}-3", caps=Caps(responses=3))
    old = await grow(small, "a", "b", "c")
    brought = await grow(store, "d", "e")
    assert await moved(store, small, brought[1]) == [NEW, NEW]
    assert await said(small, brought[1]) == ["d", "e"]
    assert await said(small, old[0]) == ["a"]
    for gone in old[1:]:
        with pytest.raises(NotFound):
            await small.get(TENANT, gone)
    await small.close()


@pytest.mark.usefixtures("lost_replies")
async def test_a_reply_that_was_lost_stores_nothing_twice(
    store: ConversationHistoryStore, second: ConversationHistoryStore
) -> None:
    ids = await grow(store, "a", "b")
    assert await moved(store, second, ids[1]) == [KEPT, KEPT]  # the first time nobody heard that they were new
    assert await said(second, ids[1]) == ["a", "b"]


async def test_what_can_not_be_taken_out_or_brought_back_says_why(
    store: ConversationHistoryStore, second: ConversationHistoryStore, server_url: str, prefix: str
) -> None:
    ids = await grow(store, "a", "b")
    taken = await out(store, ids[1])
    with pytest.raises(ParentNotFound):
        await bring_back(second, TENANT, taken)
    with pytest.raises(ParentNotFound):
        await bring_back(store, "another", taken)
    with pytest.raises(NotFound):
        await out(store, ids[1], "another")
    with pytest.raises(NotFound):
        await out(store, "resp_" + "0" * 48)
    await second.append(TENANT, turn(ids[0], text="another one"))
    with pytest.raises(Conflict):
        await bring_back(second, TENANT, await out(store, ids[0]))
    jobs = Jobs(store)
    under_way = await submit(jobs, parent=ids[1])
    with pytest.raises(NotTerminal):
        await out(store, under_way)
    await jobs.cancel(TENANT, under_way)
    tiny = ConversationHistoryStore(connect(server_url), prefix=f"{prefix}-3", caps=Caps(bytes=10))
    with pytest.raises(StoreFull):
        await bring_back(tiny, TENANT, await out(store, ids[0]))
    await tiny.close()


IDLE = Caps(idle_seconds=1000.0)
LONG_AGO = 1.0


async def test_what_was_not_used_for_too_long_is_not_taken_out(
    store: ConversationHistoryStore, server_url: str, redis: Redis, prefix: str
) -> None:
    strict = ConversationHistoryStore(connect(server_url), prefix=prefix, caps=IDLE)
    ids = await grow(store, "a", "b")
    await set_use(redis, prefix, LONG_AGO, ids[0])
    for id in ids:
        with pytest.raises(NotFound):
            await strict.get(TENANT, id)
        with pytest.raises(NotFound):
            await out(strict, id)
    await strict.close()


async def test_who_brings_back_what_is_there_uses_its_tree(
    store: ConversationHistoryStore, server_url: str, redis: Redis, prefix: str
) -> None:
    strict = ConversationHistoryStore(connect(server_url), prefix=prefix, caps=IDLE)
    ids = await grow(store, "a", "b", "c")
    taken = [await out(store, id) for id in ids]
    for some in (taken, taken[:1], taken[2:]):
        await set_use(redis, prefix, LONG_AGO, ids[0])
        assert [await bring_back(strict, TENANT, each) for each in some] == [KEPT] * len(some)
        assert await said(strict, ids[-1]) == ["a", "b", "c"]
    await strict.close()


async def test_what_is_brought_back_of_a_tree_that_is_being_removed_is_new(
    store: ConversationHistoryStore, redis: Redis, prefix: str
) -> None:
    ids = await grow(store, "a", "b", "c")
    taken = [await out(store, id) for id in ids]
    await set_use(redis, prefix, 0, ids[0])  # forgotten, and nobody has removed it yet
    with pytest.raises(NotFound):
        await out(store, ids[1])
    assert [await bring_back(store, TENANT, each) for each in taken[:2]] == [NEW, NEW]
    assert await said(store, ids[1]) == ["a", "b"]
    with pytest.raises(NotFound):
        await store.get(TENANT, ids[2])


@pytest.mark.parametrize("erase", [False, True])
async def test_what_was_deleted_and_is_continued_stays_deleted_whoever_brings_it_back(
    store: ConversationHistoryStore, redis: Redis, prefix: str, erase: bool
) -> None:
    ids = await grow(store, "a", "b", "c")
    taken = [await out(store, id) for id in ids]
    await store.forget(TENANT, ids[0], erase=erase)
    before = await nodes(redis, f"{prefix}:")
    assert [await bring_back(store, TENANT, each) for each in taken] == [DELETED, KEPT, KEPT]
    assert await nodes(redis, f"{prefix}:") == before
    with pytest.raises(NotFound):
        await store.get(TENANT, ids[0])
    assert await bring_back(store, TENANT, await out(store, ids[0])) is KEPT  # as it is by now, which is deleted
    await store.forget_tree(TENANT, ids[2])
    assert [await bring_back(store, TENANT, each) for each in taken] == [NEW, NEW, NEW]
    assert await said(store, ids[2]) == ["a", "b", "c"]


async def test_items_can_be_taken_out_of_a_turn_that_came_back(
    store: ConversationHistoryStore, second: ConversationHistoryStore
) -> None:
    (id,) = await grow(store, "a")

    def left(*said: bytes) -> Callable[[Messages, bytes, bytes], tuple[Messages, bytes, bytes]]:
        return lambda messages, *_: (messages, *said)

    await store.redact(TENANT, id, left(b'{"left":1}', b"[]"))
    assert await moved(store, second, id) == [NEW]
    await second.redact(TENANT, id, left(b'{"left":0}', b"[]"))
    assert await second.get(TENANT, id) == b'{"left":0}'


async def test_a_tree_is_brought_back_by_many_while_others_delete_and_erase_it(
    store: ConversationHistoryStore, redis: Redis, server_url: str, prefix: str
) -> None:
    own, chance = f"{prefix}-3", random.Random(18)
    small = ConversationHistoryStore(
        connect(server_url), prefix=own, caps=Caps(responses=12), cache_bytes=1 << 20, timeout_seconds=30
    )
    ids = await grow(store, *"abcdef")
    for id in ids[:5]:
        await grow(store, "f", "g", parent=id)
    await store.forget(TENANT, ids[2])
    await store.forget(TENANT, ids[4], erase=True)
    tree = await turns_of(store, TENANT, ids[-1])
    taken = [await out(store, node.id) for node in tree.nodes]

    async def bring(turns: list[Saved]) -> None:
        for each in turns:
            with suppress(ParentNotFound, StoreFull):
                await bring_back(small, TENANT, each)

    async def harm() -> None:
        for _ in range(30):
            id = chance.choice(taken).id
            with suppress(NotFound, ParentNotFound):
                match chance.randrange(4):
                    case 0:
                        await small.forget_tree(TENANT, id)
                    case 1:
                        await small.forget(TENANT, id, erase=chance.random() < 0.5)
                    case _:
                        await small.chain(TENANT, id)

    in_any_order = (chance.sample(taken, len(taken)) for _ in range(10))
    await asyncio.gather(*map(bring, [taken] * 10), *map(bring, in_any_order), *(harm() for _ in range(4)))
    assert await faults(redis, server_url, own) == []
    await small.close()


async def test_what_was_cached_before_is_not_mixed_with_what_came_back(
    store: ConversationHistoryStore, server_url: str, prefix: str
) -> None:
    other = ConversationHistoryStore(connect(server_url), prefix=prefix, cache_bytes=1 << 20)
    ids = await grow(other, "a", "b")
    whole = [await out(other, id) for id in ids]
    assert await said(other, ids[1]) == ["a", "b"]
    await store.forget(TENANT, ids[0], erase=True)
    erased = [await out(store, id) for id in ids]
    for turns, texts in ((erased, ["b"]), (whole, ["a", "b"]), (erased, ["b"])):
        await store.forget_tree(TENANT, ids[1])
        assert [await bring_back(store, TENANT, each) for each in turns] == [NEW, NEW]
        assert await said(other, ids[1]) == await said(store, ids[1]) == texts
    await other.close()
