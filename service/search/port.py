"""The port of the browser's searches and pages: the bounds, the query, and the failures.

A conformance suite (tests/support/search) defines what a back end must do.
"""

import asyncio
from collections import defaultdict
from collections.abc import AsyncGenerator, Iterable
from contextlib import asynccontextmanager
from itertools import islice
from time import sleep
from typing import Protocol

import msgspec

from service.browser.page import MAX_URL_CHARS, Page, Result, host_of

RESULTS = 20
"""The results that a search asks for: as many as the reference browser of gpt-oss."""

MAX_CONSIDERED = 200
"""How many results of an answer are looked at."""

REST_SECONDS = 0.0001
"""For how long a thread that reads a page rests between two pieces of it: other threads go on meanwhile."""

MAX_TITLE_CHARS = 300
MAX_SNIPPET_CHARS = 500

AT_ONCE = 16
"""How many searches and pages are under way in a process: each holds a page as it was sent, or a thread."""

EACH_AT_ONCE = 4
"""How many of them are one tenant's. Those that come behind wait for their turn."""


class SearchFailure(Exception):
    """The search or page failed, and why: the model and the client may read it."""


class Query(msgspec.Struct, frozen=True):
    """A query: only among `domains`, where there are any, for a user in a `country` (ISO 3166, two
    letters).
    """

    text: str
    domains: tuple[str, ...] = ()
    country: str = ""


class Searcher(Protocol):
    """Finds pages."""

    async def search(self, query: Query) -> list[Result]:
        """Its results, best first. Raises SearchFailure."""
        ...


class Pages(Protocol):
    """Gives pages."""

    async def page(self, url: str, domains: tuple[str, ...] = ()) -> Page:
        """The page at an address, on these domains alone where there are any; behind `view-source:` as it was sent.
        Raises SearchFailure.
        """
        ...


def rest() -> None:
    """Lets other threads go on: never on the event loop."""
    sleep(REST_SECONDS)


def is_within(host: str, domains: tuple[str, ...]) -> bool:
    """Whether a host is one of these domains or below one, or there are none."""
    name = host.rpartition(":")[0] if host.rpartition(":")[2].isdecimal() else host
    name = name.lower().rstrip(".")
    return not domains or any(name == domain or name.endswith(f".{domain}") for domain in domains)


def kept(results: Iterable[Result], query: Query) -> list[Result]:
    """The results of a service's answer that may be shown, bounded in number and length."""
    found = (
        Result(result.url, result.title[:MAX_TITLE_CHARS], result.snippet[:MAX_SNIPPET_CHARS])
        for result in islice(results, MAX_CONSIDERED)
        if is_address(result.url) and is_within(host_of(result.url), query.domains)
    )
    return list(islice(found, RESULTS))


def is_address(url: str) -> bool:
    """Whether it is the address of a page, which can be shown."""
    if len(url) > MAX_URL_CHARS or not url.startswith(("http://", "https://")):
        return False
    return url.isprintable() and not any(letter in url for letter in ' <>"\\【】†') and bool(host_of(url))


class Places:
    """The places of a process."""

    def __init__(self, at_once: int = AT_ONCE, each: int = EACH_AT_ONCE) -> None:
        self._all = asyncio.Semaphore(at_once)
        self._own: defaultdict[str, asyncio.Semaphore] = defaultdict(lambda: asyncio.Semaphore(each))
        self._wanted: defaultdict[str, int] = defaultdict(int)

    @asynccontextmanager
    async def taken(self, tenant: str) -> AsyncGenerator[None]:
        """A place of a tenant's, once there is one, until the end of the block."""
        self._wanted[tenant] += 1
        try:
            async with self._own[tenant], self._all:
                yield
        finally:
            self._wanted[tenant] -= 1
            if not self._wanted[tenant]:
                del self._wanted[tenant], self._own[tenant]
