"""Caps: the least recently used goes first, what a run needs stays, and what is gone is unknown; of several tenants one
with more than a share gives room, and nobody else.

model.py has the exact victims, on every kind of server; here are the promises.
"""

import random
import time

import pytest
from redis.asyncio import Redis

from store.errors import ChainTooLong, NotFound, ParentNotFound, StoreFull, TurnTooLarge
from store.history.caps import Caps
from store.history.history import ConversationHistoryStore
from store.turn import Status, Turn
from tests.support.store.audit import dump
from tests.support.store.counted import Usage, usage
from tests.support.store.fixtures import OpenStore
from tests.support.store.sample import LONG_AGO, TENANT, alive, grow, said, set_use


def bulky(id: str, parent: str | None = None, *, size: int = 20_000) -> Turn:
    return Turn(id, parent, Status.COMPLETED, (), random.randbytes(size))


async def test_a_tree_whose_eviction_is_cut_short_is_unknown_as_a_whole(capped: OpenStore) -> None:
    store = capped(trees=2, evict_calls=0)
    old = await grow(store, *map(str, range(250)))
    (other,) = await grow(store, "other")
    (new,) = await grow(store, "new")
    assert (await usage(store)).responses == 250 - 100 + 2
    assert await alive(store, [*old, other, new]) == [other, new]
    with pytest.raises(ParentNotFound):
        await grow(store, "more", parent=old[0])
    (newer,) = await grow(store, "newer")
    assert await alive(store, [*old, other, new, newer]) == [other, new, newer], "another tree went for the rest"
    await store.sweep()
    assert (await usage(store)).responses == 3


async def test_a_turn_that_can_never_fit_is_refused_before_anything_goes(capped: OpenStore) -> None:
    store = capped(bytes=60_000)
    ids = [(await grow(store, str(number)))[0] for number in range(5)]
    with pytest.raises(TurnTooLarge):
        await store.append(TENANT, bulky(store.new_id(), size=200_000))
    parent = bulky(store.new_id(), size=20_000)
    await store.append(TENANT, parent)
    ids = await alive(store, ids)
    with pytest.raises(TurnTooLarge):
        await store.append(TENANT, bulky(store.new_id(parent.id), parent.id, size=30_000))
    assert await alive(store, [*ids, parent.id]) == [*ids, parent.id]


async def test_a_chain_of_too_many_messages_can_be_read_and_not_continued(capped: OpenStore) -> None:
    store = capped(chain_messages=3)
    ids = await grow(store, "one", "two", "three")
    assert (await store.chain(TENANT, ids[1], pin=store.token())).tip == ids[1]
    assert await said(store, ids[2]) == ["one", "two", "three"]
    with pytest.raises(ChainTooLong):
        await store.chain(TENANT, ids[2], pin=store.token())


HOUR_US = 3_600_000_000


async def sweeps_began(redis: Redis, prefix: str, ago_us: int, *, last_us: int = 0) -> None:
    """Sweeps have followed each other since then, up to one that was `last_us` ago."""
    seconds, us = await redis.time()
    now = seconds * 1_000_000 + us
    await redis.hset(f"{prefix}:{{00}}:sweeps", mapping={"last": now - last_us, "began": now - ago_us})


async def test_nothing_expires_before_sweeps_have_followed_each_other_for_the_grace(
    capped: OpenStore, redis: Redis, prefix: str
) -> None:
    store = capped(idle_seconds=100.0, idle_grace_seconds=7200.0)
    old = await grow(store, "one", "two")
    await grow(store, "young")
    await set_use(redis, prefix, LONG_AGO, old[0])
    assert await alive(store, old) == []
    assert await store.sweep() == ("gap", 1)
    assert await alive(store, old) == old, "what was unused while nobody could use it is known"
    await sweeps_began(redis, prefix, 2 * HOUR_US - 10_000_000)
    assert await store.sweep() == ("gap", 1)
    await sweeps_began(redis, prefix, 2 * HOUR_US)
    assert await store.sweep() is None
    assert await alive(store, old) == []
    assert (await usage(store)).responses == 1


@pytest.mark.parametrize("jump_us", [HOUR_US + 10_000_000, -HOUR_US - 10_000_000], ids=["forth", "back"])
async def test_a_clock_that_jumps_deletes_nothing(capped: OpenStore, redis: Redis, prefix: str, jump_us: int) -> None:
    store = capped(idle_seconds=100.0, idle_grace_seconds=7200.0)
    (old,) = await grow(store, "old")
    await set_use(redis, prefix, LONG_AGO, old)
    await sweeps_began(redis, prefix, 1000 * HOUR_US, last_us=jump_us)
    assert await store.sweep() == ("gap", 1)
    assert await alive(store, [old]) == [old]


@pytest.mark.parametrize("ahead", [3610.0, -3610.0])
async def test_a_server_with_another_time_than_the_process_deletes_nothing(
    open_store: OpenStore, redis: Redis, prefix: str, ahead: float
) -> None:
    caps = Caps(idle_seconds=100.0, idle_grace_seconds=0)
    store = open_store(pin_seconds=60.0, caps=caps, clock=lambda: time.time() + ahead)
    (old,) = await grow(store, "old")
    await set_use(redis, prefix, LONG_AGO, old)
    assert await store.sweep() == ("clock", 1)
    assert await alive(store, [old]) == [old]
    await store.forget_tree(TENANT, old)
    assert await usage(store) == Usage()


async def test_an_unused_tree_is_unknown_for_the_grace_before_it_is_deleted(
    capped: OpenStore, redis: Redis, prefix: str
) -> None:
    store = capped(idle_seconds=100.0, idle_grace_seconds=7200.0)
    (old,) = await grow(store, "old")
    await sweeps_began(redis, prefix, 2 * HOUR_US)
    seconds, _ = await redis.time()
    used = (seconds - 7000) * 1_000_000
    await set_use(redis, prefix, used, old)
    assert await store.sweep() is None
    assert await alive(store, [old]) == []
    assert (await usage(store)).responses == 1
    roomy = capped(idle_seconds=0)
    assert await alive(roomy, [old]) == [old]


async def test_what_was_erased_is_in_no_key(capped: OpenStore, redis: Redis, prefix: str) -> None:
    store = capped()
    root, _ = await grow(store, "a secret", "child")
    await store.forget(TENANT, root, erase=True)
    assert "a secret" not in str(await dump(redis, prefix))
    with pytest.raises(NotFound):
        await store.get(TENANT, root)


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
