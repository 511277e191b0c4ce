"""Requests to others than servers of engines, over the client that asks these: webhooks, searches, pages and pictures.

Each has a connection of its own, that is closed behind it: an open one would outlive the look-up that permitted it. It
goes by name, or to addresses that were checked before and to no others, whatever the name resolves to meanwhile. No
proxy of the environment is asked, no redirect followed, no cookie kept, and nothing decompressed. The caller bounds the
time, and how much is read.
"""

import socket
import ssl
from collections.abc import AsyncGenerator, Mapping, Sequence
from contextlib import asynccontextmanager
from typing import Any, NamedTuple, Self
from urllib.parse import quote, urljoin, urlsplit

from service.engine.names import ServerAddress
from service.engine.servers.connection import KEPT_IN_PATHS, Peer, RequestTarget, ServerConnection, target_of
from service.engine.servers.pool import Addresses, Pool, SocketFactory, system_addresses, watched_socket


class WebAddress(NamedTuple):
    """An http or https URL without its fragment: whom it asks, and for which path and query."""

    scheme: str
    target: RequestTarget
    path: str

    @classmethod
    def of(cls, url: str) -> Self:
        """The address of a URL. Raises ValueError for one that has another scheme, a user, or no host that can be."""
        parts = urlsplit(url)
        if parts.scheme not in ("http", "https") or not parts.hostname or "@" in parts.netloc or parts.port == 0:
            raise ValueError("it is no http:// or https:// URL of a host")
        target = target_of(ServerAddress(f"{parts.scheme}://{parts.netloc}", url))
        query = f"?{quote(parts.query, safe=KEPT_IN_PATHS + '?')}" if parts.query else ""
        return cls(parts.scheme, target, quote(parts.path or "/", safe=KEPT_IN_PATHS) + query)

    @property
    def host(self) -> str:
        return self.target.peer.host

    @property
    def port(self) -> int:
        return self.target.peer.port

    @property
    def url(self) -> str:
        return f"{self.scheme}://{self.target.authority}{self.path}"

    def redirect_url(self, location: str) -> str:
        """The URL of a redirect from here; its header's bytes were read as Latin-1. Raises ValueError."""
        return urljoin(self.url, location.encode("latin-1").decode(errors="replace"))


def lookups_of(addresses: Sequence[str]) -> Addresses:
    """Look-ups that find these addresses for every host."""

    async def found(peer: Peer) -> Sequence[Any]:
        return [
            info
            for address in addresses
            for info in socket.getaddrinfo(address, peer.port, type=socket.SOCK_STREAM, flags=socket.AI_NUMERICHOST)
        ]

    return found


@asynccontextmanager
async def asking(
    method: str,
    address: WebAddress,
    headers: Mapping[str, str],
    body: bytes = b"",
    *,
    addresses: Addresses = system_addresses,
    tls: ssl.SSLContext | None = None,
    socket_factory: SocketFactory = watched_socket,
) -> AsyncGenerator[ServerConnection]:
    """The connection over which something was asked, with the head of the answer. Raises OSError where none came about
    or it breaks, and ValueError for headers that are none.
    """
    pool = Pool(
        keeps=False, connect_seconds=None, tls=tls, headers={}, addresses=addresses, socket_factory=socket_factory
    )
    try:
        yield await pool.send(method, address.target, address.path, headers, body)
    finally:
        await pool.close()
