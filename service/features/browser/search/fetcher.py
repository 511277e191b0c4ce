"""Files of the web, pages and pictures: which addresses are allowed, and how much of one is read.

Clients and the model name addresses, and pages do by their links and redirects, so any of them may want to lead into
the operator's network. Each is judged anew: its host is resolved once, all its addresses have to be public, and the
connection goes to one of these, whatever the name resolves to a moment later. Only GET, no cookies, nothing compressed.
"""

import asyncio
import re
import socket
from collections.abc import Callable, Collection
from typing import Any, NamedTuple

import msgspec

from service.build import this_build
from service.engine.servers.connection import ServerConnection
from service.features.browser.browser.page import MAX_URL_CHARS
from service.features.browser.search.port import SearchFailure
from service.features.browser.search.services import BROKEN
from service.outgoing import WebAddress, asking, lookups_of
from service.ssrf import NO_PUBLIC_ADDRESS, ForbiddenAddress, Judge, LookUp, is_within, look_up, public_addresses

PORTS = (80, 443)
"""The ports of pages. By others an address could have the service speak to something that is no web server."""

SOCKET_BYTES = 32 << 10
"""The kernel's buffer for a page: it is parsed at once, on the event loop, and that takes long where it comes in
pieces of a byte.
"""


_CHARSET = re.compile(r";\s*charset\s*=\s*[\"']?([^\s;\"']{1,40})", re.IGNORECASE)


class FetchLimits(msgspec.Struct, frozen=True):
    """The bounds of fetching a file: in seconds, redirects, bytes, and the pieces in which these come. Anything beyond
    the bytes or pieces isn't read.
    """

    seconds: float = 10.0
    redirects: int = 5
    bytes: int = 5 << 20
    pieces: int = 20_000


class Fetched(NamedTuple):
    """A server's answer: its address, its type, its encoding; and whether all of it was read."""

    url: str
    kind: str
    charset: str | None
    body: bytes
    whole: bool


class Fetcher:
    """Fetches files at public addresses, and at the hosts that the operator named."""

    def __init__(
        self,
        purpose: str,
        accept: str,
        hosts: Collection[str] = (),
        limits: FetchLimits | None = None,
        *,
        look_up: LookUp = look_up,
        may_reach: Judge | None = None,
    ) -> None:
        """`purpose` is told to servers, and what they should `accept`; the rest is as for `Web`."""
        self._hosts = frozenset(hosts)
        self._limits = limits or FetchLimits()
        self._look_up = look_up
        self._may_reach = may_reach
        agent = f"harmonium/{this_build().version} ({purpose})"
        self._headers = {"user-agent": agent, "accept": accept, "accept-encoding": "identity"}

    async def fetch(
        self, url: str, domains: tuple[str, ...] = (), check: Callable[[str], None] = lambda _: None
    ) -> Fetched:
        """The file at an address, which is within the `domains`, as is each that it redirects to. Its type passes a
        `check` before it is read. Raises SearchFailure, which names no address of a private network.
        """
        limits = self._limits
        try:
            async with asyncio.timeout(limits.seconds):
                return await self._send(url, domains, check)
        except TimeoutError:
            raise SearchFailure(f"it took longer than {limits.seconds:g} s") from None
        except BROKEN as error:
            raise SearchFailure(f"it can't be reached ({type(error).__name__})") from None

    async def whole(self, url: str, domains: tuple[str, ...]) -> bytes:
        """All bytes of a file. Raises SearchFailure, for a longer one too."""
        found = await self.fetch(url, domains)
        if not found.whole:
            raise SearchFailure(f"it has {self._limits.bytes:,} bytes or more, or arrives in too small pieces")
        return found.body

    async def _send(self, url: str, domains: tuple[str, ...], check: Callable[[str], None]) -> Fetched:
        """The answer at an address, or where that redirects to."""
        for _ in range(self._limits.redirects + 1):
            target = _target(url, domains)
            addresses = lookups_of(await self._addresses(target))
            async with asking("GET", target, self._headers, addresses=addresses, socket_factory=_socket) as connection:
                answer = connection.answer
                if answer.status in (301, 302, 303, 307, 308) and "location" in answer.headers:
                    url = target.redirect_url(answer.headers["location"])
                    continue
                return await self._read(connection, target.url, check)
        raise SearchFailure(f"it redirects more than {self._limits.redirects} times")

    async def _read(self, connection: ServerConnection, url: str, check: Callable[[str], None]) -> Fetched:
        answer = connection.answer
        if answer.status != 200:
            raise SearchFailure(f"it answers with HTTP {answer.status}")
        kind = answer.content_type or "application/octet-stream"
        check(kind)
        if answer.headers.get("content-encoding", "identity").lower() != "identity":
            raise SearchFailure("it is compressed, although the request didn't allow that")
        said = _CHARSET.search(answer.headers.get("content-type", ""))
        left, parts, whole = self._limits.bytes, list[bytes](), True
        while part := await connection.read():
            parts.append(part[:left])
            left -= len(part)
            if left <= 0 or len(parts) == self._limits.pieces:
                whole = False
                break
        return Fetched(url, kind, said and said[1], b"".join(parts), whole)

    async def _addresses(self, target: WebAddress) -> list[str]:
        host, port = target.host, target.port
        if host in self._hosts or f"{host}:{port}" in self._hosts:
            return await self._look_up(host, port)
        try:
            addresses = await public_addresses(host, port, self._look_up, self._may_reach)
        except (ForbiddenAddress, OSError):
            raise SearchFailure(NO_PUBLIC_ADDRESS) from None
        if port not in PORTS:
            raise SearchFailure(f"it is at port {port}, which isn't a port of the web")
        return addresses


def _socket(address: tuple[Any, ...]) -> socket.socket:
    made = socket.socket(*address[:3])
    made.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, SOCKET_BYTES)
    return made


def _target(url: str, domains: tuple[str, ...]) -> WebAddress:
    """An address that may be asked. Raises SearchFailure."""
    try:
        target = WebAddress.of(url)
    except ValueError:
        raise SearchFailure("it is not an http:// or https:// address") from None
    if len(target.url) > MAX_URL_CHARS:
        raise SearchFailure(f"its address has more than {MAX_URL_CHARS} characters")
    if not is_within(target.host, domains):
        raise SearchFailure("it is not in an allowed domain")
    return target
