"""Turns taken out one by one and brought back: the same tree, with its tokens and ids, as a new use of it."""

import asyncio
import random
from contextlib import suppress

import pytest
from redis.asyncio import Redis

from store.backup.records import Saved
from store.backup.turns import Brought, bring_back, look_up, take_out
from store.errors import NotFound, ParentNotFound, StoreFull
from store.history.caps import Caps
from store.history.history import ConversationHistoryStore
from store.history.tree_turns import turns_of
from tests.support.store.audit import dump
from tests.support.store.backups import mixed, nodes
from tests.support.store.fixtures import OpenStore
from tests.support.store.sample import TENANT, grow, said
from tests.support.store.verdict import faults

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


@pytest.mark.usefixtures("lost_replies")
async def test_a_reply_that_was_lost_stores_nothing_twice(
    store: ConversationHistoryStore, second: ConversationHistoryStore
) -> None:
    ids = await grow(store, "a", "b")
    assert await moved(store, second, ids[1]) == [KEPT, KEPT]  # the first time nobody heard that they were new
    assert await said(second, ids[1]) == ["a", "b"]


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


async def test_a_tree_is_brought_back_by_many_while_others_delete_and_erase_it(
    store: ConversationHistoryStore, redis: Redis, open_store: OpenStore, server_url: str, prefix: str
) -> None:
    own, chance = f"{prefix}-3", random.Random(18)
    small = open_store(own, caps=Caps(responses=12), cache_bytes=1 << 20, timeout_seconds=30)
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
