"""Caps: the least recently used goes first, what a run needs stays, and what is gone is unknown."""

import asyncio
import random
import time
from collections.abc import Callable

import pytest
from redis.asyncio import Redis

from store.errors import ChainTooLong, NotFound, ParentNotFound, StoreFull, TurnTooLarge
from store.history.caps import Caps
from store.history.history import ConversationHistoryStore
from store.redis.connection import connect
from store.turn import Status, Turn
from tests.support.store.audit import dump
from tests.support.store.counted import Usage, usage
from tests.support.store.sample import LONG_AGO, TENANT, alive, grow, said, set_use, turn
from tests.support.waiting import until

DEADLINE_SECONDS = 5.0
IDLE_SECONDS = 0.2

OpenStore = Callable[..., ConversationHistoryStore]


def bulky(id: str, parent: str | None = None, *, size: int = 20_000) -> Turn:
    """A turn with a response that can't be compressed."""
    return Turn(id, parent, Status.COMPLETED, (), random.randbytes(size))


async def test_the_least_recently_used_root_goes_first(capped: OpenStore) -> None:
    store = capped(responses=3)
    ids = [(await grow(store, str(number)))[0] for number in range(3)]
    await store.get(TENANT, ids[0])
    ids += await grow(store, "new")
    assert await alive(store, ids) == [ids[0], ids[2], ids[3]]
    assert (await usage(store)).responses == 3


async def test_a_turn_that_a_living_turn_descends_from_is_never_evicted(capped: OpenStore) -> None:
    store = capped(responses=3)
    chain = await grow(store, "one", "two", "three")
    for refusal in (store.chain(TENANT, chain[-1], pin=store.token()), grow(store, "four", parent=chain[-1])):
        with pytest.raises(ChainTooLong):  # its own history is all that there may be
            await refusal
    assert await said(store, chain[-1]) == ["one", "two", "three"]
    other = await grow(store, "other")
    assert await alive(store, chain + other) == [*chain[:2], *other]


async def test_a_store_whose_every_turn_is_pinned_is_full_and_changes_nothing(
    capped: OpenStore, redis: Redis, prefix: str
) -> None:
    store = capped(responses=2)
    ids = [(await grow(store, str(number)))[0] for number in range(2)]
    pins = [(await store.chain(TENANT, id, pin=store.token())).pin for id in ids]
    before = await dump(redis, prefix)
    with pytest.raises(StoreFull):
        await store.append(TENANT, turn(store.new_id()))
    assert await dump(redis, prefix) == before
    await store.unpin(TENANT, ids[0], str(pins[0]))
    await grow(store, "now there is room")
    assert await alive(store, ids) == ids[1:]


async def test_a_large_tree_goes_over_several_calls(capped: OpenStore) -> None:
    store = capped(trees=1)
    await grow(store, *map(str, range(350)))
    (only,) = await grow(store, "only")
    used = await usage(store)
    assert (used.responses, used.trees) == (1, 1)
    assert await said(store, only) == ["only"]


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


async def test_a_refusal_takes_nothing_from_others(capped: OpenStore) -> None:
    plenty = capped()
    ids = [(await grow(plenty, str(number)))[0] for number in range(20)]
    chain = await grow(plenty, *map(str, range(5)))
    store = capped(responses=5, bytes=1)
    for parent in (chain[-1], None):
        with pytest.raises((ChainTooLong, TurnTooLarge)):
            await grow(store, "more", parent=parent)
    assert await alive(store, ids + chain) == ids + chain


async def test_many_pinned_turns_before_the_first_that_may_go_are_passed_over_some_at_a_time(capped: OpenStore) -> None:
    plenty = capped()
    ids = [store_id for (store_id,) in await asyncio.gather(*(grow(plenty, str(number)) for number in range(1200)))]
    await asyncio.gather(*(plenty.chain(TENANT, id, pin=plenty.token()) for id in ids))
    (free,) = await grow(plenty, "free")
    store = capped(responses=1201)
    (new,) = await grow(store, "new")
    assert await alive(store, [*ids, free, new]) == [*ids, new]


async def test_a_cap_that_was_lowered_by_very_much_is_reached_step_by_step(capped: OpenStore) -> None:
    plenty = capped()
    await asyncio.gather(*(grow(plenty, str(number)) for number in range(350)))
    store = capped(responses=10, evict_calls=1)
    left: list[int] = []
    for number in range(5):
        await grow(store, str(number))
        left.append((await usage(store)).responses)
    assert left == [151, 10, 10, 10, 10]


async def test_bytes_never_pass_their_cap_though_turns_differ_in_size(capped: OpenStore) -> None:
    store = capped(bytes=300_000)
    parent = None
    for number in range(60):
        id = store.new_id(parent)
        await store.append(TENANT, bulky(id, parent, size=200 * number))
        parent = id if number % 3 else None
        assert (await usage(store)).bytes <= 300_000
    assert (await usage(store)).responses > 15


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


async def test_deleted_turns_that_nothing_needs_go_with_their_last_child(
    capped: OpenStore, redis: Redis, prefix: str
) -> None:
    store = capped(responses=1)
    *above, _ = await grow(capped(), "one", "two", "three")
    for id in above:
        await store.forget(TENANT, id)
    (new,) = await grow(store, "new")
    used = await usage(store)
    assert (used.responses, used.tombstones, used.trees) == (1, 0, 1)
    assert not [key for key in await dump(redis, prefix) if above[0][5:] in key]
    assert await said(store, new) == ["new"]


