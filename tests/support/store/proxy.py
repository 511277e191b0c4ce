"""A TCP proxy before a server: an address that leads to another server from a moment on, as DNS and virtual IPs do.

Connections that are open stay where they led. Never close them: what is tested is that others do.
"""

import asyncio
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager, suppress

from tests.support.store.servers import Process

PIECE_BYTES = 1 << 16


class Proxy:
    """An address, and where connections to it lead from now on."""

    def __init__(self, target: Process) -> None:
        self.target = target
        self.port = 0
        self.tasks: set[asyncio.Task[None]] = set()
        self._open: list[tuple[Process, asyncio.StreamWriter]] = []

    @property
    def clients(self) -> list[asyncio.StreamWriter]:
        """The connections to it, open and closed ones."""
        return [client for _, client in self._open]

    @property
    def url(self) -> str:
        """The address, as a URL has it."""
        return f"redis://127.0.0.1:{self.port}/0"

    def leading_to(self, target: Process) -> int:
        """How many connections are open to a server."""
        return sum(each is target and not client.is_closing() for each, client in self._open)

    def accept(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """Take a connection."""
        self.tasks.add(asyncio.create_task(self._serve(reader, writer)))

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """Pass one connection on, until either end closes it."""
        target = self.target
        self._open.append((target, writer))
        there, back = await asyncio.open_connection("127.0.0.1", target.port)
        await asyncio.gather(_pass_on(reader, back), _pass_on(there, writer))


async def _pass_on(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    with suppress(OSError):
        while piece := await reader.read(PIECE_BYTES):
            writer.write(piece)
            await writer.drain()
    writer.close()


@asynccontextmanager
async def proxy(target: Process) -> AsyncGenerator[Proxy]:
    """A proxy on a free port, which leads to `target` at first."""
    made = Proxy(target)
    server = await asyncio.start_server(made.accept, "127.0.0.1", 0)
    made.port = server.sockets[0].getsockname()[1]
    try:
        yield made
    finally:
        server.close()
        for client in made.clients:
            client.close()
        await asyncio.gather(*made.tasks)
