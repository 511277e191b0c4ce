"""The read cache: bounded, and never an answer that the server wouldn't give."""

from contextlib import suppress
from random import Random

import pytest
from hypothesis import given
from hypothesis import strategies as st
from redis.asyncio import Redis

from store.errors import NotFound, ParentNotFound
from store.history import read
from store.history.history import ConversationHistoryStore
from store.history.read import TurnCache
from store.turn import Messages, StoredMessage
from tests.support.store.fixtures import OpenStore
from tests.support.store.sample import TENANT, grow


def messages(size: int) -> Messages:
    return (StoredMessage("user", tokens=b"t" * size),)


@given(st.lists(st.tuples(st.integers(0, 20), st.integers(0, 3_000)), max_size=60))
def test_the_cache_stays_within_its_bytes(puts: list[tuple[int, int]]) -> None:
    cache = TurnCache(max_bytes=10_000)
    for key, size in puts:
        cache.put(str(key), messages(size))

        assert 0 <= cache.held_bytes <= 10_000
    assert (cache.held_bytes == 0) == (len(cache) == 0)


def test_what_was_used_last_stays_longest() -> None:
    cache = TurnCache(max_bytes=10_000)
    for key in ("a", "b", "c", "d", "e"):  # four are half of it
        cache.put(key, messages(600))
    assert cache.get(["b", "other", "a"]) == [messages(600), None, messages(600)]
    cache.put("f", messages(600))
    cache.put("g", messages(600))

    found = cache.get("abcdefg")
    assert [key for key, each in zip("abcdefg", found, strict=True) if each] == ["a", "b", "e", "f", "g"]


READERS = 2
OPERATIONS = 120
ERASED_TEXT = b"gone"


async def shown(store: ConversationHistoryStore, tenant: str, tip: str) -> object:
    """All that a chain tells of itself; where it can't be continued, only that."""
    try:
        chain = await store.chain(tenant, tip)
    except ParentNotFound:
        return None
    return chain.ids, list(chain.turns), chain.messages(), chain.notes(), chain.cut


def check_accounts(cache: TurnCache) -> None:
    """No chain has a turn that no half counts, and all together are within the bound."""
    counted = cache._new | cache._old  # pyright: ignore[reportPrivateUsage]
    for known in cache._chains.values():  # pyright: ignore[reportPrivateUsage]
        assert {id(turn) for turn in known.turns} <= set(map(id, counted.values()))
    assert cache.held_bytes <= cache.max_bytes


@pytest.mark.parametrize("cache_bytes", [12_000, 1 << 20])
@pytest.mark.parametrize("seed", range(4))
async def test_cached_chains_are_those_of_a_store_without_a_cache(
    open_store: OpenStore, redis: Redis, monkeypatch: pytest.MonkeyPatch, seed: int, cache_bytes: int
) -> None:
    """Others append, fork, forget, erase and redact over stores of their own, as other processes do."""
    monkeypatch.setattr(read, "LONG_CHAIN", 2)
    chance, tenants = Random(seed), (TENANT, "other")
    readers = [open_store(cache_bytes=size) for size in (*[cache_bytes] * READERS, 0)]
    made: list[tuple[str, str]] = []
    kept = 0
    for number in range(OPERATIONS):
        writer, (tenant, tip) = chance.choice(readers), chance.choice(made[-8:]) if made else (TENANT, "")
        with suppress(ParentNotFound, NotFound):
            match chance.choices(("go on", "begin", "forget", "erase", "redact", "tree"), (24, 2, 2, 1, 1, 1))[0]:
                case "go on" if tip:
                    made += [(tenant, id) for id in await grow(writer, f"{number}", parent=tip, tenant=tenant)]
                case "forget" if tip:
                    await writer.forget(tenant, tip)
                case "erase" if tip:
                    await writer.forget(tenant, chance.choice(made)[1], erase=True)
                case "redact" if tip:
                    await writer.redact(tenant, tip, lambda _, r, i: ((StoredMessage("user", ERASED_TEXT),), r, i))
                case "tree" if tip and number % 3 == 0:
                    await writer.forget_tree(tenant, tip)
                case _:
                    tenant = chance.choice(tenants)
                    made += [(tenant, id) for id in await grow(writer, f"{number}", tenant=tenant)]
        for owner, id in {made[-1], chance.choice(made)}:
            for tenant in tenants:
                *cached, fresh = [await shown(each, tenant, id) for each in readers]
                assert cached == [fresh] * READERS
                assert fresh is None or tenant == owner
        for each in readers:
            check_accounts(each._cache)  # pyright: ignore[reportPrivateUsage]
            kept += len(each._cache._chains)  # pyright: ignore[reportPrivateUsage]
    assert kept, "chains were kept as a whole"
