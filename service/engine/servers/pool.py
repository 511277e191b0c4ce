"""Connections that are kept: a request goes over one that is idle, or over a new one.

Those to one peer are kept for it alone, the last that became idle goes out first, and what is idle for too long is
closed. The callers bound how many there are. A new one is dialed at addresses of both families, with its socket watched
and its certificate verified; small answers come in one piece, and streams as they come.
"""

import asyncio
import socket
import ssl
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, Sequence
from functools import cache, partial
from typing import Any
from weakref import WeakValueDictionary

from aiohappyeyeballs import start_connection  # pyright: ignore[reportUnknownVariableType]

from service.engine.servers.connection import Broken, Peer, RequestTarget, ServerConnection, head

IDLE_SECONDS = 3.0
"""How long an unused connection is kept: less than the 5 s after which vLLM and llama.cpp close it, so that no request
meets that."""

NEXT_SECONDS = 0.25
"""How long one address is tried alone before the next one is tried beside it (RFC 8305, section 5)."""

DIALED_AT_ONCE = 32
"""How many connections to one peer may be made at the same time; the others wait. Many servers have a queue of some 100
for those that they haven't accepted yet. The kernel drops any further one, and tries again a second later, and then
again after two and four: longer than a connection may take."""

KEEPALIVE = {"TCP_KEEPIDLE": 30, "TCP_KEEPINTVL": 10, "TCP_KEEPCNT": 3}
"""Seconds, seconds and probes after which the kernel gives up a peer that is gone."""


class Unconnected(OSError):
    """No connection came about, so that nothing was sent."""


Addresses = Callable[[Peer], Awaitable[Sequence[Any]]]
"""Finds the addresses of a peer, as getaddrinfo has them. Raises OSError."""

SocketFactory = Callable[[tuple[Any, ...]], socket.socket]


async def system_addresses(peer: Peer) -> Sequence[Any]:
    try:
        return socket.getaddrinfo(peer.host, peer.port, type=socket.SOCK_STREAM, flags=socket.AI_NUMERICHOST)
    except socket.gaierror:  # it is a name
        look_up = asyncio.get_running_loop().getaddrinfo
        return await look_up(peer.host, peer.port, type=socket.SOCK_STREAM, flags=socket.AI_ADDRCONFIG)


def watched_socket(address: tuple[Any, ...]) -> socket.socket:
    """A socket on which the kernel notices that the other machine is gone."""
    connection = socket.socket(*address[:3])
    connection.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
    for option, value in KEEPALIVE.items():
        if hasattr(socket, option):
            connection.setsockopt(socket.IPPROTO_TCP, getattr(socket, option), value)
    return connection


_JSON = {"content-type": "application/json", "accept": "*/*"}


