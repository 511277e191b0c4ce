"""A tenant's trees: all, in the order of their last use, over all shards, whatever happens between two pages."""

from collections.abc import AsyncIterator

import pytest
from redis.asyncio import Redis

from store.history.caps import Caps
from store.history.conversations import Conversations
from store.history.history import ConversationHistoryStore
from store.history.listing import ScoredDigits, Tree, TreeListing
from store.jobs.jobs import Jobs
from store.jobs.log import Entry
from store.keys import digits_of
from store.redis.connection import connect
from store.turn import Status
from tests.support.store.audit import dump
from tests.support.store.sample import TENANT, grow, set_use, turn

OTHER = "other"
SHARDS = 5


@pytest.fixture
async def wide(server_url: str, prefix: str) -> AsyncIterator[ConversationHistoryStore]:
    """A store of several shards."""
    store = ConversationHistoryStore(connect(server_url), prefix=prefix, shards=SHARDS)
    yield store
    await store.close()


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


async def test_trees_of_the_same_moment_are_listed_once_each(
    store: ConversationHistoryStore, redis: Redis, prefix: str
) -> None:
    ids = [(await grow(store, "one"))[0] for _ in range(20)]
    await set_use(redis, prefix, int(await redis.get(f"{prefix}:{{00}}:clock") or 0), *ids)
    found: list[str] = []
    after: ScoredDigits | None = None
    while some := await TreeListing(store, TENANT, after=after).some(3):
        after = some[-1][0]
        found += [tree.id for _, tree in some if tree is not None]
    assert found == sorted(ids, reverse=True)
    for id in ids:
        await store.get(TENANT, id)


async def test_a_tree_says_how_many_turns_it_has_and_which_is_the_newest(store: ConversationHistoryStore) -> None:
    root, middle, leaf = await grow(store, "root", "middle", "leaf")
    fork, end = await grow(store, "fork", "end", parent=root)
    (alone,) = await grow(store, "alone")
    assert [(tree.id, tree.turns, tree.whole, tree.newest) for tree in await all_of(store)] == [
        (alone, 1, True, alone),
        (root, 5, True, end),
    ]
    await store.get(TENANT, middle)  # no end of the tree
    await store.get(TENANT, leaf)
    assert [(tree.id, tree.newest) for tree in await all_of(store)] == [(root, leaf), (alone, alone)]
    await store.get(TENANT, fork)
    (tree, _) = await all_of(store)
    assert (tree.newest, tree.status, tree.under_way, tree.conversation) == (leaf, "completed", 0, None)


async def test_a_tree_whose_root_was_deleted_is_listed_as_long_as_something_continues_it(
    store: ConversationHistoryStore,
) -> None:
    root, leaf = await grow(store, "root", "leaf")
    await store.forget(TENANT, root)
    assert [(tree.id, tree.turns, tree.newest) for tree in await all_of(store)] == [(root, 2, leaf)]
    await store.forget(TENANT, leaf)
    assert await all_of(store) == []


async def test_trees_that_are_forgotten_or_idle_are_not_listed(
    store: ConversationHistoryStore, redis: Redis, prefix: str, server_url: str
) -> None:
    old, new = [(await grow(store, "one"))[0] for _ in range(2)]
    seconds, _ = await redis.time()
    await set_use(redis, prefix, (seconds - 2000) * 1_000_000, old)
    strict = ConversationHistoryStore(connect(server_url), prefix=prefix, caps=Caps(idle_seconds=1000.0))
    assert [tree.id for tree in await all_of(strict)] == [new]
    assert [place.known for place, _ in await TreeListing(strict, TENANT).some(5)] == [True, False]
    await strict.close()
    await store.get(TENANT, old)


async def test_what_is_under_way_is_counted_and_is_the_newest(store: ConversationHistoryStore) -> None:
    jobs = Jobs(store)
    root, _ = await grow(store, "root", "leaf")
    queued, lone = store.new_id(root), store.new_id()
    for id, parent in ((queued, root), (lone, None)):
        waits = turn(id, parent, status=Status.QUEUED)
        await jobs.submit(TENANT, waits, b"spec", Entry(1, b"events"), streams=True)
    found = {tree.id: (tree.turns, tree.newest, tree.under_way, tree.status) for tree in await all_of(store)}
    assert found == {lone: (1, lone, 1, "queued"), root: (3, queued, 1, "queued")}
    await jobs.claim(0, 2)
    assert {tree.id: tree.under_way for tree in await all_of(store)} == {lone: 1, root: 1}


async def test_a_conversation_is_no_turn_and_is_named_where_it_stands(store: ConversationHistoryStore) -> None:
    conversations = Conversations(store)
    id = conversations.new_id()
    first = turn(conversations.new_turn_id(id))
    await conversations.create(TENANT, id, first, b"{}")
    await conversations.hold(TENANT, id, "run", 60.0)
    made = store.new_id(first.id)
    await conversations.advance(TENANT, id, turn(made, first.id), hold="run")
    (tree,) = await all_of(store)
    assert (tree.id, tree.turns, tree.newest, tree.conversation) == (first.id, 2, made, id)
    assert list(tree.opening) == [digits_of(first.id), digits_of(made)]


async def test_a_tree_with_more_turns_than_are_counted_says_that_there_are_more(
    store: ConversationHistoryStore,
) -> None:
    (root,) = await grow(store, "root")
    for number in range(30):
        await grow(store, *(f"{number} {at}" for at in range(80)), parent=root)
    few = [(await grow(store, "a", "b"))[0] for _ in range(3)]
    await grow(store, "newest", parent=root)
    found = {tree.id: tree for tree in await all_of(store)}
    assert (found[root].turns, found[root].whole) != (2402, True)
    assert 500 < found[root].turns < 2402
    assert all((found[id].turns, found[id].whole) == (2, True) for id in few)


async def test_to_list_is_no_use(store: ConversationHistoryStore, redis: Redis, prefix: str) -> None:
    for _ in range(10):
        await grow(store, "root", "leaf")
    before = await dump(redis, prefix)
    await all_of(store)
    assert await dump(redis, prefix) == before
