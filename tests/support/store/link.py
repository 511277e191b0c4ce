"""A TCP link to a server that may be slow, may lose replies, or may stand still, as networks do; and that leads to
another server from a moment on, as DNS and virtual IPs do. Connections that are open stay where they led.
"""

import asyncio
import random
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager, suppress

from tests.support.serving import stop_listening

PIECE_BYTES = 1 << 16


class Link:
    """Where it leads, and what happens to what is sent over it; all may be changed at any time."""

    def __init__(self, target: int, chance: random.Random) -> None:
        self.target = target
        self.port = 0
        self.lost = 0
        """How many replies were lost so far."""
        self.delay_seconds = 0.0
        """How long each reply takes."""
        self.losses = 0.0
        """Of how many replies the connection is cut in the place of the reply, from 0 to 1."""
        self.loses_next = 0
        """How many replies are lost next, for certain."""
        self.refuses = False
        self.stands_still = False
        self._chance = chance
        self._moves = asyncio.Event()
        self._tasks: set[asyncio.Task[None]] = set()
        self._writers: set[asyncio.StreamWriter] = set()
        self._clients: list[tuple[int, asyncio.StreamWriter]] = []

    @property
    def url(self) -> str:
        """Its address, as a URL of Redis has it."""
        return f"redis://127.0.0.1:{self.port}/0"

    def leading_to(self, target: int) -> int:
        """How many connections are open to a port."""
        return sum(each == target and not client.is_closing() for each, client in self._clients)

    def accept(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.create_task(self._serve(reader, writer))
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    def cut(self) -> None:
        for writer in list(self._writers):
            writer.transport.abort()

    async def end(self) -> None:
        """Cut all connections, and wait for what they leave."""
        for task in list(self._tasks):
            task.cancel()
        self.cut()
        await asyncio.gather(*self._tasks, return_exceptions=True)

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        if self.refuses:
            writer.transport.abort()
            return
        self._clients.append((self.target, writer))
        there, back = await asyncio.open_connection("127.0.0.1", self.target)
        both = {writer, back}
        self._writers |= both
        try:
            await asyncio.gather(self._pass_on(reader, back, replies=False), self._pass_on(there, writer, replies=True))
        finally:
            for each in both:
                each.transport.abort()
            self._writers -= both

    async def _pass_on(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, *, replies: bool) -> None:
        with suppress(OSError):
            while piece := await reader.read(PIECE_BYTES):
                while self.stands_still:
                    await self._moves.wait()
                if replies:
                    await asyncio.sleep(self.delay_seconds)
                    if self.loses_next or self._chance.random() < self.losses:
                        self.loses_next = max(0, self.loses_next - 1)
                        self.lost += 1
                        writer.transport.abort()
                        return
                writer.write(piece)
                await writer.drain()
        writer.close()


@asynccontextmanager
async def link(target: int, seed: int = 0) -> AsyncGenerator[Link]:
    """A link to a port of this machine, which does nothing to what is sent at first."""
    made = Link(target, random.Random(seed))
    server = await asyncio.start_server(made.accept, "127.0.0.1", 0)
    made.port = server.sockets[0].getsockname()[1]
    try:
        yield made
    finally:
        await stop_listening(server)
        await made.end()
