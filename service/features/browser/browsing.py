"""The browser as a tool: its options in a request, and its calls.

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
from service.api.tools.builtin import BROWSER, browser
from service.decoding import decode
from service.errors import invalid_value
from service.features.browser.browser.browser import (
    Asked,
    Fetch,
    Find,
    PageGone,
    Search,
    UsageError,
    displays_of,
    page_there,
    request_of,
    restore,
    shorten,
    view_of,
    with_room,
)
from service.features.browser.browser.page import SOURCE, Display, Page, displays_in, results_page
from service.features.browser.search.port import (
    KeptPages,
    OpenedPage,
    Pages,
    Places,
    Searcher,
    SearchFailure,
    SearchQuery,
)
from service.tools.port import Tool
from store.turn import StoredMessage

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


class Browsing(Tool):
    """A searcher, a source of pages, and the pages that tenants opened lately."""

    kinds = (BROWSER,)
    declarations = ({"type": "web_search"},)
    builtin = browser(read_options)

    def __init__(self, searcher: Searcher, pages: Pages) -> None:
        self._searcher = searcher
        self._pages = pages
        self._kept = KeptPages()
        self.places = Places()

    def displays(self, notes: Sequence[StoredMessage]) -> tuple[Display, ...]:
        """As the port has it."""
        return displays_of(notes)

    def run(self, tenant: str, connections: bytes) -> "BrowserRun":
        """As the port has it."""
        return BrowserRun(self, tenant)

    async def call(self, tenant: str, call: HostedCall) -> Outcome:
        """The outcome of a call."""
        options = _OPTIONS.decode(call.tool.options or "{}")
        before = displays_in(call.displays)
        displays: Sequence[Display] = before
        wanted: Asked | None = None
        try:
            try:
                wanted = request_of(call.tool.tool, call.arguments, displays)
            except PageGone as gone:
                displays = restore(displays, await self._open(tenant, gone.url, options))
                wanted = request_of(call.tool.tool, call.arguments, displays)
            page = page_there(displays, wanted)
            if isinstance(wanted, Search):
                query = SearchQuery(wanted.query, options.domains, options.country)
                page = results_page(wanted.query, await self._searcher(query))
            elif isinstance(wanted, Fetch) and page is None:
                page = await self._open(tenant, wanted.url, options)
            assert page is not None
            text, display = await asyncio.to_thread(view_of, displays, page, wanted, options.view_tokens)
        except (UsageError, SearchFailure) as error:
            return Outcome("failed", _failure_text(wanted, error), shown={"action": _action(call, wanted)})
        shown = {"action": _action(call, wanted, page)}
        return Outcome("completed", text, shown=shown, display=with_room(display, before))

    async def _open(self, tenant: str, url: str, options: Options) -> Page:
        """The page at an address, as this tenant opened it lately or as it is now."""
        opened = OpenedPage(tenant, options.domains, url)
        page = self._kept.get(opened)
        if page is None:
            if not options.fetches:
                raise SearchFailure("it was not opened lately, and external_web_access is false")
            page = await self._pages(url, options.domains)
            self._kept.put(opened, page)
        return page


def _failure_text(wanted: Asked | None, error: Exception) -> str:
    """The text that the model is told of a failure, as by the reference browser of gpt-oss."""
    if isinstance(error, UsageError):
        return str(error)
    if isinstance(wanted, Search):
        return f"Error during search for `{wanted.query}`: {error}"
    return f"Error fetching URL `{shorten(wanted.url)}`: {error}" if isinstance(wanted, Fetch) else f"Error: {error}"


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


class BrowserRun:
    """The calls of one response of a tenant."""

    def __init__(self, browsing: Browsing, tenant: str) -> None:
        self._browsing, self._tenant = browsing, tenant

    async def call(self, call: HostedCall) -> Outcome:
        """As the port has it, once there is a place for it."""
        async with self._browsing.places.holding(self._tenant):
            return await self._browsing.call(self._tenant, call)

    async def aclose(self) -> None:
        """As the port has it: nothing is held between calls."""
