"""What a store holds is read whatever it was written with, and it is written as the layout on record says."""

from collections.abc import Iterator

import pytest
from msgspec.msgpack import encode as packb
from redis.asyncio import Redis

from store.history.conversations import Conversations, by_hand
from store.history.history import FOUND_AT_ONCE, NOTHING_LISTED, ConversationHistoryStore
from store.jobs.jobs import Jobs
from store.jobs.log import Entry
from store.layout import LAYOUT, Layout, Terms
from store.turn import Status, Turn
from tests.support.dictionary.samples import Samples
from tests.support.store.sample import TENANT
from tests.support.store.work import claim

TEXTS = [text.hex().encode() for text in Samples(5).blobs(6)]
LAYOUTS = (1, 2, 1, 2, 2, 1)


def texts() -> Iterator[bytes]:
    return iter(TEXTS)


async def version(redis: Redis, prefix: str, id: str) -> int:
    """The format version of a response blob."""
    digits = id.rpartition("_")[2]
    return (await redis.get(f"{prefix}:{{00}}:t:{TENANT}:response:{digits}"))[0]


async def test_a_chain_of_all_packings_is_read_as_it_was_written(
    store: ConversationHistoryStore, redis: Redis, prefix: str
) -> None:
    ids: list[str] = []
    for layout, text in zip(LAYOUTS, TEXTS, strict=True):
        store.follow_layout(layout)
        parent = ids[-1] if ids else None
        ids.append(store.new_id(parent))
        await store.append(TENANT, Turn(ids[-1], parent, Status.COMPLETED, (), text, b"[%b]" % text))
    assert [await version(redis, prefix, id) for id in ids] == list(LAYOUTS)
    assert [await store.get(TENANT, id) for id in ids] == TEXTS
    told = [(text, b"[%b]" % text) for text in TEXTS]
    assert await store.items(TENANT, ids) == told
    sizes = [len(packb(each)) for each in told]  # as they are packed
    for count in range(1, len(ids) + 1):
        assert await store.items(TENANT, ids, most_bytes=sum(sizes[:count])) == told[:count]
        assert await store.items(TENANT, ids, most_bytes=sum(sizes[:count]) - 1) == told[: max(1, count - 1)]


async def test_a_read_of_so_many_bytes_has_few_turns_that_are_not_there(store: ConversationHistoryStore) -> None:
    ids = [store.new_id() for _ in range(9)]
    assert await store.items(TENANT, ids, most_bytes=10) == [NOTHING_LISTED] * FOUND_AT_ONCE
    assert await store.items(TENANT, ids) == [NOTHING_LISTED] * 9


async def test_a_turn_that_is_stored_again_with_another_packing_is_the_same(store: ConversationHistoryStore) -> None:
    turn = Turn(store.new_id(), None, Status.COMPLETED, (), TEXTS[0])
    await store.append(TENANT, turn)
    store.follow_layout(LAYOUT)
    await store.append(TENANT, turn)
    assert await store.get(TENANT, turn.id) == TEXTS[0]


@pytest.mark.parametrize("before", [1, 2])
async def test_what_is_redacted_is_written_as_the_store_is_now(
    store: ConversationHistoryStore, redis: Redis, prefix: str, before: int
) -> None:
    store.follow_layout(before)
    turn = Turn(store.new_id(), None, Status.COMPLETED, (), TEXTS[0])
    await store.append(TENANT, turn)
    store.follow_layout(3 - before)
    await store.redact(TENANT, turn.id, lambda messages, response, items: (messages, TEXTS[1], items))
    assert await version(redis, prefix, turn.id) == 3 - before
    assert await store.get(TENANT, turn.id) == TEXTS[1]


async def test_conversations_and_jobs_are_written_so_too(
    store: ConversationHistoryStore, redis: Redis, prefix: str
) -> None:
    store.follow_layout(LAYOUT)
    conversations, jobs, said = Conversations(store), Jobs(store), texts()
    id = conversations.new_id()
    await conversations.create(TENANT, id, by_hand(conversations.new_turn_id(id), None, ()), next(said))
    assert (await conversations.get(TENANT, id), await version(redis, prefix, id)) == (TEXTS[0], 2)
    await conversations.amend(TENANT, id, next(said))
    assert (await conversations.get(TENANT, id), await version(redis, prefix, id)) == (TEXTS[1], 2)
    job = store.new_id()
    await jobs.submit(TENANT, Turn(job, None, Status.QUEUED, (), next(said)), b"spec", Entry(1, b""))
    assert (await store.get(TENANT, job), await version(redis, prefix, job)) == (TEXTS[2], 2)
    claimed = await claim(jobs)
    await jobs.finish(claimed.lease, Turn(job, None, Status.COMPLETED, (), next(said)), Entry(2, b""))
    assert (await store.get(TENANT, job), await version(redis, prefix, job)) == (TEXTS[3], 2)


async def test_a_store_follows_the_layout_on_record(store: ConversationHistoryStore) -> None:
    layout = Layout(store.server, store.keyspace.prefix, Terms(1))
    layout.recorded = store.follow_layout
    before = store.dictionary
    await layout.agree()
    assert (before, store.dictionary) == (0, 32_769)
