"""Servers behind a name: as many as it has addresses at the moment, such as those of a headless service in Kubernetes.

A URL that begins with dns+ stands for one server at each address of its host. Each is asked by its address; what it
hears, and what its certificate has to say, is the name. Never forget addresses because a look-up failed.
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
"""How many servers a name may lead to."""

PORTS = {"http": 80, "https": 443}


class ServerAddress(msgspec.Struct, frozen=True):
    """Where a server is: the URL by which it is asked, and the one that was listed.

    `host` is what it is told to be asked for, and `certified` the name that its certificate has to have; empty is what
    the URL says.
    """

    url: str
    listed: str
    host: str = ""
    certified: str = ""


class Names:
    """The places that URLs lead to, looked up as often as they are asked for."""

    def __init__(self, look_up: LookUp = system_look_up) -> None:
        self._look_up = look_up
        self._known: dict[str, tuple[ServerAddress, ...]] = {}
        self._looking: dict[str, asyncio.Task[list[str]]] = {}
        """Look-ups under way, one of a name at most, as none can be stopped."""
        self._failed: set[str] = set()

    async def places(self, urls: Iterable[str], seconds: float) -> list[ServerAddress]:
        """Where the servers of these URLs are. What hasn't been looked up in so many seconds is as it was before."""
        listed = list(urls)
        found = await asyncio.gather(*(self._found(url, seconds) for url in listed))
        self._known = {url: places for url, places in zip(listed, found, strict=True) if is_name(url)}
        return list({place.url: place for places in found for place in places}.values())

    async def close(self) -> None:
        """Wait for nobody's answer any more."""
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
            ServerAddress(f"{parts.scheme}://{_bracketed(address)}:{port}{parts.path}", url, parts.netloc, certified)
            for address in addresses[:MAX_ADDRESSES]
        )

    def _none(self, url: str, reason: str) -> tuple[ServerAddress, ...]:
        """What was known, as nothing else is; said once."""
        known = self._known.get(url, ())
        if url not in self._failed:
            self._failed.add(url)
            event(logger, logging.WARNING, "a name can't be looked up", url=url, reason=reason, known=len(known))
        return known


def is_name(url: str) -> bool:
    """Whether a URL stands for all addresses of its host."""
    return url.startswith(BY_NAME)


def _bracketed(address: str) -> str:
    return f"[{address}]" if ":" in address else address
