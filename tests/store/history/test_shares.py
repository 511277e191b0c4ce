"""Several tenants below one cap: who has more than a share gives room, and nobody else.

model.py has the exact victims, on every kind of server; here are the promises.
"""

import random

import pytest

from store.errors import StoreFull
from store.history.history import ConversationHistoryStore
from store.turn import Status, Turn
from tests.support.store.counted import usage
from tests.support.store.fixtures import OpenStore
from tests.support.store.sample import alive, grow

NOISY, OTHER, THIRD = "noisy", "other", "third"
IMAGE_BYTES = 60_000


async def roots(store: ConversationHistoryStore, tenant: str, count: int) -> list[str]:
    return [(await grow(store, str(number), tenant=tenant))[0] for number in range(count)]


async def image(store: ConversationHistoryStore, tenant: str, size: int = IMAGE_BYTES) -> str:
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


async def test_a_newcomer_is_refused_before_somebody_below_its_share_loses_anything(capped: OpenStore) -> None:
    store = capped(responses=8)
    for id in await roots(store, NOISY, 6):
        await store.chain(NOISY, id, pin=store.token())
    theirs = await roots(store, OTHER, 2)
    with pytest.raises(StoreFull):
        await roots(store, THIRD, 1)
    assert await alive(store, theirs, OTHER) == theirs
