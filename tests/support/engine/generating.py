"""Between the engine's port, whose chunks are calls, and generators of chunks."""

import asyncio
from collections import deque
from collections.abc import AsyncGenerator
from contextlib import aclosing
from typing import Protocol

from service.engine.port import Between, Chunk, Generation, Take


class Samples(Protocol):
    """The part of an engine that samples."""

    async def sample(self, generation: Generation, take: Take, between: Between) -> None: ...


class GeneratingEngine:
    """An engine that is written as a generator. Each chunk comes in a turn of the loop of its own, as over a socket."""

    def generate(self, generation: Generation) -> AsyncGenerator[Chunk, None]:
        """The chunks; closed where no more are wanted."""
        raise NotImplementedError

    async def sample(self, generation: Generation, take: Take, between: Between) -> None:
        async with aclosing(self.generate(generation)) as chunks:
            async for chunk in chunks:
                if not take(chunk) and not await between():
                    return
                await asyncio.sleep(0)


async def generated(engine: Samples, generation: Generation) -> AsyncGenerator[Chunk, None]:
    """The chunks of an engine: another one is taken once it is asked for. Closing aborts."""
    waiting, changed, wanted = deque[Chunk](), asyncio.Event(), asyncio.Event()

    def take(chunk: Chunk) -> bool:
        waiting.append(chunk)
        changed.set()
        return False

    async def between() -> bool:
        await wanted.wait()
        wanted.clear()
        return True

    task = asyncio.create_task(engine.sample(generation, take, between))
    task.add_done_callback(lambda _: changed.set())
    try:
        while True:
            await changed.wait()
            changed.clear()
            while waiting:
                yield waiting.popleft()
            if task.done():
                task.result()
                return
            wanted.set()
    finally:
        task.cancel()
        await asyncio.wait([task])
