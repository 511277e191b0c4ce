"""The turns of a tree: each once, with its parent, however large the tree is and whichever id one has of it."""

import random
import time

import pytest
from redis.asyncio import Redis

from store.errors import ConversationNotFound, NotFound
from store.history.conversations import Conversations
from store.history.history import ConversationHistoryStore
from store.history.tree_turns import SHOWN_BYTES, shown_of, turns_of
from store.jobs.jobs import Jobs
from store.jobs.log import Entry
from store.turn import Status, Turn
from tests.support.store.audit import dump
from tests.support.store.sample import TENANT, grow, turn

SECONDS_OF_A_THOUSAND = 1.0
"""Many times what our own part of it takes on a quiet machine."""


async def parents(store: ConversationHistoryStore, id: str, **bounds: int) -> dict[str, str | None]:
    found = await turns_of(store, TENANT, id, **bounds)
    assert len({node.digits for node in found.nodes}) == len(found.nodes)
    return {node.id: node.parent and f"resp_{node.parent}" for node in found.nodes}


async def test_a_tree_is_told_by_any_of_its_ids(store: ConversationHistoryStore) -> None:
    root, middle, leaf = await grow(store, "root", "middle", "leaf")
    (fork,) = await grow(store, "fork", parent=root)
    await grow(store, "other tree")
    wanted = {root: None, middle: root, fork: root, leaf: middle}
    for id in (root, middle, leaf, fork):
        assert await parents(store, id) == wanted
    found = await turns_of(store, TENANT, leaf)
    assert (found.id, found.whole) == (root, True)
    assert [(node.depth, node.children, node.status) for node in found.nodes] == [
        (1, 2, "completed"),
        (2, 1, "completed"),
        (2, 0, "completed"),
        (3, 0, "completed"),
    ]


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


async def test_a_large_tree_is_walked_in_many_calls_and_told_up_to_a_bound(store: ConversationHistoryStore) -> None:
    (root,) = await grow(store, "root")
    branches = [await grow(store, *(str(at) for at in range(60)), parent=root) for _ in range(25)]
    whole = await turns_of(store, TENANT, root)
    assert (len(whole.nodes), whole.whole) == (1 + 25 * 60, True)
    some = await turns_of(store, TENANT, root, most=130)
    assert (len(some.nodes), some.whole) == (130, False)
    told = {node.id for node in some.nodes}
    assert told >= {*branches[-1], *branches[-2]}  # the newest ones


async def test_what_is_deleted_stays_as_a_turn_and_is_no_way_to_its_tree(store: ConversationHistoryStore) -> None:
    root, middle, leaf = await grow(store, "root", "middle", "leaf")
    await store.forget(TENANT, middle)
    await store.forget(TENANT, root)
    found = await turns_of(store, TENANT, leaf)
    assert [(node.id, node.deleted) for node in found.nodes] == [(root, True), (middle, True), (leaf, False)]
    assert (await turns_of(store, TENANT, root)).nodes == found.nodes  # by that a tree is called
    with pytest.raises(NotFound):
        await turns_of(store, TENANT, middle)


async def test_a_tree_of_another_tenant_or_of_nobody_is_not_found(store: ConversationHistoryStore) -> None:
    (root,) = await grow(store, "root")
    with pytest.raises(NotFound):
        await turns_of(store, "other", root)
    with pytest.raises(NotFound):
        await turns_of(store, TENANT, store.new_id())
    with pytest.raises(NotFound):
        await turns_of(store, TENANT, "resp_nonsense")
    with pytest.raises(ConversationNotFound):
        await turns_of(store, TENANT, "conv_nonsense")
    await store.forget_tree(TENANT, root)
    with pytest.raises(NotFound):
        await turns_of(store, TENANT, root)


async def test_what_is_under_way_and_a_conversation_are_in_the_tree(store: ConversationHistoryStore) -> None:
    conversations, jobs = Conversations(store), Jobs(store)
    conversation = conversations.new_id()
    first = turn(conversations.new_turn_id(conversation))
    await conversations.create(TENANT, conversation, first, b"{}")
    queued = store.new_id(first.id)
    waits = turn(queued, first.id, status=Status.QUEUED)
    await jobs.submit(TENANT, waits, b"spec", Entry(1, b"events"), streams=True)
    for id in (conversation, queued):
        found = await turns_of(store, TENANT, id)
        assert {(node.id, node.is_conversation) for node in found.nodes} == {
            (first.id, False),
            (conversation, True),
            (queued, False),
        }


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
