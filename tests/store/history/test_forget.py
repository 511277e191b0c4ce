"""Forgetting: gone at once for everyone, kept just as long as a descendant or a run needs it, and then really gone."""

import pytest
from redis.asyncio import Redis

from store.errors import NotFound, ParentNotFound
from store.history.history import ConversationHistoryStore
from tests.support.store.audit import complaints, dump
from tests.support.store.counted import Usage, usage
from tests.support.store.fixtures import OpenStore
from tests.support.store.sample import TENANT, grow, said, turn
from tests.support.waiting import until

DEADLINE_SECONDS = 5.0


def keys_of_turns(found: dict[str, object]) -> list[str]:
    return [key for key in found if not key.endswith((":usage", ":clock"))]


async def test_a_forgotten_turn_is_unknown_at_once(store: ConversationHistoryStore, redis: Redis, prefix: str) -> None:
    root, middle, _ = await grow(store, "one", "two", "three")
    await store.forget(TENANT, middle)
    before = await dump(redis, prefix)
    for refusal in (store.get(TENANT, middle), store.lineage(TENANT, middle), store.forget(TENANT, middle)):
        with pytest.raises(NotFound):
            await refusal
    for refusal in (
        store.chain(TENANT, middle, pin=store.token()),
        store.append(TENANT, turn(store.new_id(root), middle)),
    ):
        with pytest.raises(ParentNotFound):
            await refusal
    assert await dump(redis, prefix) == before


@pytest.mark.usefixtures("lost_replies")
async def test_what_a_run_alone_kept_goes_with_its_pin_though_every_reply_is_lost(
    store: ConversationHistoryStore, redis: Redis, prefix: str
) -> None:
    ids = await grow(store, *map(str, range(250)))
    chain = await store.chain(TENANT, ids[-1], pin=store.token())
    for id in ids:
        await store.forget(TENANT, id)
    assert await usage(store) == Usage(0, 250, 1, (await usage(store)).bytes)
    await store.unpin(TENANT, ids[-1], str(chain.pin))
    assert keys_of_turns(await dump(redis, prefix)) == []


async def test_a_pinned_turn_can_be_continued_by_its_run_though_it_was_forgotten(
    store: ConversationHistoryStore,
) -> None:
    root, tip = await grow(store, "one", "two")
    chain = await store.chain(TENANT, tip, pin=store.token())
    await store.forget(TENANT, tip)
    child = store.new_id(tip)
    for pin in (None, "", "a" * 24):
        with pytest.raises(ParentNotFound):
            await store.append(TENANT, turn(child, tip), pin=pin)
    await store.append(TENANT, turn(child, tip, text="three"), pin=chain.pin)
    assert await said(store, child) == ["one", "two", "three"]
    with pytest.raises(ParentNotFound):  # the pin was for one turn
        await store.append(TENANT, turn(store.new_id(tip), tip), pin=chain.pin)
    assert await store.get(TENANT, root)


async def test_a_short_pin_never_shortens_a_longer_one(
    open_store: OpenStore, store: ConversationHistoryStore, redis: Redis, prefix: str
) -> None:
    brief = open_store(pin_seconds=1.0)
    (root,) = await grow(store, "one")
    await store.chain(TENANT, root, pin=store.token())
    await brief.chain(TENANT, root, pin=brief.token())
    assert await redis.pttl(f"{prefix}:{{00}}:t:{TENANT}:pins:{root[5:]}") > 1000


async def test_a_pin_past_its_time_keeps_nothing(open_store: OpenStore, redis: Redis, prefix: str) -> None:
    store = open_store(pin_seconds=0.02)
    (root,) = await grow(store, "one")
    chain = await store.chain(TENANT, root, pin=store.token())
    await until(lambda: redis.keys(f"{prefix}:*:pins:*"), DEADLINE_SECONDS, wanted=lambda pins: not pins)
    await store.forget(TENANT, root)
    with pytest.raises(ParentNotFound):
        await store.append(TENANT, turn(store.new_id(root), root), pin=chain.pin)
    assert keys_of_turns(await dump(redis, prefix)) == []
    assert await complaints(redis, prefix) == []
