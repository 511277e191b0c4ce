"""Talks in random ways over a store until it is killed: `python talking.py URL PREFIX SEED`.

It runs with whatever release's `store` is on the path, so it uses nothing that changed since the oldest of them. What
it stores is in a list of ids that everybody who talks there appends to, and chooses from.
"""

import asyncio
import random
import sys

from store.errors import NotContinuable, NotFound, StoreFull
from store.history.caps import Caps
from store.history.history import ConversationHistoryStore
from store.redis.connection import connect
from store.turn import Status, StoredMessage, Turn

RESPONSES = 60
TENANT = "acme"
NEWEST = 80


async def talk(url: str, prefix: str, seed: int) -> None:
    """Append, fork, read and forget without end; whatever is evicted meanwhile is no surprise."""
    chance, redis = random.Random(seed), connect(url)
    caps = Caps(responses=RESPONSES)
    store = ConversationHistoryStore(connect(url), prefix=prefix, caps=caps)
    while True:
        known = [id.decode() for id in await redis.lrange(f"{prefix}-ids", -NEWEST, -1)]
        parent = chance.choice(known) if known and chance.random() < 0.7 else None
        pin = None
        try:
            if parent and chance.random() < 0.3:
                await store.get(TENANT, parent)
            if parent and chance.random() < 0.3:
                pin = (await store.chain(TENANT, parent, pin=store.token())).pin
            if parent and chance.random() < 0.2:
                await store.forget(TENANT, parent)
            if chance.random() < 0.05:
                await store.sweep()
            id = store.new_id(parent)
            said = StoredMessage("user", id.encode().ljust(56, b"\0"))
            await store.append(TENANT, Turn(id, parent, Status.COMPLETED, (said,), b"{}"), pin=pin)
            await redis.rpush(f"{prefix}-ids", id)
            pin = None
        except (NotFound, NotContinuable, StoreFull):
            pass
        if parent and pin:
            await store.unpin(TENANT, parent, pin)


if __name__ == "__main__":
    asyncio.run(talk(sys.argv[1], sys.argv[2], int(sys.argv[3])))
