"""Pictures are stored once for a tenant, with the first turn that shows them, and go with the last one."""

from collections.abc import Callable

import msgspec
import pytest
from redis.asyncio import Redis

from store.errors import ParentNotFound, TurnTooLarge
from store.history.conversations import Conversations, by_hand
from store.history.history import MOST_SHOWN, ConversationHistoryStore
from store.jobs.jobs import Jobs
from store.jobs.log import Entry
from store.turn import MOST_PICTURES, Picture, Status, Turn, digest_of
from tests.support.store.sample import TENANT, grow, turn, with_pictures

CAT, DOG = b"cat" * 1_000, b"dog" * 2_000


async def show(
    store: ConversationHistoryStore, *pictures: bytes, parent: str | None = None, tenant: str = TENANT
) -> str:
    """Append a turn that shows these pictures; its id."""
    id = store.new_id(parent)
    await store.append(tenant, with_pictures(turn(id, parent), *pictures))
    return id


async def seen(store: ConversationHistoryStore, id: str, tenant: str = TENANT) -> set[bytes]:
    """Those of both pictures that are stored where this turn is."""
    wanted = [digest_of(CAT), digest_of(DOG)]
    found = await store.pictures(tenant, id, wanted)
    assert all(digest_of(data) == digest for digest, data in found.items())
    return set(found.values())


async def test_a_picture_is_read_by_its_digest(store: ConversationHistoryStore) -> None:
    id = await show(store, CAT, DOG)
    assert await store.pictures(TENANT, id, [digest_of(DOG), digest_of(b"none")]) == {digest_of(DOG): DOG}
    assert await seen(store, id) == {CAT, DOG}


async def test_a_picture_is_no_other_tenants(store: ConversationHistoryStore) -> None:
    id = await show(store, CAT)
    assert await seen(store, id, "other") == set()


async def test_a_picture_that_two_turns_show_is_stored_once(
    store: ConversationHistoryStore, redis: Redis, prefix: str
) -> None:
    root = await show(store, CAT)
    fork = await show(store, CAT, DOG, parent=root)
    other = await show(store, CAT)
    keys = [key async for key in redis.scan_iter(f"{prefix}:*:picture:*")]
    assert len(keys) == 2
    await store.forget(TENANT, fork)
    assert await seen(store, root) == {CAT}
    await store.forget_tree(TENANT, root)
    assert await seen(store, root) == {CAT}
    await store.forget(TENANT, other)
    assert await seen(store, root) == set()


async def test_the_same_picture_twice_in_a_turn_is_one(store: ConversationHistoryStore) -> None:
    id = await show(store, CAT, CAT)
    await store.append(TENANT, with_pictures(turn(id), CAT, CAT))  # a retry
    await store.forget(TENANT, id)
    assert await seen(store, id) == set()


async def test_a_tombstone_shows_its_pictures_until_its_messages_are_erased(store: ConversationHistoryStore) -> None:
    root = await show(store, CAT)
    (tip,) = await grow(store, "reply", parent=root)
    await store.forget(TENANT, root)
    assert await seen(store, tip) == {CAT}
    await store.forget(TENANT, tip)
    assert await seen(store, tip) == set()


async def test_erasing_the_messages_of_a_turn_takes_its_pictures(store: ConversationHistoryStore) -> None:
    root = await show(store, CAT)
    tip = await show(store, DOG, parent=root)
    await store.forget(TENANT, root, erase=True)
    assert await seen(store, tip) == {DOG}


async def test_a_redaction_takes_the_pictures_that_no_note_names_any_more(store: ConversationHistoryStore) -> None:
    id = await show(store, CAT, DOG)
    left = with_pictures(turn(id), DOG).messages
    await store.redact(TENANT, id, lambda messages, response, items: (left, response, items))
    assert await seen(store, id) == {DOG}
    await store.redact(TENANT, id, lambda messages, response, items: (messages[:1], response, items))
    assert await seen(store, id) == set()


async def test_a_turn_that_is_refused_stores_no_picture(store: ConversationHistoryStore) -> None:
    parent = store.new_id()
    with pytest.raises(ParentNotFound):
        await show(store, CAT, parent=parent)
    assert await seen(store, parent) == set()