async def test_a_chain_of_too_many_messages_can_be_read_and_not_continued(capped: OpenStore) -> None:
    store = capped(chain_messages=3)
    ids = await grow(store, "one", "two", "three")
    assert (await store.chain(TENANT, ids[1], pin=store.token())).tip == ids[1]
    assert await said(store, ids[2]) == ["one", "two", "three"]
    with pytest.raises(ChainTooLong):
        await store.chain(TENANT, ids[2], pin=store.token())


async def test_a_tree_that_nobody_uses_is_unknown_and_then_swept(capped: OpenStore, redis: Redis, prefix: str) -> None:
    store = capped(idle_seconds=3600, pin_seconds=IDLE_SECONDS)
    ids = await grow(store, "one", "two")
    await set_use(redis, prefix, LONG_AGO, ids[0])
    assert await alive(store, ids[1:]) == []
    for refusal in (store.get(TENANT, ids[0]), store.forget(TENANT, ids[0]), store.forget_tree(TENANT, ids[1])):
        with pytest.raises(NotFound):
            await refusal
    for refusal in (store.chain(TENANT, ids[1]), store.append(TENANT, turn(store.new_id(ids[1]), ids[1]))):
        with pytest.raises(ParentNotFound):
            await refusal
    (young,) = await grow(store, "young")
    await store.sweep()
    assert await alive(store, [young]) == [young]
    assert not [key for key in await dump(redis, prefix) if ids[0][5:] in key or ids[1][5:] in key]


async def test_using_any_turn_of_a_tree_keeps_all_of_it(capped: OpenStore) -> None:
    store = capped(idle_seconds=10 * IDLE_SECONDS, pin_seconds=IDLE_SECONDS)
    used = await grow(store, "one", "two")
    (unused,) = await grow(store, "unused")

    async def expired() -> bool:
        await store.get(TENANT, used[0])
        return not await alive(store, [unused])

    await until(expired, DEADLINE_SECONDS)
    await store.sweep()
    assert await alive(store, used) == used


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
    server_url: str, redis: Redis, prefix: str, ahead: float
) -> None:
    caps = Caps(idle_seconds=100.0, idle_grace_seconds=0)
    store = ConversationHistoryStore(
        connect(server_url), prefix=prefix, pin_seconds=60.0, caps=caps, clock=lambda: time.time() + ahead
    )
    (old,) = await grow(store, "old")
    await set_use(redis, prefix, LONG_AGO, old)
    assert await store.sweep() == ("clock", 1)
    assert await alive(store, [old]) == [old]
    await store.forget_tree(TENANT, old)
    assert await usage(store) == Usage()
    await store.close()


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


def test_an_idle_time_no_longer_than_a_pin_is_refused() -> None:
    with pytest.raises(ValueError, match="must exceed"):
        ConversationHistoryStore(connect("redis://127.0.0.1:1"), pin_seconds=60, caps=Caps(idle_seconds=60))


@pytest.mark.parametrize("name", ["responses", "trees", "bytes", "chain_messages", "idle_seconds"])
def test_a_cap_below_nothing_is_refused(name: str) -> None:
    with pytest.raises(ValueError, match=name):
        Caps(**{name: -1})


async def test_a_forgotten_tree_is_gone_with_all_its_forks(capped: OpenStore, redis: Redis, prefix: str) -> None:
    store = capped()
    ids = await grow(store, *map(str, range(230)))
    fork = await grow(store, "fork", parent=ids[100])
    (other,) = await grow(store, "other")
    await store.forget_tree(TENANT, ids[150])
    assert await alive(store, [*ids, *fork, other]) == [other]
    assert (await usage(store)).responses == 1
    with pytest.raises(NotFound):
        await store.forget_tree(TENANT, fork[0])
    with pytest.raises(NotFound):
        await store.forget_tree("rival", other)
    assert not [key for key in await dump(redis, prefix) if ids[0][5:] in key]


async def test_a_very_large_tree_is_unknown_at_once_and_its_rest_goes_with_the_next_sweep(capped: OpenStore) -> None:
    store = capped(tree_calls=1)
    ids = await grow(store, *map(str, range(150)))
    await store.forget_tree(TENANT, ids[75])
    assert await alive(store, ids) == []
    assert (await usage(store)).responses == 50
    await store.sweep()
    assert await usage(store) == Usage()


@pytest.mark.parametrize("cache_bytes", [0, 1 << 20])
async def test_descendants_of_an_erased_turn_continue_without_it(capped: OpenStore, cache_bytes: int) -> None:
    store, other = capped(cache_bytes=cache_bytes), capped(cache_bytes=cache_bytes)
    ids = await grow(store, "one", "two", "three")
    assert await said(other, ids[-1]) == ["one", "two", "three"]
    await store.forget(TENANT, ids[1], erase=True)
    for reader in (store, other, store):
        assert await said(reader, ids[-1]) == ["one", "three"]
    assert list(await store.lineage(TENANT, ids[-1])) == ids
    (after,) = await grow(store, "four", parent=ids[-1])
    assert await said(other, after) == ["one", "three", "four"]


async def test_what_was_erased_is_in_no_key(capped: OpenStore, redis: Redis, prefix: str) -> None:
    store = capped()
    root, _ = await grow(store, "a secret", "child")
    await store.forget(TENANT, root, erase=True)
    assert "a secret" not in str(await dump(redis, prefix))
    with pytest.raises(NotFound):
        await store.get(TENANT, root)
