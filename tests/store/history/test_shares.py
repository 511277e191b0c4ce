"""Several tenants below one cap: who has more than a share gives room, and nobody else.

model.py has the exact victims, on every kind of server; here are the promises.
"""

import asyncio
import random
from collections.abc import AsyncIterator, Callable
from typing import Any

import pytest
from redis.asyncio import Redis

from store.errors import NotFound, StoreFull
from store.history.caps import Caps
from store.history.history import ConversationHistoryStore
from store.keys import TurnKeys
from store.redis import scripts
from store.redis.connection import Operation, connect
from store.turn import Status, Turn
from tests.support.store.audit import complaints
from tests.support.store.counted import usage
from tests.support.store.sample import TENANT, grow

NOISY, OTHER, THIRD = "noisy", "other", "third"
IMAGE_BYTES = 60_000

OpenStore = Callable[..., ConversationHistoryStore]


@pytest.fixture
async def capped(server_url: str, redis: Redis, prefix: str) -> AsyncIterator[OpenStore]:
    """Makes stores with caps over one prefix. After the test all keys must belong to stored turns, and add up."""
    stores: list[ConversationHistoryStore] = []

    def make(**caps: int) -> ConversationHistoryStore:
        limits = Caps(**{"responses": 0, "bytes": 0, "idle_seconds": 0} | caps)
        stores.append(ConversationHistoryStore(connect(server_url), prefix=prefix, caps=limits))
        return stores[-1]

    yield make
    for store in stores:
        await store.close()
    assert await complaints(redis, prefix) == []


async def roots(store: ConversationHistoryStore, tenant: str, count: int) -> list[str]:
    """So many conversations of one turn, one after the other."""
    return [(await grow(store, str(number), tenant=tenant))[0] for number in range(count)]


async def alive(store: ConversationHistoryStore, tenant: str, ids: list[str]) -> list[str]:
    """Those of `ids` that are known; nothing is touched."""
    found: list[str] = []
    for id in ids:
        try:
            await store.lineage(tenant, id)
        except NotFound:
            continue
        found.append(id)
    return found


async def image(store: ConversationHistoryStore, tenant: str, size: int = IMAGE_BYTES) -> str:
    """A turn that can't be compressed."""
    id = store.new_id()
    await store.append(tenant, Turn(id, None, Status.COMPLETED, (), random.randbytes(size)))
    return id


async def test_many_responses_of_one_tenant_take_none_from_another(capped: OpenStore) -> None:
    store = capped(responses=200)
    (theirs,) = await roots(store, OTHER, 1)
    mine = await roots(store, NOISY, 250)
    assert await alive(store, OTHER, [theirs]) == [theirs]
    assert await alive(store, NOISY, mine) == mine[-199:]


async def test_many_bytes_of_one_tenant_take_none_from_another(capped: OpenStore) -> None:
    store = capped(bytes=2_000_000)
    theirs = await roots(store, OTHER, 5)
    images = [await image(store, NOISY) for _ in range(60)]
    assert await alive(store, OTHER, theirs) == theirs
    assert (await usage(store)).bytes <= 2_000_000
    left = await alive(store, NOISY, images)
    assert left == images[-len(left) :]
    assert len(left) > 20


async def test_many_trees_of_one_tenant_take_none_from_another(capped: OpenStore) -> None:
    store = capped(trees=10)
    theirs = await grow(store, "one", "two", tenant=OTHER)
    mine = await roots(store, NOISY, 30)
    assert await alive(store, OTHER, theirs) == theirs
    assert await alive(store, NOISY, mine) == mine[-9:]


async def test_one_tenant_alone_may_have_all_and_gives_what_it_used_least(capped: OpenStore) -> None:
    store = capped(responses=20)
    ids = await roots(store, NOISY, 20)
    used = random.sample(ids, 5)
    for id in used:
        await store.get(NOISY, id)
    ids += await roots(store, NOISY, 15)
    assert set(await alive(store, NOISY, ids)) == {*used, *ids[20:]}


async def test_whoever_comes_gets_a_share_from_who_has_most_and_no_more(capped: OpenStore) -> None:
    store = capped(responses=30)
    first, second = await roots(store, NOISY, 25), await roots(store, OTHER, 5)
    third = await roots(store, THIRD, 40)
    assert await alive(store, OTHER, second) == second
    assert await alive(store, NOISY, first) == first[-13:]
    assert await alive(store, THIRD, third) == third[-12:]


async def test_a_tenant_with_no_more_than_its_share_never_gives_room_to_another(capped: OpenStore) -> None:
    chance, store = random.Random(5), capped(responses=40)
    small = {name: await roots(store, name, count) for name, count in (("a", 10), ("b", 4), ("c", 1))}
    for _ in range(150):
        await roots(store, chance.choice((NOISY, NOISY, NOISY, "d")), 1)
    assert {name: await alive(store, name, ids) for name, ids in small.items()} == {
        name: ids if name != "a" else ids[-len(await alive(store, name, ids)) :] for name, ids in small.items()
    }
    assert len(await alive(store, "a", small["a"])) >= 40 // 5


async def test_where_all_of_who_has_most_has_to_stay_the_next_one_over_its_share_gives_room(capped: OpenStore) -> None:
    store = capped(responses=10)
    pinned = await roots(store, NOISY, 5)
    for id in pinned:
        await store.chain(NOISY, id, pin=store.token())
    others, (few,) = await roots(store, OTHER, 4), await roots(store, THIRD, 1)
    (new,) = await roots(store, THIRD, 1)
    assert await alive(store, NOISY, pinned) == pinned
    assert await alive(store, OTHER, others) == others[1:]
    assert await alive(store, THIRD, [few, new]) == [few, new]


