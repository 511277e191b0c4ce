"""Conversations with a name: where they stand, who may add to them, and what of them stays, used or not."""

from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import NamedTuple

import pytest
from redis.asyncio import Redis

from store.errors import ConversationHeld, ConversationMoved, ConversationNotFound, NotFound
from store.history.caps import Caps
from store.history.conversations import Conversations, by_hand
from store.history.history import ConversationHistoryStore
from store.history.listing import Listing
from store.history.tree_turns import turns_of
from store.keys import conversation_id
from store.redis import scripts
from tests.support.store.backups import back_up, bring_back
from tests.support.store.counted import usage
from tests.support.store.fixtures import OpenStore
from tests.support.store.named import SHOWN, add, begun, tip_of, words
from tests.support.store.sample import DAY, TENANT, grow, leave_unused, turn
from tests.support.waiting import until

SECONDS = 600.0


async def listed(redis: Redis, prefix: str) -> list[tuple[str, float]]:
    found = await redis.zrange(f"{prefix}:{{00}}:conversations:{TENANT}", 0, -1, withscores=True)
    return [(conversation_id(digits.decode()), score) for digits, score in found]


async def ids_of(listing: Listing, at_once: int = 7) -> list[str]:
    found: list[str] = []
    while some := await listing.some(at_once):
        found += [each.id for each in some if each.shown is not None]
    return found


@pytest.mark.parametrize("shards", [1, 3, 40])
async def test_a_list_has_the_conversations_of_all_shards_in_order(open_store: OpenStore, shards: int) -> None:
    store = open_store(shards=shards)
    conversations = Conversations(store)
    ids = [await begun(conversations) for _ in range(60)]
    await begun(conversations, tenant="globex")
    for at_once in (1, 20, 100):
        assert await ids_of(conversations.listing(TENANT, ascending=True), at_once) == ids
        assert await ids_of(conversations.listing(TENANT), at_once) == ids[::-1]
    for place in (0, 30, 59):
        assert await ids_of(conversations.listing(TENANT, after=ids[place], ascending=True)) == ids[place + 1 :]
        assert await ids_of(conversations.listing(TENANT, after=ids[place])) == ids[:place][::-1]
    assert [each.shown for each in await conversations.listing(TENANT).some(3)] == [SHOWN] * 3


async def test_those_that_began_in_the_same_microsecond_are_listed_once(
    unaudited: ConversationHistoryStore, redis: Redis
) -> None:
    conversations = Conversations(unaudited)
    ids = sorted([await begun(conversations) for _ in range(30)])
    list_of = unaudited.keyspace.all_shards()[0].conversations_of(TENANT)
    await redis.zadd(list_of, {id.removeprefix("conv_"): 1_700_000_000_000_000 for id in ids})
    for ascending, expected in ((True, ids), (False, ids[::-1])):
        for place in range(30):
            listing = conversations.listing(TENANT, after=expected[place], ascending=ascending)
            assert await ids_of(listing, 1) == expected[place + 1 :]


async def test_what_is_deleted_or_begun_under_a_list_does_not_move_the_others(conversations: Conversations) -> None:
    ids = [await begun(conversations) for _ in range(30)]
    listing = conversations.listing(TENANT)
    assert [each.id for each in await listing.some(10)] == ids[:19:-1]
    for gone in (ids[20], ids[19], ids[5]):
        await conversations.delete(TENANT, gone)
    newer = await begun(conversations)
    rest = [id for id in ids[18::-1] if id != ids[5]]
    assert await ids_of(listing) == rest
    assert await ids_of(conversations.listing(TENANT)) == [newer, *ids[:20:-1], *rest]


async def test_a_hold_that_nobody_renews_is_over(conversations: Conversations) -> None:
    id = await begun(conversations)
    await conversations.hold(TENANT, id, "one", 0.05)

    async def held_by_another() -> bool:
        try:
            await conversations.hold(TENANT, id, "two", SECONDS)
        except ConversationHeld:
            return False
        return True

    await until(held_by_another)


async def test_who_began_before_another_added_to_a_conversation_adds_nothing(conversations: Conversations) -> None:
    id = await begun(conversations, text="one")
    tip = await tip_of(conversations, id)
    await add(conversations, id, "two")
    with pytest.raises(ConversationMoved):
        await conversations.advance(TENANT, id, turn(conversations.history.new_id(tip), tip), hold="late")
    assert await words(conversations, id) == ["one", "two"]


async def test_a_conversation_that_was_used_since_the_archive_was_asked_of_it_stays(
    conversations: Conversations,
) -> None:
    id = await begun(conversations, text="one")
    store = conversations.history
    (word,) = await store.server.run(scripts.let_go, store.keyspace.conversation(TENANT, id), used="1")
    assert word == b"changed"
    assert await words(conversations, id) == ["one"]


async def test_a_fork_goes_on_although_its_source_is_deleted_or_moves_meanwhile(conversations: Conversations) -> None:
    id = await begun(conversations, text="hello")
    (response,) = await add(conversations, id, "a")
    chains = [await conversations.branch(TENANT, id, conversations.history.token()) for _ in range(3)]
    await conversations.history.forget(TENANT, response)  # it is the tip, and stays while somebody may continue it
    await add(conversations, id, "b")
    await conversations.delete(TENANT, id)
    for chain in chains[:2]:
        other = conversations.new_id(id)
        first = turn(conversations.new_turn_id(other), chain.tip, text="c")
        await conversations.create(TENANT, other, first, SHOWN, pin=str(chain.pin))
        assert await words(conversations, other) == ["hello", "a", "c"]
    await conversations.history.unpin(TENANT, str(chains[2].tip), str(chains[2].pin))


async def test_what_was_added_by_hand_is_no_response(conversations: Conversations) -> None:
    id = await begun(conversations, text="hello")
    (by_hand,) = await conversations.lineage(TENANT, id)
    for call in (conversations.history.get, conversations.history.forget):
        with pytest.raises(NotFound):
            await call(TENANT, by_hand)


async def test_a_tree_without_a_response_is_deleted_by_a_turn_that_was_added_by_hand(
    conversations: Conversations,
) -> None:
    id = await begun(conversations, text="hello")
    (by_hand,) = await conversations.lineage(TENANT, id)
    await conversations.history.forget_tree(TENANT, by_hand)
    with pytest.raises(NotFound):
        await turns_of(conversations.history, TENANT, by_hand)
    with pytest.raises(ConversationNotFound):
        await conversations.get(TENANT, id)


async def test_a_conversation_comes_back_from_a_backup(
    conversations: Conversations, open_store: OpenStore, server_url: str, redis: Redis, prefix: str, tmp_path: Path
) -> None:
    id = await begun(conversations, text="hello")
    ids = await add(conversations, id, *map(str, range(40)))
    await conversations.amend(TENANT, id, b'{"metadata":{"a":"b"}}')
    await conversations.history.forget(TENANT, ids[-1])
    path = tmp_path / "backup"
    await back_up(server_url, prefix, path)
    other = open_store(f"{prefix}-other")
    await bring_back(server_url, f"{prefix}-other", path)
    assert await listed(redis, f"{prefix}-other") == await listed(redis, prefix)
    restored = Conversations(other)
    assert await restored.get(TENANT, id) == b'{"metadata":{"a":"b"}}'
    assert await words(restored, id) == await words(conversations, id)
    await add(restored, id, "more")
    assert (await words(restored, id))[-2:] == ["39", "more"]


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
