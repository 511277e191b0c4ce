"""A store reads its responses however each is packed, and as many at once as their bytes allow."""

from redis.asyncio import Redis

from bench._dictionary.samples import Samples
from store import codec
from store.history.history import FOUND_AT_ONCE, NOTHING_LISTED, ConversationHistoryStore
from store.turn import Status, Turn
from tests.support.store.sample import TENANT

TEXTS = [b"{}", *(text.hex().encode() for text in Samples(5).blobs(4)), b"{}"]
PACKINGS = [codec.PLAIN, *[codec.ZSTD] * 4, codec.PLAIN]


async def test_a_chain_of_all_packings_is_read_as_it_was_written(
    store: ConversationHistoryStore, redis: Redis, prefix: str
) -> None:
    ids: list[str] = []
    for text in TEXTS:
        parent = ids[-1] if ids else None
        ids.append(store.new_id(parent))
        await store.append(TENANT, Turn(ids[-1], parent, Status.COMPLETED, (), text, b"[%b]" % text))
    blobs = [await redis.get(store.keyspace.turn(TENANT, id).key("response")) for id in ids]
    assert [blob[1] for blob in blobs] == PACKINGS
    assert [await store.get(TENANT, id) for id in ids] == TEXTS
    told = [(text, b"[%b]" % text) for text in TEXTS]
    assert await store.items(TENANT, ids) == told
    sizes = [codec.response_size(blob) for blob in blobs]
    for count in range(1, len(ids) + 1):
        assert await store.items(TENANT, ids, most_bytes=sum(sizes[:count])) == told[:count]
        assert await store.items(TENANT, ids, most_bytes=sum(sizes[:count]) - 1) == told[: max(1, count - 1)]


async def test_a_read_of_so_many_bytes_has_few_turns_that_are_not_there(store: ConversationHistoryStore) -> None:
    ids = [store.new_id() for _ in range(9)]
    assert await store.items(TENANT, ids, most_bytes=10) == [NOTHING_LISTED] * FOUND_AT_ONCE
    assert await store.items(TENANT, ids) == [NOTHING_LISTED] * 9
