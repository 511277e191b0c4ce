"""Conversations that grow while a test takes servers away: each repeats what failed, and knows what was acknowledged.

After a failover nothing that was acknowledged may be lost, and nothing may be there twice.
"""

import asyncio
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager

from store.errors import StoreUnavailable
from store.history.history import ConversationHistoryStore
from tests.support.store.sample import TENANT, said, turn
from tests.support.store.servers import eventually
from tests.support.waiting import until

HEALED_SECONDS = 5.0
"""The most that a failover may keep any conversation from growing, once a server is there for it."""


class Talkers:
    """Conversations, by the ids of their turns that were acknowledged."""

    def __init__(self, store: ConversationHistoryStore, talkers: int) -> None:
        self.store = store
        self.acknowledged: list[list[str]] = [[] for _ in range(talkers)]
        self.over = asyncio.Event()

    @property
    def turns(self) -> int:
        """How many turns were acknowledged."""
        return sum(map(len, self.acknowledged))

    async def grown(self, turns: int, seconds: float = HEALED_SECONDS) -> None:
        """Wait until each conversation has so many more turns than now. Raises TimeoutError."""
        wanted = [len(ids) + turns for ids in self.acknowledged]
        await until(lambda: all(len(ids) >= most for ids, most in zip(self.acknowledged, wanted, strict=True)), seconds)

    async def talk(self, ids: list[str]) -> None:
        """Continue one conversation until it is over."""
        while not self.over.is_set():
            parent = ids[-1] if ids else None
            new = turn(self.store.new_id(parent), parent, text=str(len(ids)))
            await eventually(lambda new=new: self.store.append(TENANT, new), StoreUnavailable)
            ids.append(new.id)

    async def check(self) -> None:
        """Assert that all is there, and once."""
        for ids in self.acknowledged:
            assert (await self.store.chain(TENANT, ids[-1])).ids == tuple(ids)
            assert await said(self.store, ids[-1]) == [str(number) for number in range(len(ids))]


@asynccontextmanager
async def talking(store: ConversationHistoryStore, talkers: int) -> AsyncGenerator[Talkers]:
    """So many conversations that grow until the end of the block, and are checked then."""
    made = Talkers(store, talkers)
    tasks = [asyncio.create_task(made.talk(ids)) for ids in made.acknowledged]
    try:
        await made.grown(10, seconds=60.0)
        yield made
    finally:
        made.over.set()
        await asyncio.gather(*tasks)
    await made.check()
