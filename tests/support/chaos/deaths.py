"""One runner for whatever dies at each step of something.

A scenario is a table of rows, each of which names a step, and a function that lets somebody die there and checks what
is left. All rows share one store, of which each has a part, and one program whose processes die (mortals.py).
"""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable, Sequence
from contextlib import AbstractContextManager, AsyncExitStack, asynccontextmanager
from pathlib import Path
from typing import Any, NamedTuple, TypeVar

from service.process import Settings, load_settings
from store.embedded import EmbeddedServer
from store.redis.connection import connect
from store.redis.scripts import ALL
from tests.support.chaos.inside import WatchedEngine
from tests.support.chaos.mortals import Mortals, mortals
from tests.support.chaos.storm import STEADY
from tests.support.service.inside import serving
from tests.support.service.process import MODEL

AT_ONCE = 16
TOKENS_PER_SECOND = 400

Shared = TypeVar("Shared")


class Stage:
    """Where rows are played."""

    def __init__(self, program: Mortals, folder: Path, redis_url: str, block: AsyncExitStack) -> None:
        """All that is opened on it for several rows is closed with `block`."""
        self.program, self.folder, self.redis_url = program, folder, redis_url
        self._block, self._opened, self._turn = block, dict[object, Any](), asyncio.Lock()
        self._parts = 0

    def settings(self, **more: Any) -> Settings:
        """Settings over an empty part of the store."""
        self._parts += 1
        common = STEADY | {"demo_tokens_per_second": TOKENS_PER_SECOND}
        return load_settings(redis_url=self.redis_url, redis_prefix=f"part-{self._parts}", **(common | more))

    async def shared(self, opening: Callable[[Path], AbstractContextManager[Shared]]) -> Shared:
        """The value of `opening`, which is entered once for all rows, with a folder of its own."""
        async with self._turn:
            if opening not in self._opened:
                folder = self.folder / f"shared-{len(self._opened)}"
                self._opened[opening] = await asyncio.to_thread(self._block.enter_context, opening(folder))
        return self._opened[opening]


Die = Callable[..., Awaitable[object]]
"""Lets somebody die on a stage at a row's step, or within so many seconds behind it, and checks what is left."""


class Scenario(NamedTuple):
    """A process that dies at each step of some work."""

    die: Die
    rows: Sequence[Any] | Callable[[Stage], Awaitable[Sequence[Any]]]
    pushed: Any
    """The row that is played on each push."""
    soon_turns: int = 0
    """How often all are played in the long form with deaths at some moment soon behind the step."""

    async def all_rows(self, stage: Stage) -> Sequence[Any]:
        return await self.rows(stage) if callable(self.rows) else self.rows


@asynccontextmanager
async def staged(folder: Path) -> AsyncIterator[Stage]:
    """A stage, until the end of the block."""
    with EmbeddedServer(folder / "store") as server:
        async with AsyncExitStack() as block, mortals() as program:
            stage = Stage(program, folder, server.url, block)
            await _warm_up(stage.settings())
            yield stage


async def _warm_up(settings: Settings) -> None:
    """Load all scripts, so that a step is one of every row and not of the first alone, and answer once, so that what a
    process does at its first request holds up no row.
    """
    async with connect(settings.redis_url) as redis:
        for script in ALL:
            await redis.function_load(script.library)
    async with serving(settings, WatchedEngine(TOKENS_PER_SECOND)) as inside, inside.client() as client:
        await client.responses.create(model=MODEL, input="Count to 2.")


async def each_dies(stage: Stage, plays: Iterable[tuple[Die, Any]], **how: float) -> None:
    """Play rows, many at once; a failure names its row."""
    turns = asyncio.Semaphore(AT_ONCE)

    async def one(die: Die, row: Any) -> None:
        async with turns:
            try:
                await die(stage, row, **how)
            except BaseException as error:
                error.add_note(f"{die.__module__}: {row}")
                raise

    async with asyncio.TaskGroup() as group:
        for die, row in plays:
            group.create_task(one(die, row))
