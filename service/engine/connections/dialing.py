"""Making connections: names looked up, addresses of both families tried, sockets watched, certificates verified."""

import asyncio
import ipaddress
import socket
import ssl
from collections.abc import Callable, Sequence
from functools import cache
from typing import Any, TypeVar
from weakref import WeakValueDictionary

from aiohappyeyeballs import start_connection  # pyright: ignore[reportUnknownVariableType]

from service.engine.connections.outgoing import Peer

KNOWN_SECONDS = 10.0
"""How long what a name leads to is taken for true: many connections that are made at once ask once."""

NEXT_SECONDS = 0.25
"""How long one address is tried alone before the next one is tried beside it (RFC 8305, section 5)."""

DIALED_AT_ONCE = 32
"""How many connections to one peer may be made at the same time, the others wait. Many servers have a queue of some 100
for those that they haven't accepted yet. The kernel drops what is more, and tries again a second later, and then again
after two and four: longer than a connection may take."""

KEEPALIVE = {"TCP_KEEPIDLE": 30, "TCP_KEEPINTVL": 10, "TCP_KEEPCNT": 3}
"""Seconds, seconds and probes after which the kernel gives up a peer that is gone."""

Address = tuple[socket.AddressFamily, socket.SocketKind, int, str, tuple[Any, ...]]
"""As getaddrinfo has them."""

_P = TypeVar("_P", bound=asyncio.Protocol)


class Unconnected(OSError):
    """No connection came about, so that nothing was sent."""


class Dialing:
    """What makes connections."""

    def __init__(self, seconds: float, tls: ssl.SSLContext | None = None) -> None:
        """`seconds` is how long a connection may take, TLS included. `tls` is what others are verified with, None is by
        the authorities that the system knows.
        """
        self._seconds = seconds
        self._tls = tls
        self._known: dict[tuple[str, int], _Found] = {}
        self._turns: WeakValueDictionary[Peer, asyncio.Semaphore] = WeakValueDictionary()
        """Whose turn it is to be connected to a peer, as long as anybody wants to be."""

    async def dial(self, peer: Peer, made: Callable[[], _P]) -> _P:
        """The protocol that `made` makes, connected. Raises Unconnected."""
        connecting: socket.socket | None = None
        turns = self._turns.setdefault(peer, asyncio.Semaphore(DIALED_AT_ONCE))
        try:
            async with asyncio.timeout(self._seconds), turns:
                addresses = await self._addresses(peer.host, peer.port)
                connecting = await start_connection(
                    addresses, happy_eyeballs_delay=NEXT_SECONDS, socket_factory=watched_socket
                )
                tls: dict[str, Any] = {}
                if peer.tls:
                    tls = {"ssl": self._tls or verifying(), "server_hostname": peer.certified}
                _, protocol = await asyncio.get_running_loop().create_connection(made, sock=connecting, **tls)
                connecting = None  # the loop has it
                return protocol
        except (OSError, RuntimeError, UnicodeError) as error:  # uvloop raises RuntimeError for some of its sockets
            raise Unconnected(f"no connection could be made ({type(error).__name__})") from error
        finally:
            if connecting is not None:
                connecting.close()

    async def close(self) -> None:
        """Look nothing up any more."""
        looking = [found.task for found in self._known.values()]
        self._known = {}
        for task in looking:
            task.cancel()
        await asyncio.gather(*looking, return_exceptions=True)

    async def _addresses(self, host: str, port: int) -> Sequence[Address]:
        """What a host leads to. Raises OSError."""
        loop = asyncio.get_running_loop()
        if _is_address(host):
            return socket.getaddrinfo(host, port, type=socket.SOCK_STREAM, flags=socket.AI_NUMERICHOST)
        found = self._known.get((host, port))
        if found is None or found.is_over(loop.time()):
            looking = asyncio.ensure_future(_looked_up(host, port))
            found = self._known[host, port] = _Found(looking, loop.time() + KNOWN_SECONDS)
        return await asyncio.shield(found.task)


class _Found:
    """What a name leads to, or the look-up that will tell."""

    def __init__(self, task: "asyncio.Future[Sequence[Address]]", until: float) -> None:
        self.task = task
        self._until = until

    def is_over(self, now: float) -> bool:
        """Whether it has to be looked up again: it is old, or there was no answer."""
        if not self.task.done():
            return False
        return now > self._until or self.task.cancelled() or self.task.exception() is not None


@cache
def verifying() -> ssl.SSLContext:
    """What verifies others by the authorities that the system knows; reading these takes some milliseconds."""
    made = ssl.create_default_context()
    made.set_alpn_protocols(["http/1.1"])
    return made


def watched_socket(address: tuple[Any, ...]) -> socket.socket:
    """A socket on which the kernel notices that the other machine is gone."""
    connection = socket.socket(*address[:3])
    connection.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
    for option, value in KEEPALIVE.items():
        if hasattr(socket, option):
            connection.setsockopt(socket.IPPROTO_TCP, getattr(socket, option), value)
    return connection


async def _looked_up(host: str, port: int) -> Sequence[Address]:
    """As the system knows it."""
    return await asyncio.get_running_loop().getaddrinfo(host, port, type=socket.SOCK_STREAM, flags=socket.AI_ADDRCONFIG)


def _is_address(host: str) -> bool:
    try:
        ipaddress.ip_address(host)
    except ValueError:
        return False
    return True
