"""Several tenants below one cap: who has more than a share gives room, and nobody else.

model.py has the exact victims, on every kind of server; here are the promises.
"""

import asyncio
import random
from collections.abc import Callable
from typing import Any

import pytest

from store.errors import StoreFull
from store.history.history import ConversationHistoryStore
from store.keys import TurnKeys
from store.redis import scripts
from store.redis.connection import Operation
from store.turn import Status, Turn
from tests.support.store.counted import usage
from tests.support.store.sample import TENANT, alive, grow

NOISY, OTHER, THIRD = "noisy", "other", "third"
IMAGE_BYTES = 60_000

OpenStore = Callable[..., ConversationHistoryStore]


async def roots(store: ConversationHistoryStore, tenant: str, count: int) -> list[str]:
    """So many conversations of one turn, one after the other."""
    return [(await grow(store, str(number), tenant=tenant))[0] for number in range(count)]


async def image(store: ConversationHistoryStore, tenant: str, size: int = IMAGE_BYTES) -> str:
    """A turn that can't be compressed."""
    id = store.new_id()
    await store.append(tenant, Turn(id, None, Status.COMPLETED, (), random.randbytes(size)))
    return id


async def test_many_responses_of_one_tenant_take_none_from_another(capped: OpenStore) -> None:
    store = capped(responses=200)
    (theirs,) = await roots(store, OTHER, 1)
    mine = await roots(store, NOISY, 250)
    assert await alive(store, [theirs], OTHER) == [theirs]
    assert await alive(store, mine, NOISY) == mine[-199:]


async def test_many_bytes_of_one_tenant_take_none_from_another(capped: OpenStore) -> None:
    store = capped(bytes=2_000_000)
    theirs = await roots(store, OTHER, 5)
    images = [await image(store, NOISY) for _ in range(60)]
    assert await alive(store, theirs, OTHER) == theirs
    assert (await usage(store)).bytes <= 2_000_000
    left = await alive(store, images, NOISY)
    assert left == images[-len(left) :]
    assert len(left) > 20


async def test_whoever_comes_gets_a_share_from_who_has_most_and_no_more(capped: OpenStore) -> None:
    store = capped(responses=30)
    first, second = await roots(store, NOISY, 25), await roots(store, OTHER, 5)
    third = await roots(store, THIRD, 40)
    assert await alive(store, second, OTHER) == second
    assert await alive(store, first, NOISY) == first[-13:]
    assert await alive(store, third, THIRD) == third[-12:]


async def test_a_tenant_with_no_more_than_its_share_never_gives_room_to_another(capped: OpenStore) -> None:
    chance, store = random.Random(5), capped(responses=40)
    small = {name: await roots(store, name, count) for name, count in (("a", 10), ("b", 4), ("c", 1))}
    for _ in range(150):
        await roots(store, chance.choice((NOISY, NOISY, NOISY, "d")), 1)
    assert {name: await alive(store, ids, name) for name, ids in small.items()} == {
        name: ids if name != "a" else ids[-len(await alive(store, ids, name)) :] for name, ids in small.items()
    }
    assert len(await alive(store, small["a"], "a")) >= 40 // 5


async def test_a_newcomer_is_refused_before_somebody_below_its_share_loses_anything(capped: OpenStore) -> None:
    store = capped(responses=8)
    for id in await roots(store, NOISY, 6):
        await store.chain(NOISY, id, pin=store.token())
    theirs = await roots(store, OTHER, 2)
    with pytest.raises(StoreFull):
        await roots(store, THIRD, 1)
    assert await alive(store, theirs, OTHER) == theirs


async def test_behind_a_hundred_tenants_that_are_passed_over_the_one_that_stores_gives_its_own(
    capped: OpenStore,
) -> None:
    store = capped(responses=130 * 3 + 1)
    for number in range(130):
        for id in await roots(store, f"pinned-{number}", 3):
            await store.chain(f"pinned-{number}", id, pin=store.token())
    mine = await roots(store, THIRD, 1)
    (new,) = await roots(store, THIRD, 1)
    assert await alive(store, [*mine, new], THIRD) == [new]
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
    assert await alive(store, [free], OTHER) == []
    assert await alive(store, [new], THIRD) == [new]


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
    assert await alive(store, [new], THIRD) == [new]
    assert (await usage(store)).responses == 550
    assert max(told) == 150


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
    assert await alive(store, mine, NOISY) == mine[1:]
    assert (await usage(store)).trees == 620
