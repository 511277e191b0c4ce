"""A tenant's trees, in the order of their last use, over all shards; and the turns of one, however large it is."""

import random

import pytest
from redis.asyncio import Redis

from store.history.caps import Caps
from store.history.history import ConversationHistoryStore
from store.history.listing import ScoredDigits, Tree, TreeListing
from store.history.tree_turns import SHOWN_BYTES, shown_of, turns_of
from store.turn import Status, Turn
from tests.support.store.fixtures import OpenStore
from tests.support.store.sample import TENANT, grow, set_use

OTHER = "other"


@pytest.fixture
def wide(open_store: OpenStore) -> ConversationHistoryStore:
    return open_store(shards=5)


async def all_of(
    store: ConversationHistoryStore, tenant: str = TENANT, *, after: ScoredDigits | None = None, at_once: int = 7
) -> list[Tree]:
    listing, found = TreeListing(store, tenant, after=after), []
    while some := await listing.some(at_once):
        found += [tree for _, tree in some if tree is not None]
    return found


async def test_trees_of_all_shards_stand_in_the_order_of_their_last_use(wide: ConversationHistoryStore) -> None:
    ids = [(await grow(wide, "one"))[0] for _ in range(60)]
    await grow(wide, "theirs", tenant=OTHER)
    for id in ids[10:20]:
        await wide.get(TENANT, id)
    wanted = [*reversed(ids[10:20]), *reversed(ids[20:]), *reversed(ids[:10])]
    assert [tree.id for tree in await all_of(wide)] == wanted
    assert [tree.id for tree in await all_of(wide, at_once=100)] == wanted


async def test_a_page_goes_on_behind_a_place_whatever_was_used_or_deleted_meanwhile(
    wide: ConversationHistoryStore,
) -> None:
    ids = [(await grow(wide, "one"))[0] for _ in range(30)]
    listing = TreeListing(wide, TENANT)
    first = await listing.some(10)
    (place, _) = first[-1]
    await wide.get(TENANT, ids[3])
    await wide.forget_tree(TENANT, ids[20])  # where the page ended
    rest = [tree.id for tree in await all_of(wide, after=place)]
    assert rest == [id for id in reversed(ids[:20]) if id != ids[3]]
    assert not {tree.id for _, tree in first if tree}.intersection(rest)


async def test_trees_that_are_forgotten_or_idle_are_not_listed(
    store: ConversationHistoryStore, redis: Redis, prefix: str, open_store: OpenStore
) -> None:
    old, new = [(await grow(store, "one"))[0] for _ in range(2)]
    seconds, _ = await redis.time()
    await set_use(redis, prefix, (seconds - 2000) * 1_000_000, old)
    strict = open_store(caps=Caps(idle_seconds=1000.0))
    assert [tree.id for tree in await all_of(strict)] == [new]
    assert [place.known for place, _ in await TreeListing(strict, TENANT).some(5)] == [True, False]
    await store.get(TENANT, old)


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
