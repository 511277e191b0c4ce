"""The turns of a tree, each once and with its parent, however large the tree is; and what a tenant has under way."""

import random
import time

from redis.asyncio import Redis

from store.history.history import ConversationHistoryStore
from store.history.tree_turns import SHOWN_BYTES, shown_of, turns_of
from store.turn import Status, Turn
from tests.support.store.audit import dump
from tests.support.store.sample import TENANT, grow

SECONDS_OF_A_THOUSAND = 1.0
"""Many times what our own part of it takes on a quiet machine."""


async def parents(store: ConversationHistoryStore, id: str, **bounds: int) -> dict[str, str | None]:
    found = await turns_of(store, TENANT, id, **bounds)
    assert len({node.digits for node in found.nodes}) == len(found.nodes)
    return {node.id: node.parent and f"resp_{node.parent}" for node in found.nodes}


async def test_trees_of_any_shape_are_told_whole(store: ConversationHistoryStore) -> None:
    for seed in range(8):
        chance = random.Random(seed)
        (root,) = await grow(store, "root")
        wanted: dict[str, str | None] = {root: None}
        for number in range(chance.choice([1, 30, 150])):
            reach = chance.choice([1, 3, 1000])
            parent = chance.choice(list(wanted)[-reach:])
            (id,) = await grow(store, str(number), parent=parent)
            wanted[id] = parent
        assert await parents(store, chance.choice(list(wanted))) == wanted


async def test_what_is_stored_of_turns_is_read_some_at_a_time(store: ConversationHistoryStore) -> None:
    ids = await grow(store, *map(str, range(230)))
    await store.forget(TENANT, ids[3])
    found = await turns_of(store, TENANT, ids[-1])
    sizes = {node.digits: node.size for node in found.nodes}
    shown = {f"resp_{each}": (response, items) async for each, response, items in shown_of(store, TENANT, sizes)}
    assert shown == {id: (b'{"text":"%d"}' % at, b'["%d"]' % at) for at, id in enumerate(ids) if at != 3}


async def test_what_is_too_large_or_of_a_later_release_is_left_out(
    store: ConversationHistoryStore, redis: Redis
) -> None:
    small, newer, last = await grow(store, "small", "newer", "last")
    large = store.new_id(last)
    stored = Turn(large, last, Status.COMPLETED, (), b'{"text":"%s"}' % (b"x" * SHOWN_BYTES))
    await store.append(TENANT, stored)  # which is small as it is stored
    key = store.keyspace.turn(TENANT, newer).key("response")
    await redis.setrange(key, 0, b"\x63")
    sizes = {node.digits: node.size for node in (await turns_of(store, TENANT, small)).nodes}
    assert max(sizes.values()) < SHOWN_BYTES / 100

    async def shown(most_bytes: int) -> list[str]:
        return [f"resp_{each}" async for each, *_ in shown_of(store, TENANT, sizes, most_bytes=most_bytes)]

    assert await shown(1_000) == [small, last]
    assert await shown(80) == [small]


async def test_a_thousand_turns_are_told_and_read_in_no_time_and_by_that_not_used(
    store: ConversationHistoryStore, redis: Redis, prefix: str
) -> None:
    ids = await grow(store, *map(str, range(500)))
    await grow(store, *map(str, range(500)), parent=ids[250])
    before = await dump(redis, prefix)
    began = time.thread_time()
    found = await turns_of(store, TENANT, ids[0])
    count = len([each async for each in shown_of(store, TENANT, {node.digits: node.size for node in found.nodes})])
    assert time.thread_time() - began < SECONDS_OF_A_THOUSAND
    assert (len(found.nodes), count) == (1_000, 1_000)
    assert await dump(redis, prefix) == before