async def test_where_nobody_over_its_share_can_give_room_a_tenant_gives_its_own(capped: OpenStore) -> None:
    store = capped(responses=9)
    for id in await roots(store, NOISY, 6):
        await store.chain(NOISY, id, pin=store.token())
    theirs = await roots(store, OTHER, 2)
    (old,) = await roots(store, THIRD, 1)
    (new,) = await roots(store, THIRD, 1)
    assert await alive(store, OTHER, theirs) == theirs
    assert await alive(store, THIRD, [old, new]) == [new]


async def test_a_newcomer_is_refused_before_somebody_below_its_share_loses_anything(capped: OpenStore) -> None:
    store = capped(responses=8)
    for id in await roots(store, NOISY, 6):
        await store.chain(NOISY, id, pin=store.token())
    theirs = await roots(store, OTHER, 2)
    with pytest.raises(StoreFull):
        await roots(store, THIRD, 1)
    assert await alive(store, OTHER, theirs) == theirs


async def test_many_tenants_whose_turns_all_have_to_stay_are_passed_over(capped: OpenStore) -> None:
    store = capped(responses=90)
    for number in range(20):
        for id in await roots(store, f"pinned-{number}", 4):
            await store.chain(f"pinned-{number}", id, pin=store.token())
    free = await roots(store, OTHER, 10)
    (new,) = await roots(store, THIRD, 1)
    assert await alive(store, OTHER, free) == free[1:]
    assert await alive(store, THIRD, [new]) == [new]


async def test_behind_a_hundred_tenants_that_are_passed_over_the_one_that_stores_gives_its_own(
    capped: OpenStore,
) -> None:
    store = capped(responses=130 * 3 + 1)
    for number in range(130):
        for id in await roots(store, f"pinned-{number}", 3):
            await store.chain(f"pinned-{number}", id, pin=store.token())
    mine = await roots(store, THIRD, 1)
    (new,) = await roots(store, THIRD, 1)
    assert await alive(store, THIRD, [*mine, new]) == [new]
    with pytest.raises(StoreFull):
        await roots(store, OTHER, 1)


async def test_many_leaves_that_have_to_stay_are_passed_over_some_at_a_time(capped: OpenStore) -> None:
    plenty = capped()
    for tenant in (NOISY, OTHER):
        for id in await asyncio.gather(*(image(plenty, tenant, 100) for _ in range(700))):
            await plenty.chain(tenant, id, pin=plenty.token())
    (free,) = await roots(plenty, OTHER, 1)
    store = capped(responses=1401)
    (new,) = await roots(store, THIRD, 1)
    assert await alive(store, OTHER, [free]) == []
    assert await alive(store, THIRD, [new]) == [new]


async def test_what_is_told_of_tenants_whose_oldest_leaves_stay_has_a_limit(
    capped: OpenStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    plenty, told = capped(), [0]
    for number in range(450):
        (pinned,) = await roots(plenty, f"tenant-{number}", 1)
        await plenty.chain(f"tenant-{number}", pinned, pin=plenty.token())
        await roots(plenty, f"tenant-{number}", 1)
    evict = scripts.evict

    async def noted(operation: Operation, turn: TurnKeys, **values: Any) -> scripts.Reply:
        told.append(len(values["stays"].split()))
        return await evict(operation, turn, **values)

    monkeypatch.setattr(scripts, "evict", noted)
    store = capped(responses=550)
    (new,) = await roots(store, THIRD, 1)
    assert await alive(store, THIRD, [new]) == [new]
    assert (await usage(store)).responses == 550
    assert max(told) == 150


async def test_of_tenants_with_as_much_the_one_that_used_it_least_recently_gives_room(capped: OpenStore) -> None:
    store = capped(responses=6)
    ids = {name: await roots(store, name, 2) for name in ("c", "a", "b")}
    for id in ids["c"]:
        await store.get("c", id)
    await roots(store, THIRD, 1)
    assert {name: len(await alive(store, name, each)) for name, each in ids.items()} == {"c": 2, "a": 1, "b": 2}


async def test_hundreds_of_tenants_with_one_turn_each_make_room_for_the_next(capped: OpenStore) -> None:
    store = capped(responses=100)
    for number in range(250):
        await roots(store, f"tenant-{number}", 1)
    assert (await usage(store)).responses == 100
    assert (await usage(store, "tenant-249")).responses == 1


async def test_a_tree_behind_many_of_tenants_below_their_share_is_found(capped: OpenStore) -> None:
    plenty = capped()
    for number in range(60):
        await roots(plenty, f"tenant-{number}", 10)
    mine = await roots(plenty, NOISY, 20)
    store = capped(trees=620)
    await roots(store, TENANT, 1)
    assert await alive(store, NOISY, mine) == mine[1:]
    assert (await usage(store)).trees == 620


@pytest.mark.usefixtures("lost_replies")
async def test_shares_hold_though_every_reply_is_lost(capped: OpenStore) -> None:
    store = capped(responses=12)
    theirs = await roots(store, OTHER, 3)
    await roots(store, NOISY, 20)
    assert await alive(store, OTHER, theirs) == theirs
    assert (await usage(store)).responses == 12
