"""Conversations that nobody uses: they stay, with all that is in them, unless a bound says for how long."""

from collections.abc import Awaitable, Callable
from typing import NamedTuple

import pytest
from redis.asyncio import Redis

from store.errors import ConversationNotFound, NotFound
from store.history.caps import Caps
from store.history.conversations import Conversations, by_hand
from store.history.history import ConversationHistoryStore
from tests.support.store.counted import usage
from tests.support.store.sample import DAY, TENANT, grow, leave_unused, turn

IDLE_DAYS, NAMED_DAYS = 30, 90

Open = Callable[..., Awaitable["Opened"]]


class Opened(NamedTuple):
    """A store with a conversation of two turns: its id, and that of its newest turn."""

    history: ConversationHistoryStore
    conversations: Conversations
    id: str
    tip: str


@pytest.fixture
def opened(history: ConversationHistoryStore) -> Open:
    """Begins a conversation in a store that keeps unused trees for IDLE_DAYS, and conversations for so many."""

    async def begin(named_days: float = 0) -> Opened:
        caps = Caps(
            responses=0,
            bytes=0,
            idle_seconds=IDLE_DAYS * DAY,
            idle_grace_seconds=0,
            named_idle_seconds=named_days * DAY,
        )
        history.caps = history._all_caps = caps  # pyright: ignore[reportPrivateUsage]
        conversations = Conversations(history)
        id = conversations.new_id()
        await conversations.create(TENANT, id, by_hand(conversations.new_turn_id(id), None, ()), b"{}")
        tip = (await conversations.lineage(TENANT, id))[-1]
        made = history.new_id(tip)
        await conversations.hold(TENANT, id, "one", 60.0)
        await conversations.advance(TENANT, id, turn(made, tip, text="hello"), hold="one")
        return Opened(history, conversations, id, made)

    return begin


async def is_there(store: Opened) -> bool:
    """Whether the conversation is known, and its response; both, or neither."""
    there: set[bool] = set()
    for read in (store.conversations.lineage(TENANT, store.id), store.history.lineage(TENANT, store.tip)):
        try:
            await read
        except NotFound:
            there.add(False)
        else:
            there.add(True)
    assert len(there) == 1
    return there.pop()


async def test_a_conversation_stays_with_what_is_in_it_however_long_nobody_uses_it(
    opened: Open, redis: Redis, prefix: str
) -> None:
    store = await opened()
    (other,) = await grow(store.history, "other")
    for _ in range(5):
        await leave_unused(redis, prefix, 1000)
        assert await is_there(store)
        with pytest.raises(NotFound):
            await store.history.lineage(TENANT, other)
        await store.history.sweep()
        assert await is_there(store)
    assert (await usage(store.history)).responses == 3
    assert (await store.conversations.chain(TENANT, store.id)).tip == store.tip


async def test_a_bound_takes_a_conversation_and_then_all_that_was_in_it(
    opened: Open, redis: Redis, prefix: str
) -> None:
    store = await opened(NAMED_DAYS)
    await leave_unused(redis, prefix, NAMED_DAYS - 1)
    await store.history.sweep()
    assert await is_there(store)
    assert (await usage(store.history)).responses == 3
    store = await opened(NAMED_DAYS)
    await leave_unused(redis, prefix, NAMED_DAYS + 1)
    await store.history.sweep()
    with pytest.raises(ConversationNotFound):
        await store.conversations.lineage(TENANT, store.id)
    with pytest.raises(NotFound):
        await store.history.lineage(TENANT, store.tip)


async def test_who_uses_a_conversation_begins_its_time_anew(opened: Open, redis: Redis, prefix: str) -> None:
    store = await opened(NAMED_DAYS)
    for use in (
        lambda: store.conversations.get(TENANT, store.id),
        lambda: store.history.get(TENANT, store.tip),
        lambda: store.conversations.chain(TENANT, store.id),
    ):
        await leave_unused(redis, prefix, NAMED_DAYS - 1)
        await store.history.sweep()
        await use()
    assert await is_there(store)


@pytest.mark.parametrize("bounds", [(0, 30), (30, 29)])
def test_a_conversation_is_not_kept_for_less_than_its_responses(bounds: tuple[int, int]) -> None:
    idle, named = bounds
    with pytest.raises(ValueError, match="named_idle_seconds"):
        Caps(idle_seconds=idle, named_idle_seconds=named)
