"""Pools of connections that can be given up together: the primary behind an address may change.

A failover behind one address (DNS, a virtual IP, a proxy) leaves the connections to the former primary open, and it
answers over them, so only a refused write shows that they lead to the wrong server. From then on all existing ones are
doubted: none is used again before it has been made anew. Never disconnect a connection here that somebody may
be using: it is marked, and its user gives it up.
"""

from collections.abc import Callable
from contextlib import suppress
from typing import Any

from redis import exceptions as redis_errors
from redis.asyncio import ConnectionPool
from redis.asyncio.connection import AbstractConnection
from redis.asyncio.sentinel import SentinelConnectionPool

from store.redis.conditions import TooManyClients, Unwelcome, unwelcome


async def greet(connection: AbstractConnection) -> None:
    """Send the greeting on a new connection. Raises Unwelcome where the server ends it, and redis-py's other errors."""
    try:
        await connection.on_connect()
    except redis_errors.ConnectionError as error:
        if type(error) is not redis_errors.ConnectionError:  # a refusal with a reason of its own, as of a password
            raise
        raise unwelcome(error) from error


class PrimaryPool(ConnectionPool):
    """Connections to the primary behind an address."""

    def __init__(self, **options: Any) -> None:
        super().__init__(**options, redis_connect_func=greet)  # pyright: ignore[reportUnknownMemberType]
        self.doubts = 0
        """How often all connections were doubted. A caller doubts again only for one that was made since then."""
        self.replaced: set[Callable[[], None]] = set()
        """Called when a server turned out to be no primary."""

    def doubt(self) -> None:
        """Make each connection anew before it is used again. Never blocks."""
        self.doubts += 1
        for connection in (*self._available_connections, *self._in_use_connections):
            if connection.is_connected:
                connection.mark_for_reconnect()

    def replace(self) -> None:
        """Doubt all connections, and have those of others to this address replaced."""
        self.doubt()
        for tell in tuple(self.replaced):
            tell()

    def get_available_connection(self) -> AbstractConnection:
        """The connected one that was used last, where there is one: a server with as many clients as it may have takes
        no new connection.
        """
        idle = self._available_connections
        if idle and not idle[-1].is_connected:
            connected = (at for at in reversed(range(len(idle))) if idle[at].is_connected)
            if (at := next(connected, None)) is not None:
                idle.append(idle.pop(at))
        return super().get_available_connection()

    async def get_connection(self, command_name: object = None, *keys: object, **options: object) -> AbstractConnection:
        """A connection that was made, or made anew, since all were doubted. Raises TooManyClients where the server
        refuses it while it serves others.

        The one that was used last is taken at once where nothing is wrong with it: redis-py takes some 20 µs to find
        that out, most of them for metrics that nobody has switched on.
        """
        idle = self._available_connections
        if idle and (last := idle[-1]).is_connected and not last.should_reconnect():
            self._in_use_connections.add(idle.pop())
            sound = False
            try:
                with suppress(redis_errors.ConnectionError):
                    sound = not await last.can_read()  # nothing of another reply, and no end
            finally:
                if not sound:
                    await self.release(last)
            if sound:
                return last
        try:
            connection = await super().get_connection()
        except Unwelcome as error:
            if any(each.is_connected for each in (*self._available_connections, *self._in_use_connections)):
                raise TooManyClients(str(error)) from error
            raise
        if connection.should_reconnect():
            try:
                await connection.disconnect(nowait=True)
                await connection.connect()
            except BaseException:
                await self.release(connection)
                raise
        return connection

    async def release(self, connection: AbstractConnection) -> None:
        """Take it back."""
        if connection.should_reconnect():
            await super().release(connection)
            return
        self._in_use_connections.remove(connection)
        self._available_connections.append(connection)


class SentinelPool(PrimaryPool, SentinelConnectionPool):
    """A pool of connections to the primary that the Sentinels name; it closes those to the Sentinels too."""

    def __init__(self, service: str, manager: Any, **options: Any) -> None:
        super().__init__(service_name=service, sentinel_manager=manager, **options)

    async def aclose(self) -> None:
        """Close all connections."""
        try:
            await super().aclose()
        finally:
            await self.sentinel_manager.aclose()  # pyright: ignore[reportUnknownMemberType]
