"""Every operation of the store by name, to be tried against servers that are well, ill or far away."""

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any

from sample import TENANT, turn

from store.history import ConversationHistoryStore

OPERATIONS: dict[str, Callable[[ConversationHistoryStore, str], Awaitable[Any]]] = {
    "chain": lambda store, id: store.chain(TENANT, id),
    "append": lambda store, id: store.append(TENANT, turn(store.new_id(id), id)),
    "unpin": lambda store, id: store.unpin(TENANT, id, "pin"),
    "get": lambda store, id: store.get(TENANT, id),
    "items": lambda store, id: store.items(TENANT, [id]),
    "lineage": lambda store, id: store.lineage(TENANT, id),
    "forget": lambda store, id: store.forget(TENANT, id),
    "forget_tree": lambda store, id: store.forget_tree(TENANT, id),
    "sweep": lambda store, id: store.sweep(),
    "usage": lambda store, id: store.usage(),
    "check": lambda store, id: store.check(),
}


async def read_and_cut(store: ConversationHistoryStore, ids: list[str]) -> None:
    """Cancel reads of turns that say `text` and their number, and assert that the next ones get their own replies."""
    for ticks in range(40):  # each round is cut somewhere else, from finding a connection to reading a reply
        reads = [asyncio.create_task(store.get(TENANT, id)) for id in ids]
        for _ in range(ticks):
            await asyncio.sleep(0)
        for read in reads:
            read.cancel()
        await asyncio.gather(*reads, return_exceptions=True)
        answers = await asyncio.gather(*(store.get(TENANT, id) for id in ids))
        assert answers == [turn(id, text=f"text {number}").response for number, id in enumerate(ids)]
