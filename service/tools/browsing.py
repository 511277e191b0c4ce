"""The browser as a back end: its options in a request, and its calls.

    call, displays before ─▶ asked ─▶ a search, a page ─▶ view ─▶ outcome: the text, the item's action, the display

All that it knows of a response comes with each call, and goes with its outcome, so a worker that takes over knows as
much. Every call only reads, and is made again where nobody knows whether it was made.
"""

import asyncio
import re
from collections.abc import Sequence
from typing import Annotated, Any, Literal

import msgspec
from msgspec import Meta

from service.api.outcome import HostedCall, Outcome
from service.api.tools.builtin import Builtin, browser
from service.api.tools.callee import Hosted
from service.browser.browser import (
    Asked,
    Fetch,
    Find,
    Gone,
    Scroll,
    Search,
    asked,
    known_page,
    page_at,
    restored,
    view_of,
)
from service.browser.display import UsageError, shortened
from service.browser.displays import with_room
from service.browser.page import SOURCE, Display, Page, results_page
from service.decoding import decode
from service.errors import invalid_value
from service.search.kept import KeptPages, Opened
from service.search.port import Pages, Places, Query, Searcher, SearchFailure

SOURCES = "web_search_call.action.sources"
"""A request includes this to be shown the pages that a search found."""

MAX_DOMAINS = 100

VIEW_TOKENS = {"low": 512, "medium": 1_024, "high": 2_048}
"""The tokens of a page that are shown at once, by `search_context_size`. gpt-oss was trained with 1,024."""

_DOMAIN = re.compile(r"(?=.{1,253}$)[A-Za-z0-9_-]{1,63}(?:\.[A-Za-z0-9_-]{1,63})*", re.ASCII)
_COUNTRY = re.compile(r"[A-Za-z]{2}", re.ASCII)

Text = Annotated[str, Meta(max_length=200)]
Domains = Annotated[list[str], Meta(max_length=MAX_DOMAINS)]


class _Filters(msgspec.Struct):
    allowed_domains: Domains | None = None


class _Location(msgspec.Struct):
    type: Literal["approximate"] = "approximate"
    city: Text | None = None
    country: Text | None = None
    region: Text | None = None
    timezone: Text | None = None


class WebSearchTool(msgspec.Struct):
    """A web search, as sent."""

    type: str
    filters: _Filters | None = None
    user_location: _Location | None = None
    search_context_size: Literal["low", "medium", "high"] | None = None
    external_web_access: bool | None = None


class Options(msgspec.Struct, frozen=True, omit_defaults=True):
    """The options of a request: only these `domains`, where there are any; for somebody in a `country`; with so many
    tokens a view; and whether pages may be fetched that nobody opened lately.
    """

    domains: tuple[str, ...] = ()
    country: str = ""
    view_tokens: int = VIEW_TOKENS["medium"]
    fetches: bool = True


_UNREAD: dict[str, dict[str, Any]] = {
    "search": {"type": "search", "query": ""},
    "open": {"type": "open_page", "url": None},
    "find": {"type": "find_in_page", "url": "", "pattern": ""},
}
"""The actions of calls whose arguments can't be read, or mean nothing."""

_OPTIONS = msgspec.json.Decoder(Options)


def read_options(sent: msgspec.Raw, where: str) -> str:
    """The options of a tool that stands at `where`. Raises InvalidRequest."""
    tool = decode(sent, WebSearchTool, where)
    domains: list[str] = (tool.filters.allowed_domains if tool.filters else None) or []
    for number, domain in enumerate(domains):
        if not _DOMAIN.fullmatch(domain):
            at = f"{where}.filters.allowed_domains[{number}]"
            raise invalid_value(at, domain, "Give a domain such as example.com, without https:// and path.")
    country = (tool.user_location.country if tool.user_location else None) or ""
    if country and not _COUNTRY.fullmatch(country):
        raise invalid_value(f"{where}.user_location.country", country, "Give two letters (ISO 3166), such as FR.")
    options = Options(
        tuple(dict.fromkeys(domain.lower() for domain in domains)),
        country.upper(),
        VIEW_TOKENS[tool.search_context_size or "medium"],
        tool.external_web_access is not False,
    )
    return msgspec.json.encode(options).decode()


class Browsing:
    """The back end: a searcher, a source of pages, and the pages that tenants opened lately."""

    def __init__(self, searcher: Searcher, pages: Pages) -> None:
        self._searcher = searcher
        self._pages = pages
        self._kept = KeptPages()
        self._places = Places()

    @property
    def builtin(self) -> Builtin:
        """The browser, as it is declared and shown."""
        return _BUILTIN

    @property
    def usable(self) -> bool:
        """As the port has it: always."""
        return True

    async def bind(self, tenant: str, tool: Hosted, before: str | None) -> str:
        """As the port has it: there is one browser."""
        return tool.server

    def run(self, tenant: str) -> "BrowserRun":
        """The runner of one response's calls."""
        return BrowserRun(tenant, self._searcher, self._pages, self._kept, self._places)


