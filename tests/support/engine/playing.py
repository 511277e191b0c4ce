"""A server that plays bytes over real sockets, for tests of connections: what it says is for each test to say."""

import asyncio
import ssl
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass, field

from service.engine.names import ServerAddress
from service.engine.servers.connection import Target, target_of

OK = b"HTTP/1.1 200 OK\r\ncontent-length: 2\r\n\r\nok"

Play = Callable[["Call"], Awaitable[None]]


@dataclass
class Call:
    """One connection, as the server has it."""

    reader: asyncio.StreamReader
    writer: asyncio.StreamWriter
    heads: list[bytes] = field(default_factory=list)
    """The heads of the requests that came over it."""
    ended: asyncio.Event = field(default_factory=asyncio.Event)
    """Set once the other side has hung up, or this one has."""

    async def asked(self) -> bytes:
        """The body of the next request."""
        head = await self.reader.readuntil(b"\r\n\r\n")
        self.heads.append(head)
        length = int(head.lower().partition(b"content-length: ")[2].partition(b"\r\n")[0])
        return await self.reader.readexactly(length)


async def answering(call: Call) -> None:
    """Answer every request, as long as any come."""
    while True:
        await call.asked()
        call.writer.write(OK)


@dataclass
class Player:
    """The server; `calls` are all connections that there were."""

    play: Play = answering
    calls: list[Call] = field(default_factory=list)
    port: int = 0
    tls: bool = False

    def target(self, host: str = "127.0.0.1", certified: str = "") -> Target:
        url = f"{'https' if self.tls else 'http'}://{host}:{self.port}"
        return target_of(ServerAddress(url, url, certified=certified))

    async def take(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """Play what is to be played over a connection."""
        call = Call(reader, writer)
        self.calls.append(call)
        try:
            await self.play(call)
            await reader.read()
        except (asyncio.IncompleteReadError, OSError):  # it was hung up on
            pass
        finally:
            call.ended.set()
            writer.transport.abort()


@asynccontextmanager
async def playing(play: Play = answering, *, tls: ssl.SSLContext | None = None) -> AsyncIterator[Player]:
    """A server until the end of the block."""
    player = Player(play, tls=tls is not None)
    server = await asyncio.start_server(player.take, "127.0.0.1", 0, ssl=tls)
    player.port = server.sockets[0].getsockname()[1]
    try:
        yield player
    finally:
        server.close()
        for call in player.calls:
            call.writer.transport.abort()
        await asyncio.gather(*(call.ended.wait() for call in player.calls))
