"""One runner for whatever dies at each step of something: a table of rows, and a part of one store for each of them."""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable
from contextlib import asynccontextmanager
from pathlib import Path
from random import Random
from typing import TypeVar

from service.settings.settings import Settings
from tests.support.chaos.fleet import Store
from tests.support.chaos.mortals import Mortals, mortals
from tests.support.chaos.outages import Outages

AT_ONCE = 16

Row = TypeVar("Row")

Make = Callable[[str], Settings]
"""Settings over a part of a store, which nobody else has."""


async def each_dies(
    rows: Iterable[Row], die: Callable[[Mortals, Settings, Row], Awaitable[object]], make: Make, prefix: str = "row"
) -> None:
    """Let something die for each row, many at once; a failure names its row."""
    turns = asyncio.Semaphore(AT_ONCE)

    async def one(number: int, row: Row) -> None:
        async with turns:
            try:
                await die(program, await asyncio.to_thread(make, f"{prefix}-{number}"), row)
            except BaseException as error:
                error.add_note(str(row))
                raise

    async with mortals() as program, asyncio.TaskGroup() as group:
        for number, row in enumerate(rows):
            group.create_task(one(number, row))


@asynccontextmanager
async def shaky_store(folder: Path, fsync: str, chance: int) -> AsyncIterator[Outages]:
    """The killer of a store at steps, until the end of the block. `fsync` is when that syncs its file."""
    store = Store(folder, fsync)
    store.launch()
    try:
        await store.ready()
        yield Outages(store, Random(chance))
    finally:
        store.kill()
