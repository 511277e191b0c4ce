"""Servers behind a name: as many as it has addresses at the moment, such as those of a headless service in Kubernetes.

A URL that begins with dns+ stands for one server at each address of its host. We connect to the address; the Host
header and the certificate have the name. Never forget addresses because a look-up failed.
"""

import asyncio
import logging
from collections.abc import Iterable
from urllib.parse import urlsplit

import msgspec

from service.logs import event
from service.ssrf import BY_NAME, LookUp
from service.ssrf import look_up as system_look_up

logger = logging.getLogger(__name__)

MAX_ADDRESSES = 64
PORTS = {"http": 80, "https": 443}


class ServerAddress(msgspec.Struct, frozen=True):
    """A server's address: the URL to ask it by, and the one that was listed.

    `host` is the host that its requests name, and `certified` the name that its certificate has to have; empty is that
    of the URL.
    """

    url: str
    listed: str
    host: str = ""
    certified: str = ""


class HostNames:
    """The addresses behind URLs, looked up as often as they are asked for."""

    def __init__(self, look_up: LookUp = system_look_up) -> None:
        self._look_up = look_up
        self._known: dict[str, tuple[ServerAddress, ...]] = {}
        self._looking: dict[str, asyncio.Task[list[str]]] = {}
        """Look-ups under way, one of a name at most, as none can be stopped."""
        self._failed: set[str] = set()

    async def places(self, urls: Iterable[str], seconds: float) -> list[ServerAddress]:
        """The addresses of these URLs' servers. A name not resolved within so many seconds keeps its old ones."""
        listed = list(urls)
        found = await asyncio.gather(*(self._found(url, seconds) for url in listed))
        self._known = {url: places for url, places in zip(listed, found, strict=True) if is_name(url)}
        return list({place.url: place for places in found for place in places}.values())

    async def close(self) -> None:
        for task in self._looking.values():
            task.cancel()
        await asyncio.gather(*self._looking.values(), return_exceptions=True)

    async def _found(self, url: str, seconds: float) -> tuple[ServerAddress, ...]:
        if not is_name(url):
            return (ServerAddress(url, url),)
        parts = urlsplit(url.removeprefix(BY_NAME))
        port = parts.port or PORTS[parts.scheme]
        task = self._looking.get(url)
        if task is None:
            task = self._looking[url] = asyncio.ensure_future(self._look_up(parts.hostname or "", port))
        await asyncio.wait([task], timeout=seconds)
        if not task.done():
            return self._none(url, "no answer")
        del self._looking[url]
        try:
            addresses = sorted(set(await task))
        except OSError as error:
            return self._none(url, error.strerror or type(error).__name__)
        if not addresses:
            return self._none(url, "it has no address")
        self._failed.discard(url)
        if len(addresses) > MAX_ADDRESSES:
            event(logger, logging.WARNING, "a name has too many addresses", url=url, addresses=len(addresses))
        certified = (parts.hostname or "") if parts.scheme == "https" else ""
        return tuple(
            ServerAddress(f"{parts.scheme}://{host}:{port}{parts.path}", url, parts.netloc, certified)
            for address in addresses[:MAX_ADDRESSES]
            for host in [f"[{address}]" if ":" in address else address]
        )

    def _none(self, url: str, reason: str) -> tuple[ServerAddress, ...]:
        """The addresses known before, as the look-up failed; the failure is logged once."""
        known = self._known.get(url, ())
        if url not in self._failed:
            self._failed.add(url)
            event(logger, logging.WARNING, "a name can't be looked up", url=url, reason=reason, addresses=len(known))
        return known


def is_name(url: str) -> bool:
    """Whether a URL stands for all addresses of its host."""
    return url.startswith(BY_NAME)
