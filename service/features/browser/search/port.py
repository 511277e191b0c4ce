"""The port of the browser's searches and pages: the bounds, the query, and the failures.

A conformance suite (tests/support/search) defines what a back end must do.
"""

import asyncio
from collections import defaultdict
from collections.abc import AsyncGenerator, Awaitable, Callable, Iterable
from contextlib import asynccontextmanager, suppress
from itertools import islice
from operator import itemgetter
from time import sleep
from typing import NamedTuple

import msgspec
from cachetools import TTLCache

from service.features.browser.browser.page import MAX_URL_CHARS, Page, Result, host_of
from service.ssrf import FetchFailure, is_within

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

KEPT_SECONDS = 900.0
"""How long a page is kept."""

KEPT_CHARS = 32 << 20
"""How much a process keeps, of all tenants together."""

OWN_CHARS = 1_000
"""The size that any page counts for besides its text."""


class SearchFailure(FetchFailure):
    """The search or page failed, and why: the model and the client may read it."""


class SearchQuery(msgspec.Struct, frozen=True):
    """A query: only among `domains`, where there are any, for a user in a `country` (ISO 3166, two
    letters).
    """

    text: str
    domains: tuple[str, ...] = ()
    country: str = ""


Searcher = Callable[[SearchQuery], Awaitable[list[Result]]]
"""The results of a query, best first. Raises SearchFailure."""

Pages = Callable[[str, tuple[str, ...]], Awaitable[Page]]
"""The page at an address, on these domains alone where there are any; behind `view-source:` as it was sent. Raises
SearchFailure.
"""


def rest() -> None:
    """Lets other threads go on: never on the event loop."""
    sleep(REST_SECONDS)


def bound_results(results: Iterable[Result], query: SearchQuery) -> list[Result]:
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
    async def holding(self, tenant: str) -> AsyncGenerator[None]:
        """A place of a tenant's, once there is one, until the end of the block."""
        self._wanted[tenant] += 1
        try:
            async with self._own[tenant], self._all:
                yield
        finally:
            self._wanted[tenant] -= 1
            if not self._wanted[tenant]:
                del self._wanted[tenant], self._own[tenant]


class OpenedPage(NamedTuple):
    """The key of an opened page: a tenant that may see these domains, and an address."""

    tenant: str
    domains: tuple[str, ...]
    url: str


class KeptPages:
    """The pages that were opened lately, each tenant's apart: a second visit needn't fetch one again."""

    def __init__(self, *, seconds: float = KEPT_SECONDS, chars: int = KEPT_CHARS) -> None:
        self._pages: TTLCache[OpenedPage, tuple[Page, int]] = TTLCache(chars, seconds, getsizeof=itemgetter(1))
        """Each with its size."""

    def get(self, opened: OpenedPage) -> Page | None:
        """The page that was opened so, if it is still kept."""
        return self._pages.get(opened, (None, 0))[0]

    def put(self, opened: OpenedPage, page: Page) -> None:
        """Keeps a page; those unused for longest make room."""
        with suppress(ValueError):  # it is larger than all the room
            self._pages[opened] = page, OWN_CHARS + page.size + sum(map(len, opened.domains))
