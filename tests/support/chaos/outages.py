"""A store that is killed at chosen steps of what is done to it, and started again on its folder."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from random import Random

from tests.support.chaos.fleet import Store
from tests.support.waiting import until

SOON_SECONDS = 0.003
"""Within so long after a step a command of it is under way."""

SECONDS = 30.0


class Outages:
    """Kills a store at steps, and starts it again."""

    def __init__(self, store: Store, chance: Random) -> None:
        self.url = store.url
        self._store = store
        self._chance = chance
        self._step: str | None = None
        self._amid = False
        self._restart: asyncio.Task[None] | None = None

    def order(self, step: str, *, amid: bool) -> None:
        """The next time that this step is come to, the store is killed, or soon after while others go on (`amid`)."""
        self._step, self._amid = step, amid

    async def at(self, step: str) -> None:
        if step != self._step:
            return
        self._step = None
        self._restart = asyncio.create_task(self._kill())
        if not self._amid:
            await self._restart

    async def over(self) -> None:
        """Wait until there was one, and the store is back."""
        await until(lambda: self._restart is not None, SECONDS, f"nobody comes to {self._step}")
        assert self._restart is not None
        await self._restart
        self._restart = None

    async def _kill(self) -> None:
        if self._amid:
            await asyncio.sleep(self._chance.uniform(0, SOON_SECONDS))
        self._store.kill()
        self._store.launch()
        await self._store.ready()


@asynccontextmanager
async def shaky_store(folder: Path, chance: int) -> AsyncIterator[Outages]:
    """The killer of a store that syncs each write, until the end of the block."""
    store = Store(folder, "always")
    store.launch()
    try:
        await store.ready()
        yield Outages(store, Random(chance))
    finally:
        store.kill()
