"""A tenant's trees: all, in the order of their last use, over all shards, whatever happens between two pages."""

import pytest
from redis.asyncio import Redis

from store.history.caps import Caps
from store.history.history import ConversationHistoryStore
from store.history.listing import ScoredDigits, Tree, TreeListing
from tests.store.conftest import OpenStore
from tests.support.store.sample import TENANT, grow, set_use

OTHER = "other"


@pytest.fixture
def wide(open_store: OpenStore) -> ConversationHistoryStore:
    """A store of several shards."""
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
