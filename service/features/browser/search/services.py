"""Services that search the web: SearXNG, which anyone can host, and Brave, Exa and Tavily, by a key.

Each knows its own parameters, and none gets more of a request than the query: one request, one bounded answer of JSON.
The operator named the service, so it may have any address. Its key goes to it and nowhere else.
https://docs.searxng.org/dev/search_api.html (its settings.yml has to allow JSON, `search: formats: [html, json]`, else
it answers with 403), https://api-dashboard.search.brave.com/app/documentation/web-search,
https://docs.exa.ai/reference/search, https://docs.tavily.com/documentation/api-reference/endpoint/search
"""

import asyncio
from collections.abc import Awaitable, Callable, Iterable
from html import unescape
from typing import Any
from urllib.parse import urlencode

import msgspec

from service.build import this_build
from service.engine.servers.pool import read_bounded
from service.features.browser.browser.page import Result
from service.features.browser.search.port import (
    MAX_SNIPPET_CHARS,
    RESULTS,
    Searcher,
    SearchFailure,
    SearchQuery,
    bound_results,
)
from service.outgoing import WebAddress, asking

SECONDS = 15.0
"""How long an answer may take."""

MAX_BYTES = 1 << 20
"""The largest answer: 20 results have some 50 KB, and reading it keeps the event loop."""

MAX_BRAVE_CHARS = 400
"""How long a query of Brave's may be."""

MAX_SAID_CHARS = 4_000
"""How much of a text of Brave's is read, in which a character may take many."""

BROKEN = (OSError, ValueError)


class _Found(msgspec.Struct):
    """A result: its text is called `content` by SearXNG and Tavily, `description` by Brave, and `text` by Exa."""

    url: str | None = None
    title: str | None = None
    content: str | None = None
    description: str | None = None
    text: str | None = None


class _Answer(msgspec.Struct):
    """The answer of a service; Brave's has its results in `web`."""

    results: list[_Found] = []
    web: "_Answer | None" = None


def searcher_of(service: str, *, url: str = "", key: str = "") -> Searcher:
    """The search of a service, by its name, at its own address or at the base `url`. A search raises SearchFailure."""
    base, search = _SERVICES[service]

    async def found(query: SearchQuery) -> list[Result]:
        return bound_results(await search((url or base).rstrip("/"), key, query), query)

    return found


async def _searxng(base: str, key: str, query: SearchQuery) -> Iterable[Result]:
    """The results of its engines. It knows no countries."""
    params = {"q": _within_domains(query), "format": "json", "pageno": "1", "categories": "general"}
    return _results(await _answer(f"{base}/search?{urlencode(params)}", {}))


async def _brave(base: str, key: str, query: SearchQuery) -> Iterable[Result]:
    """Brave's results, whose texts are HTML."""
    text = _within_domains(query)[:MAX_BRAVE_CHARS]
    params = {"q": text, "count": str(RESULTS), "text_decorations": "false"}
    if query.country:
        params["country"] = query.country
    headers = {"x-subscription-token": key}
    found = await _answer(f"{base}/res/v1/web/search?{urlencode(params)}", headers)
    return (
        Result(each.url, unescape(each.title[:MAX_SAID_CHARS]), unescape(each.snippet[:MAX_SAID_CHARS]))
        for each in _results(found.web or _Answer())
    )


async def _exa(base: str, key: str, query: SearchQuery) -> Iterable[Result]:
    contents = {"text": {"maxCharacters": MAX_SNIPPET_CHARS}}
    body: dict[str, Any] = {"query": query.text, "numResults": RESULTS, "contents": contents}
    if query.domains:
        body["includeDomains"] = list(query.domains)
    if query.country:
        body["userLocation"] = query.country
    return _results(await _answer(f"{base}/search", {"x-api-key": key}, body))


async def _tavily(base: str, key: str, query: SearchQuery) -> Iterable[Result]:
    """Tavily's results. It knows countries by their names, so ours isn't given."""
    body: dict[str, Any] = {"query": query.text, "max_results": RESULTS}
    if query.domains:
        body["include_domains"] = list(query.domains)
    return _results(await _answer(f"{base}/search", {"authorization": f"Bearer {key}"}, body))


_SERVICES: dict[str, tuple[str, Callable[[str, str, SearchQuery], Awaitable[Iterable[Result]]]]] = {
    "searxng": ("", _searxng),
    "brave": ("https://api.search.brave.com", _brave),
    "exa": ("https://api.exa.ai", _exa),
    "tavily": ("https://api.tavily.com", _tavily),
}
"""The services: the address of each, and its search by an address and a key."""


def _within_domains(query: SearchQuery) -> str:
    """The query as a service gets it that knows domains by `site:` alone."""
    if not query.domains:
        return query.text
    return f"{query.text} {' OR '.join(f'site:{domain}' for domain in query.domains)}"


def _results(answer: _Answer) -> Iterable[Result]:
    for each in answer.results:
        yield Result(each.url or "", each.title or "", each.content or each.description or each.text or "")


async def _answer(url: str, headers: dict[str, str], sent: dict[str, Any] | None = None) -> _Answer:
    """The answer of a service, to a POST where something is sent. Raises SearchFailure, which quotes no request."""
    headers |= {"user-agent": f"harmonium/{this_build().version}", "accept": "application/json"}
    method, body = "GET", b""
    if sent is not None:
        method, body = "POST", msgspec.json.encode(sent)
        headers["content-type"] = "application/json"
    try:
        async with asyncio.timeout(SECONDS), asking(method, WebAddress.of(url), headers, body) as connection:
            if connection.answer.status != 200:
                raise SearchFailure(f"the search service answers with HTTP {connection.answer.status}")
            found = await read_bounded(connection.read, MAX_BYTES)
            if len(found) > MAX_BYTES:
                raise SearchFailure("the search service's answer is too long")
            return msgspec.json.decode(found, type=_Answer)
    except TimeoutError:
        raise SearchFailure(f"the search service did not answer within {SECONDS:g} s") from None
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        raise SearchFailure("the search service's answer is invalid") from None
    except BROKEN as error:
        raise SearchFailure(f"the search service can't be reached ({type(error).__name__})") from None