_BUILTIN = browser(read_options)


class BrowserRun:
    """The calls of one response."""

    def __init__(self, tenant: str, searcher: Searcher, pages: Pages, kept: KeptPages, places: Places) -> None:
        self._tenant = tenant
        self._searcher = searcher
        self._pages = pages
        self._kept = kept
        self._places = places

    async def call(self, call: HostedCall) -> Outcome:
        """Run a call once there is a place. Returns its outcome, also of a failed call."""
        async with self._places.taken(self._tenant):
            return await self._call(call)

    async def _call(self, call: HostedCall) -> Outcome:
        options = _OPTIONS.decode(call.tool.options or "{}")
        displays: Sequence[Display] = call.displays
        wanted: Asked | None = None
        try:
            wanted, displays = await self._asked(call, options)
            page = await self._page(wanted, displays, options)
            view = await asyncio.to_thread(view_of, displays, page, wanted, options.view_tokens)
        except (UsageError, SearchFailure) as error:
            return Outcome("failed", _told(wanted, error), shown={"action": _action(call, wanted)})
        return Outcome(
            "completed",
            view.text,
            shown={"action": _action(call, wanted, page)},
            display=with_room(view.display, call.displays),
        )

    async def aclose(self) -> None:
        """Does nothing: nothing is held."""

    async def _asked(self, call: HostedCall, options: Options) -> tuple[Asked, Sequence[Display]]:
        """The action that a call asks for, and the earlier displays, among them the whole page that it is about."""
        displays: Sequence[Display] = call.displays
        try:
            wanted = asked(call.tool.tool, call.arguments, displays)
            if isinstance(wanted, Scroll | Find):
                page_at(displays, wanted.cursor)
        except Gone as gone:
            displays = restored(displays, await self._opened(gone.url, options))
            wanted = asked(call.tool.tool, call.arguments, displays)
        return wanted, displays

    async def _page(self, wanted: Asked, displays: Sequence[Display], options: Options) -> Page:
        """The page of a call: of results, newly opened, or from a display."""
        if isinstance(wanted, Search):
            query = Query(wanted.query, options.domains, options.country)
            return results_page(wanted.query, await self._searcher.search(query))
        if isinstance(wanted, Scroll | Find):
            return page_at(displays, wanted.cursor)
        cursor = None if wanted.fresh else known_page(displays, wanted.url)
        return await self._opened(wanted.url, options) if cursor is None else page_at(displays, cursor)

    async def _opened(self, url: str, options: Options) -> Page:
        """The page at an address, as this tenant opened it lately or as it is now."""
        opened = Opened(self._tenant, options.domains, url)
        kept = self._kept.get(opened)
        if kept is not None:
            return kept
        if not options.fetches:
            raise SearchFailure("it was not opened lately, and no other may be: external_web_access is false")
        page = await self._pages.page(url, options.domains)
        self._kept.put(opened, page)
        return page


def _told(wanted: Asked | None, error: Exception) -> str:
    """The text that the model is told of a failure, as by the reference browser of gpt-oss."""
    if isinstance(error, UsageError):
        return str(error)
    if isinstance(wanted, Search):
        return f"Error during search for `{wanted.query}`: {error}"
    return f"Error fetching URL `{shortened(wanted.url)}`: {error}" if isinstance(wanted, Fetch) else f"Error: {error}"


def _action(call: HostedCall, wanted: Asked | None, page: Page | None = None) -> dict[str, Any]:
    """The action of a call's item; of one that can't be read, nothing but its kind."""
    if isinstance(wanted, Search):
        action: dict[str, Any] = {"type": "search", "query": wanted.query, "queries": [wanted.query]}
        if SOURCES in call.include:
            links = page.links if page is not None else ()
            action["sources"] = [{"type": "url", "url": url} for url in links]
        return action
    if isinstance(wanted, Find):
        return {"type": "find_in_page", "url": _address(page), "pattern": wanted.pattern}
    if wanted is not None:
        url = wanted.url.removeprefix(SOURCE) if isinstance(wanted, Fetch) else _address(page)
        return {"type": "open_page", "url": url}
    return dict(_UNREAD[call.tool.tool])


def _address(page: Page | None) -> str:
    """The address of a page, or of the one that something was found in; "" of a search."""
    return "" if page is None else (page.about[0] if page.about else page.url).removeprefix(SOURCE)