class Pool:
    """The connections to all servers of an engine, and what is asked over them; or those of another client."""

    def __init__(
        self,
        *,
        keeps: bool,
        connect_seconds: float | None,
        api_key: str = "",
        tls: ssl.SSLContext | None = None,
        idle_seconds: float = IDLE_SECONDS,
        headers: Mapping[str, str] = _JSON,
        addresses: Addresses = system_addresses,
        socket_factory: SocketFactory = watched_socket,
        unix: str = "",
    ) -> None:
        """`keeps` is whether a connection may be used again behind an answer; where not, each request has its own.
        `connect_seconds` is how long one may take, TLS included; None is as long as the caller lets it. `tls` verifies
        the servers' certificates; None is by the authorities that the system knows. `headers` are those of every
        request. With `unix` all go to the Unix socket at this path.
        """
        self.api_key = api_key
        self._headers = dict(headers)
        if not keeps:
            self._headers["connection"] = "close"
        if api_key:
            self._headers["authorization"] = f"Bearer {api_key}"
        self._keeps = keeps
        self._connect_seconds = connect_seconds
        self._tls = tls
        self._idle_seconds = idle_seconds
        self._addresses, self._socket_factory, self._unix = addresses, socket_factory, unix
        self._turns: WeakValueDictionary[Peer, asyncio.Semaphore] = WeakValueDictionary()
        """The semaphores that limit connecting to a peer, as long as anybody waits for one."""
        self._idle: dict[Peer, dict[ServerConnection, asyncio.TimerHandle]] = {}
        self._open: set[ServerConnection] = set()
        self._closed = False
        self._empty = asyncio.Event()

    @property
    def open(self) -> int:
        return len(self._open)

    async def send(
        self, method: str, target: RequestTarget, path: str, headers: Mapping[str, str], body: bytes
    ) -> ServerConnection:
        """A connection with the head of the answer, whose body is unread. The caller has to `leave` it.

        Raises Unconnected where nothing was sent, Broken where the server may have begun, and ValueError for headers
        that are none.
        """
        said = head(method, target, path, {**self._headers, **headers}, len(body))
        connection = self._take(target.peer) or await self._dial(target.peer)
        connection.send(said, body)
        try:
            return await connection.head()
        except BaseException:
            connection.abort()
            raise

    async def send_parts(
        self,
        method: str,
        target: RequestTarget,
        path: str,
        headers: Mapping[str, str],
        parts: AsyncIterator[bytes],
        *,
        stall_seconds: float,
    ) -> ServerConnection:
        """As `send`, with a body that comes in parts, over a new connection. Raises TimeoutError, too, where the other
        end takes nothing for so long, or doesn't answer.
        """
        said = head(method, target, path, {**self._headers, **headers}, None)
        connection = await self._dial(target.peer)
        try:
            await connection.send_parts(said, parts, stall_seconds)
            async with asyncio.timeout(stall_seconds):
                return await connection.head()
        except BaseException:
            connection.abort()
            raise

    async def ask(
        self, target: RequestTarget, method: str, path: str, body: bytes | None, *, seconds: float, most: int
    ) -> tuple[int, bytes]:
        """The status and the body of a small request, which may take so many seconds. Of a body that is larger than
        `most` only the beginning. Raises OSError, of which TimeoutError is one.

        A request without a body is sent once more where a connection breaks: the server may have closed one that was
        idle just as it was taken.
        """
        async with asyncio.timeout(seconds):
            try:
                return await self._ask(target, method, path, body or b"", most)
            except Broken:
                if body is not None:
                    raise
            return await self._ask(target, method, path, b"", most)

    async def _ask(self, target: RequestTarget, method: str, path: str, body: bytes, most: int) -> tuple[int, bytes]:
        connection = await self.send(method, target, path, {}, body)
        try:
            return connection.answer.status, await read_bounded(connection.read, most)
        finally:
            connection.leave()

    async def close(self) -> None:
        self._closed = True
        for connection in self._open:
            connection.abort()
        while self._open:
            self._empty.clear()
            await self._empty.wait()

    def _take(self, peer: Peer) -> ServerConnection | None:
        idle = self._idle.get(peer)
        while idle:
            connection, timer = idle.popitem()
            timer.cancel()
            if connection.quiet:
                return connection
            connection.abort()
        return None

    async def _dial(self, peer: Peer) -> ServerConnection:
        """A new one. Raises Unconnected."""
        connecting: socket.socket | None = None
        turns = self._turns.setdefault(peer, asyncio.Semaphore(DIALED_AT_ONCE))
        tls: dict[str, Any] = {}
        if peer.tls:
            tls = {"ssl": self._tls or verifying(), "server_hostname": peer.certified}
        made = partial(ServerConnection, partial(self._keep, peer), partial(self._lose, peer))
        try:
            async with asyncio.timeout(self._connect_seconds), turns:
                loop = asyncio.get_running_loop()
                if self._unix:
                    _, connection = await loop.create_unix_connection(made, self._unix)
                else:
                    connecting = await start_connection(
                        await self._addresses(peer),
                        happy_eyeballs_delay=NEXT_SECONDS,
                        socket_factory=self._socket_factory,
                    )
                    _, connection = await loop.create_connection(made, sock=connecting, **tls)
                    connecting = None  # the loop has it
        except (OSError, RuntimeError, UnicodeError) as error:  # uvloop raises RuntimeError for some of its sockets
            raise Unconnected(f"no connection could be made ({type(error).__name__})") from error
        finally:
            if connecting is not None:
                connecting.close()
        self._open.add(connection)
        if self._closed:
            connection.abort()
            raise Unconnected("the pool is closed")
        return connection

    def _keep(self, peer: Peer, connection: ServerConnection) -> None:
        if self._closed or not self._keeps:
            connection.abort()
            return
        timer = asyncio.get_running_loop().call_later(self._idle_seconds, connection.abort)
        self._idle.setdefault(peer, {})[connection] = timer

    def _lose(self, peer: Peer, connection: ServerConnection) -> None:
        self._open.discard(connection)
        idle = self._idle.get(peer, {})
        if (timer := idle.pop(connection, None)) is not None:
            timer.cancel()
        if not idle:
            self._idle.pop(peer, None)
        if not self._open:
            self._empty.set()


@cache
def verifying() -> ssl.SSLContext:
    """An SSL context that trusts the system's authorities; reading these takes some milliseconds."""
    made = ssl.create_default_context()
    made.set_alpn_protocols(["http/1.1"])
    return made


async def read_bounded(read: Callable[[], Awaitable[bytes]], most: int) -> bytes:
    """All that can be read, as far as it is of a sensible size; nothing read is the end."""
    body = bytearray()
    while len(body) <= most and (piece := await read()):
        body += piece
    return bytes(body)
