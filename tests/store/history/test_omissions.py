"""What a conversation goes without, and what is taken out of a turn for good: nobody else's messages move for it."""

import asyncio

import pytest
from redis.asyncio import Redis

from store.errors import NotFound
from store.history.conversations import Conversations, by_hand
from store.history.omissions import omission, omitting, without_text
from store.keys import OMISSION_MARK
from store.turn import Messages, Status, StoredMessage, Turn
from tests.support.store.audit import dump
from tests.support.store.named import words
from tests.support.store.sample import TENANT

HELD_SECONDS = 60.0


def of(*texts: str) -> Messages:
    """Messages that show one item each, with numbers from 0 on."""
    return tuple(StoredMessage("user", text.encode().ljust(8, b"\0"), item=at) for at, text in enumerate(texts))


async def begun(conversations: Conversations, *texts: str) -> str:
    id = conversations.new_id()
    await conversations.create(TENANT, id, by_hand(conversations.new_turn_id(id), None, of(*texts)), b"{}")
    return id


async def add(conversations: Conversations, id: str, *texts: str) -> str:
    tip = (await conversations.chain(TENANT, id)).tip
    made = conversations.history.new_id(tip)
    await conversations.hold(TENANT, id, made, HELD_SECONDS)
    await conversations.advance(TENANT, id, Turn(made, tip, Status.COMPLETED, of(*texts), b"{}"), hold=made)
    return made


async def omit(conversations: Conversations, id: str, turn: str, item: int) -> None:
    tip = (await conversations.chain(TENANT, id)).tip
    note = omitting(turn, await conversations.history.messages(TENANT, turn), item)
    made = omission(conversations.new_turn_id(id, OMISSION_MARK), str(tip), note, b"{}")
    await conversations.hold(TENANT, id, made.id, HELD_SECONDS)
    await conversations.advance(TENANT, id, made, hold=made.id)


async def test_a_chain_goes_without_what_was_omitted_on_its_way(conversations: Conversations) -> None:
    id = await begun(conversations, "a", "b")
    first = await add(conversations, id, "c", "d")
    await omit(conversations, id, first, 0)
    assert await words(conversations, id) == ["a", "b", "d"]
    later = await add(conversations, id, "e")
    root = (await conversations.lineage(TENANT, id))[0]
    await omit(conversations, id, root, 1)
    await omit(conversations, id, first, 1)
    assert await words(conversations, id) == ["a", "e"]
    aside = await conversations.history.chain(TENANT, later)
    assert [message.tokens.rstrip(b"\0") for message in aside.messages()] == [b"a", b"b", b"d", b"e"]
    before = await conversations.history.chain(TENANT, first)
    assert len(before.messages()) == 4
    assert (aside.cut, before.cut) == (True, False)


async def test_redactions_at_once_lose_none(conversations: Conversations) -> None:
    id = await begun(conversations, *map(str, range(6)))
    root = (await conversations.lineage(TENANT, id))[0]
    edits = [lambda m, r, i, item=item: (without_text(m, item), r, i) for item in range(5)]
    await asyncio.gather(*(conversations.history.redact(TENANT, root, edit) for edit in edits))
    assert await words(conversations, id) == ["5"]


async def test_what_was_redacted_can_be_deleted_and_erased_whole(
    conversations: Conversations, redis: Redis, prefix: str
) -> None:
    id = await begun(conversations)
    made = await add(conversations, id, "a", "b")
    await add(conversations, id, "c")
    history = conversations.history
    await history.redact(TENANT, made, lambda m, r, i: (without_text(m, 0), r, i))
    await history.forget(TENANT, made)
    assert await words(conversations, id) == ["b", "c"]
    with pytest.raises(NotFound):
        await history.forget(TENANT, made, erase=True)
    assert await words(conversations, id) == ["c"]
    assert not any("remains" in key for key in await dump(redis, prefix))