async def test_turns_added_by_hand_and_forks_show_pictures(
    history: ConversationHistoryStore, conversations: Conversations
) -> None:
    id = conversations.new_id()
    first = by_hand(conversations.new_turn_id(id), None, ())
    await conversations.create(TENANT, id, with_pictures(first, CAT), b"{}")
    await conversations.hold(TENANT, id, "run", 10)
    chain = await conversations.chain(TENANT, id)
    reply = with_pictures(turn(history.new_id(chain.tip), chain.tip), DOG)
    await conversations.advance(TENANT, id, reply, hold="run")
    assert await seen(history, first.id) == {CAT, DOG}
    await conversations.delete(TENANT, id)
    assert await seen(history, first.id) == {CAT, DOG}
    await history.forget_tree(TENANT, reply.id)
    assert await seen(history, first.id) == set()


def queued(id: str, *pictures: bytes, parent: str | None = None) -> Turn:
    shown = tuple(map(Picture.of, pictures))
    return Turn(id, parent, Status.QUEUED, (), b"{}", pictures=shown)


async def test_a_job_shows_its_pictures_from_its_submission_on_and_those_of_its_end(
    history: ConversationHistoryStore, jobs: Jobs
) -> None:
    id = history.new_id()
    await jobs.submit(TENANT, queued(id, CAT), b"spec", Entry(0, b"events"))
    assert await seen(history, id) == {CAT}
    (job,) = (await jobs.claim(0, 1)).jobs
    await jobs.finish(job.lease, with_pictures(turn(id), DOG), Entry(1, b"events"))
    assert await seen(history, id) == {CAT, DOG}
    await history.forget(TENANT, id)
    assert await seen(history, id) == set()


async def test_a_retry_of_an_end_counts_no_picture_twice(history: ConversationHistoryStore, jobs: Jobs) -> None:
    id = history.new_id()
    await jobs.submit(TENANT, queued(id, CAT), b"spec", Entry(0, b"events"))
    (job,) = (await jobs.claim(0, 1)).jobs
    for _ in range(2):
        await jobs.finish(job.lease, with_pictures(turn(id), CAT, DOG), Entry(1, b"events"))
    await history.forget(TENANT, id)
    assert await seen(history, id) == set()


async def test_an_evicted_turn_takes_its_picture(capped: Callable[..., ConversationHistoryStore]) -> None:
    store = capped(responses=1)
    first = await show(store, CAT)
    await show(store, DOG)
    assert await seen(store, first) == {DOG}


async def test_pictures_count_to_the_cap_on_bytes(capped: Callable[..., ConversationHistoryStore]) -> None:
    store = capped(bytes=100_000)
    ids = [await show(store, bytes([number]) * 30_000) for number in range(4)]
    pictures = [Picture.of(bytes([number]) * 30_000) for number in range(4)]
    found = await store.pictures(TENANT, ids[0], [each.digest for each in pictures])
    assert 1 <= len(found) <= 3
    assert pictures[-1].digest in found


async def test_a_chain_whose_pictures_alone_pass_the_cap_evicts_nothing(
    capped: Callable[..., ConversationHistoryStore],
) -> None:
    store = capped(bytes=100_000)
    other = await show(store, CAT)
    root = await show(store, DOG * 5)
    with pytest.raises(TurnTooLarge):
        await show(store, CAT * 20, parent=root)
    assert await seen(store, other) == {CAT}


async def test_a_chain_that_shows_one_picture_again_and_again_has_it_once(
    capped: Callable[..., ConversationHistoryStore],
) -> None:
    store = capped(bytes=100_000)
    tip = None
    for _ in range(6):
        tip = await show(store, DOG * 5, parent=tip)
    assert tip


async def test_pictures_are_bounded() -> None:
    with pytest.raises(ValueError, match="100 pictures"):
        msgspec.structs.replace(turn("resp_"), pictures=(Picture.of(CAT),) * (MOST_PICTURES + 1))
    with pytest.raises(ValueError, match="33,554,432 bytes"):
        msgspec.structs.replace(turn("resp_"), pictures=(Picture(bytes(32), bytes(33 << 20)),))
    with pytest.raises(ValueError, match="needs bytes"):
        msgspec.structs.replace(turn("resp_"), pictures=(Picture.of(b""),))


async def test_no_more_are_read_at_once_than_may_be(store: ConversationHistoryStore) -> None:
    with pytest.raises(ValueError, match="1000 or fewer"):
        await store.pictures(TENANT, store.new_id(), [b"%032d" % number for number in range(MOST_SHOWN + 1)])
