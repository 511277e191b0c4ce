"""How the servers of an engine are reached: small answers in one piece, streams as they come."""

import asyncio
import ssl
from collections.abc import Awaitable, Callable

from service.engine.connections.incoming import Broken
from service.engine.connections.outgoing import Target
from service.engine.connections.pool import Pool

BEARER = "Bearer "


class Contact:
    """The connections to all servers of an engine. The callers bound how many streams there are."""

    def __init__(self, *, keeps: bool, api_key: str, connect_seconds: float, tls: ssl.SSLContext | None = None) -> None:
        """`keeps` is whether a connection may be used again behind an answer. `tls` is what the servers' certificates
        are verified with, None is by the authorities that the system knows.
        """
        self.api_key = api_key
        self.headers = {"content-type": "application/json", "accept": "*/*"}
        """What every request has."""
        if api_key:
            self.headers["authorization"] = BEARER + api_key
        self.pool = Pool(keeps=keeps, connect_seconds=connect_seconds, tls=tls)

    async def ask(
        self, target: Target, method: str, path: str, body: bytes | None, *, seconds: float, most: int
    ) -> tuple[int, bytes]:
        """The status and the body of a small request, which may take so many seconds. Of a body that is larger than
        `most` only the beginning. Raises OSError, of which TimeoutError is one.

        A request without a body is sent once more where a connection breaks: the server may have closed one that was
        idle just as it was taken.
        """
        async with asyncio.timeout(seconds):
            try:
                return await self._asked(target, method, path, body or b"", most)
            except Broken:
                if body is not None:
                    raise
            return await self._asked(target, method, path, b"", most)

    async def _asked(self, target: Target, method: str, path: str, body: bytes, most: int) -> tuple[int, bytes]:
        connection = await self.pool.send(method, target, path, self.headers, body)
        try:
            return connection.answer.status, await bounded(connection.read, most)
        finally:
            connection.leave()

    async def close(self) -> None:
        """Hang up on all."""
        await self.pool.close()


async def bounded(read: Callable[[], Awaitable[bytes]], most: int) -> bytes:
    """All that can be read, as far as it is of a sensible size; nothing read is the end."""
    body = bytearray()
    while len(body) <= most and (piece := await read()):
        body += piece
    return bytes(body)
