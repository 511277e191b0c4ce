"""How the servers of an engine are reached: what is small in one piece, what they generate as it comes."""

import ssl
from collections.abc import Awaitable, Callable
from typing import Any

import aiohttp

from service.engine.connections.dialing import watched_socket
from service.engine.connections.outgoing import AGENT
from service.engine.connections.pool import IDLE_SECONDS, Pool
from service.engine.names import Place

JSON = {"content-type": "application/json"}
BEARER = "Bearer "


class Contact:
    """The connections to all servers of an engine. How many there are is for who opens streams to bound."""

    def __init__(self, *, keeps: bool, api_key: str, connect_seconds: float, tls: ssl.SSLContext | None = None) -> None:
        """`keeps` is whether a connection may be used again behind an answer. `tls` is what the servers' certificates
        are verified with, None is by the authorities that the system knows.
        """
        self.api_key = api_key
        self.headers = {**JSON, **({"authorization": BEARER + api_key} if api_key else {})}
        """What every request has."""
        self.pool = Pool(keeps=keeps, connect_seconds=connect_seconds, tls=tls)
        """What is posted and streamed."""
        keeping: dict[str, Any] = {"keepalive_timeout": IDLE_SECONDS} if keeps else {"force_close": True}
        self._session = aiohttp.ClientSession(
            connector=aiohttp.TCPConnector(limit=0, socket_factory=watched_socket, ssl=tls or True, **keeping),
            timeout=aiohttp.ClientTimeout(total=None, sock_connect=connect_seconds),
            headers={**self.headers, "user-agent": AGENT},
            auto_decompress=False,
            skip_auto_headers=("accept-encoding",),
            cookie_jar=aiohttp.DummyCookieJar(),
        )

    async def ask(
        self, place: Place, method: str, path: str, body: bytes | None, *, seconds: float, most: int
    ) -> tuple[int, bytes]:
        """The status and the body of a small request, which may take so many seconds. Of a body that is larger than
        `most` only the beginning. Raises aiohttp.ClientError, OSError and TimeoutError.
        """
        async with self._session.request(
            method,
            place.url + path,
            data=body,
            headers={"host": place.host} if place.host else {},
            timeout=aiohttp.ClientTimeout(total=seconds),
            allow_redirects=False,
            server_hostname=place.certified or None,
        ) as response:
            return response.status, await bounded(response.content.readany, most)

    async def close(self) -> None:
        """Hang up on all."""
        await self.pool.close()
        await self._session.close()


async def bounded(read: Callable[[], Awaitable[bytes]], most: int) -> bytes:
    """All that can be read, as far as it is of a sensible size; nothing read is the end."""
    body = bytearray()
    while len(body) <= most and (piece := await read()):
        body += piece
    return bytes(body)
