"""A response that is read again is noted as used once in a while, and found as it stands all the same."""

from collections.abc import AsyncIterator

import pytest
from redis.asyncio import Redis

from store.errors import NotFound
from store.history.caps import Caps
from store.history.history import ConversationHistoryStore
from store.history.read import Uses
from store.redis.connection import connect
from tests.support.store.audit import dump, scores
from tests.support.store.sample import TENANT, grow


@pytest.fixture
async def patient(server_url: str, prefix: str) -> AsyncIterator[ConversationHistoryStore]:
    """A store that notes a use once a day."""
    store = ConversationHistoryStore(
        connect(server_url), prefix=prefix, caps=Caps(idle_seconds=0, touch_seconds=86_400)
    )
    yield store
    await store.close()


def test_a_use_is_noted_anew_after_its_time() -> None:
    now = 1000.0
    uses = Uses(60, lambda: now)
    assert uses.root_of("acme/01") is None
    uses.note("acme/01", "00")
    assert uses.root_of("acme/01") == "00"
    assert uses.root_of("globex/01") is None
    now += 60
    assert uses.root_of("acme/01") is None


def test_every_use_is_noted_where_none_may_be_left_out() -> None:
    uses = Uses(0)
    uses.note("acme/01", "00")
    assert uses.root_of("acme/01") is None


def test_the_uses_that_are_known_are_bounded() -> None:
    uses = Uses(60, lambda: 0.0)
    for number in range(Uses.MOST):
        uses.note(f"acme/{number}", "00")
    assert uses.root_of("acme/0") is None


async def test_to_read_again_writes_nothing(
    patient: ConversationHistoryStore, store: ConversationHistoryStore, redis: Redis, prefix: str
) -> None:
    (first, inner), (second,) = await grow(patient, "first", "inner"), await grow(patient, "second")
    seen = [await patient.find(TENANT, id) for id in (first, inner)]
    assert list(await scores(redis, prefix, "trees")) == [second, first]
    before = await dump(redis, prefix)
    assert [await patient.find(TENANT, id) for id in (first, inner)] == seen
    assert await dump(redis, prefix) == before
    await store.find(TENANT, second)  # another process, which has noted nothing
    assert list(await scores(redis, prefix, "trees")) == [first, second]


@pytest.mark.parametrize("deletes", ["response", "tree", "store"])
async def test_one_that_is_gone_is_not_found_again(
    patient: ConversationHistoryStore, store: ConversationHistoryStore, deletes: str
) -> None:
    root, tip = await grow(patient, "root", "tip")
    await patient.find(TENANT, tip)
    match deletes:
        case "response":
            await store.forget(TENANT, tip)
        case "tree":
            await store.forget_tree(TENANT, root)
        case _:
            store.caps = Caps(responses=1)
            await grow(store, "another")
    with pytest.raises(NotFound):
        await patient.find(TENANT, tip)
