"""A process that owns an embedded server and appends for as long as it lives: `python owner.py FOLDER`.

Prints the server's process id, then each turn's id once its append was acknowledged.
"""

import asyncio
import sys
from pathlib import Path

from store.embedded import EmbeddedServer
from store.history.history import ConversationHistoryStore
from store.redis.connection import connect
from tests.support.store.sample import TENANT, turn


async def append_for_ever(url: str) -> None:
    """One chain that grows by a turn a line."""
    store = ConversationHistoryStore(connect(url), timeout_seconds=15.0)
    parent: str | None = None
    while True:
        tip = store.new_id(parent)
        await store.append(TENANT, turn(tip, parent))
        print(tip, flush=True)
        parent = tip


if __name__ == "__main__":
    with EmbeddedServer(Path(sys.argv[1])) as server:
        print(server.pid, flush=True)
        asyncio.run(append_for_ever(server.url))
