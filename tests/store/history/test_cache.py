"""The read cache: bounded, and never an answer that the server wouldn't give."""

from collections.abc import AsyncIterator

import pytest
from hypothesis import given
from hypothesis import strategies as st

from store.errors import ParentNotFound
from store.history.history import ConversationHistoryStore
from store.history.read import TurnCache
from store.redis.connection import connect
from store.turn import Messages, StoredMessage
from tests.support.store.sample import TENANT, grow, said


def messages(size: int) -> Messages:
    return (StoredMessage("user", tokens=b"t" * size),)


@given(st.lists(st.tuples(st.integers(0, 20), st.integers(0, 3_000)), max_size=60))
def test_the_cache_stays_within_its_bytes(puts: list[tuple[int, int]]) -> None:
    cache = TurnCache(max_bytes=10_000)
    for key, size in puts:
        cache.put(str(key), messages(size))

        assert 0 <= cache.bytes <= 10_000
    assert (cache.bytes == 0) == (len(cache) == 0)


def test_what_was_used_last_stays_longest() -> None:
    cache = TurnCache(max_bytes=5_000)
    for key in ("a", "b", "c", "d"):
        cache.put(key, messages(600))
    assert cache.get(["b", "other", "a"]) == [messages(600), None, messages(600)]
    cache.put("e", messages(600))
    cache.put("f", messages(600))

    assert [key for key, found in zip("abcdef", cache.get("abcdef"), strict=True) if found] == ["a", "b", "e", "f"]


def test_a_cache_of_no_bytes_keeps_nothing() -> None:
    cache = TurnCache(max_bytes=0)
    cache.put("a", messages(0))

    assert cache.get(["a"]) == [None]


@pytest.fixture
async def other(server_url: str, prefix: str) -> AsyncIterator[ConversationHistoryStore]:
    """Another process's store over the same data."""
    store = ConversationHistoryStore(connect(server_url), prefix=prefix, cache_bytes=1 << 20)
    yield store
    await store.close()


async def test_a_turn_that_another_process_deleted_is_gone_here_too(
    store: ConversationHistoryStore, other: ConversationHistoryStore
) -> None:
    (root,) = await grow(store, "root")
    assert await said(store, root) == ["root"]
    await other.forget(TENANT, root)

    with pytest.raises(ParentNotFound):
        await store.chain(TENANT, root)


async def test_a_chain_half_of_which_another_process_wrote_is_whole(
    store: ConversationHistoryStore, other: ConversationHistoryStore
) -> None:
    mine = await grow(store, "one", "two")
    theirs = await grow(other, "three", "four", parent=mine[-1])

    for _ in range(2):
        assert await said(store, theirs[-1]) == ["one", "two", "three", "four"]


async def test_a_cached_turn_is_nothing_to_another_tenant(store: ConversationHistoryStore) -> None:
    (root,) = await grow(store, "root")
    await store.chain(TENANT, root)

    with pytest.raises(ParentNotFound):
        await store.chain("other", root)
