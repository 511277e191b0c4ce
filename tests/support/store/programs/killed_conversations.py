"""Processes that add to the same conversations until they are killed: `… URL PREFIX SEED AT_ONCE KILLS` (forked.py).

In each, some tasks hold a conversation, read it, and add to it or let go of it, and print what they are about to add
and what the store acknowledged.
"""

import asyncio
import os
import random
from contextlib import suppress

from store.errors import ConversationHeld, ConversationMoved
from store.history.conversations import Conversations
from store.history.history import ConversationHistoryStore
from store.redis.connection import connect
from tests.support.store.programs.forked import TIMEOUT_SECONDS, main, say
from tests.support.store.sample import TENANT
from tests.support.store.witness import witness

TASKS = 4
HELD_SECONDS = 0.5
"""For how long a conversation stays held by a process that was killed."""

GIVES_UP = 0.2
"""How often a run lets go of a conversation without adding to it."""


async def join(conversations: Conversations, chance: random.Random, bell: int) -> None:
    """Add to any of the conversations, again and again. Raises StoreUnavailable."""
    history = conversations.history
    while True:
        id = chance.choice(await conversations.listing(TENANT).some(10)).id
        hold = history.token()
        with suppress(ConversationHeld, ConversationMoved):
            await conversations.hold(TENANT, id, hold, HELD_SECONDS)
            tip = str((await conversations.chain(TENANT, id)).tip)
            if chance.random() < GIVES_UP:
                await conversations.release(TENANT, id, hold)
                continue
            new = history.new_id(tip)
            say("joining", new, id)
            await conversations.advance(TENANT, id, witness(TENANT, new, tip), hold=hold)
            say("joined", new, id)
            os.write(bell, b".")


async def work(url: str, prefix: str, seed: int, bell: int) -> None:
    """Add for ever. Raises StoreUnavailable, in a group, when the server is gone."""
    conversations = Conversations(
        ConversationHistoryStore(connect(url), prefix=prefix, timeout_seconds=TIMEOUT_SECONDS)
    )
    async with asyncio.TaskGroup() as group:
        for number in range(TASKS):
            group.create_task(join(conversations, random.Random(seed + number), bell))


if __name__ == "__main__":
    main(work)
