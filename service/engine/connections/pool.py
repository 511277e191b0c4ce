"""Connections that are kept: a request goes over one that is idle, or over a new one.

Those to one peer are kept for it alone, the last that became idle goes out first, and what is idle for too long is
closed. The callers bound how many there are.
"""

import asyncio
import ssl
from collections.abc import Mapping

from service.engine.connections.connection import Connection
from service.engine.connections.dialing import Dialing, Unconnected
from service.engine.connections.outgoing import Peer, Target, head

IDLE_SECONDS = 3.0
"""How long an unused connection is kept: less than the 5 s after which vLLM and llama.cpp close it, lest a request meet
that."""

CLOSING = {"connection": "close"}


class Pool:
    """The connections of one engine. Where it doesn't keep them, each request has its own."""

    def __init__(
        self,
        *,
        keeps: bool,
        connect_seconds: float,
        tls: ssl.SSLContext | None = None,
        idle_seconds: float = IDLE_SECONDS,
    ) -> None:
        self._told = {} if keeps else CLOSING
        self._keeps = keeps
        self._idle_seconds = idle_seconds
        self._dialing = Dialing(connect_seconds, tls)
        self._idle: dict[Peer, dict[Connection, asyncio.TimerHandle]] = {}
        self._open: set[Connection] = set()
        self._closed = False
        self._empty: asyncio.Event = asyncio.Event()

    @property
    def open(self) -> int:
        """How many connections there are."""
        return len(self._open)

    async def send(self, method: str, target: Target, path: str, headers: Mapping[str, str], body: bytes) -> Connection:
        """A connection with the head of the answer, whose body is unread. The caller has to `leave` it.

        Raises Unconnected where nothing was sent, Broken where the server may have begun, and ValueError for headers
        that are none.
        """
        said = head(method, target, path, {**headers, **self._told}, len(body))
        connection = self._take(target.peer) or await self._dial(target.peer)
        connection.send(said, body)
        try:
            return await connection.head()
        except BaseException:
            connection.abort()
            raise

    async def close(self) -> None:
        """Close all of them, also those over which something is under way."""
        self._closed = True
        await self._dialing.close()
        for connection in self._open:
            connection.abort()
        while self._open:
            self._empty.clear()
            await self._empty.wait()

    def _take(self, peer: Peer) -> Connection | None:
        """One that is idle."""
        idle = self._idle.get(peer)
        while idle:
            connection, timer = idle.popitem()
            timer.cancel()
            if not connection.closed:
                return connection
        return None

    async def _dial(self, peer: Peer) -> Connection:
        """A new one."""

        def free(connection: Connection) -> None:
            self._keep(peer, connection)

        def lost(connection: Connection) -> None:
            self._lose(peer, connection)

        connection = await self._dialing.dial(peer, lambda: Connection(free, lost))
        self._open.add(connection)
        if self._closed:
            connection.abort()
            raise Unconnected("the pool is closed")
        return connection

    def _keep(self, peer: Peer, connection: Connection) -> None:
        """It has become idle."""
        if self._closed or not self._keeps:
            connection.abort()
            return
        timer = asyncio.get_running_loop().call_later(self._idle_seconds, connection.abort)
        self._idle.setdefault(peer, {})[connection] = timer

    def _lose(self, peer: Peer, connection: Connection) -> None:
        """It is closed."""
        self._open.discard(connection)
        idle = self._idle.get(peer, {})
        if (timer := idle.pop(connection, None)) is not None:
            timer.cancel()
        if not idle:
            self._idle.pop(peer, None)
        if not self._open:
            self._empty.set()
