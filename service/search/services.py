"""Services that search the web: SearXNG, which anyone can host, and Brave, Exa and Tavily, by a key.

Each knows its own parameters, and none gets more of a request than the query.
https://docs.searxng.org/dev/search_api.html (its settings.yml has to allow JSON, `search: formats: [html, json]`, else
it answers with 403), https://api-dashboard.search.brave.com/app/documentation/web-search,
https://docs.exa.ai/reference/search, https://docs.tavily.com/documentation/api-reference/endpoint/search
"""

from html import unescape
from typing import Any

import msgspec

from service.browser.page import Result
from service.search.ask import answer
from service.search.port import MAX_SNIPPET_CHARS, RESULTS, Query, kept

BRAVE_URL = "https://api.search.brave.com"
EXA_URL = "https://api.exa.ai"
TAVILY_URL = "https://api.tavily.com"

MAX_BRAVE_CHARS = 400
"""How long a query of Brave's may be."""

MAX_SAID_CHARS = 4_000
"""How much of a text of Brave's is read, in which a character may take many."""


class _Found(msgspec.Struct):
    """A result: its text is called `content` by SearXNG and Tavily, `description` by Brave, and `text` by Exa."""

    url: str | None = None
    title: str | None = None
    content: str | None = None
    description: str | None = None
    text: str | None = None

    @property
    def result(self) -> Result:
        """The result as it may be shown."""
        return Result(self.url or "", self.title or "", self.content or self.description or self.text or "")


class _Answer(msgspec.Struct):
    results: list[_Found] = []


class _BraveAnswer(msgspec.Struct):
    web: _Answer | None = None


def _within_domains(query: Query) -> str:
    """The query as a service gets it that knows domains by `site:` alone."""
    if not query.domains:
        return query.text
    return f"{query.text} {' OR '.join(f'site:{domain}' for domain in query.domains)}"


class SearXng:
    """A SearXNG at a base URL. It knows no countries."""

    def __init__(self, url: str) -> None:
        self._url = f"{url.rstrip('/')}/search"

    async def search(self, query: Query) -> list[Result]:
        """The results of its engines. Raises SearchFailure."""
        given = {"q": _within_domains(query), "format": "json", "pageno": "1", "categories": "general"}
        found = await answer(_Answer, "GET", self._url, params=given)
        return kept((each.result for each in found.results), query)


class Brave:
    """Brave, with a key of its API."""

    def __init__(self, key: str, url: str = BRAVE_URL) -> None:
        self._url = f"{url.rstrip('/')}/res/v1/web/search"
        self._headers = {"x-subscription-token": key}

    async def search(self, query: Query) -> list[Result]:
        """Its results. Raises SearchFailure."""
        text = _within_domains(query)[:MAX_BRAVE_CHARS]
        given = {"q": text, "count": str(RESULTS), "text_decorations": "false"}
        if query.country:
            given["country"] = query.country
        found = (await answer(_BraveAnswer, "GET", self._url, headers=self._headers, params=given)).web or _Answer()
        results = (each.result for each in found.results)
        return kept((Result(each.url, _plain(each.title), _plain(each.snippet)) for each in results), query)


def _plain(html: str) -> str:
    return unescape(html[:MAX_SAID_CHARS])


class Exa:
    """Exa, with a key of its API."""

    def __init__(self, key: str, url: str = EXA_URL) -> None:
        self._url = f"{url.rstrip('/')}/search"
        self._headers = {"x-api-key": key}

    async def search(self, query: Query) -> list[Result]:
        """Its results. Raises SearchFailure."""
        contents = {"text": {"maxCharacters": MAX_SNIPPET_CHARS}}
        asked: dict[str, Any] = {"query": query.text, "numResults": RESULTS, "contents": contents}
        if query.domains:
            asked["includeDomains"] = list(query.domains)
        if query.country:
            asked["userLocation"] = query.country
        found = await answer(_Answer, "POST", self._url, headers=self._headers, body=asked)
        return kept((each.result for each in found.results), query)


class Tavily:
    """Tavily, with a key of its API. It knows countries by their names, so ours isn't given."""

    def __init__(self, key: str, url: str = TAVILY_URL) -> None:
        self._url = f"{url.rstrip('/')}/search"
        self._headers = {"authorization": f"Bearer {key}"}

    async def search(self, query: Query) -> list[Result]:
        """Its results. Raises SearchFailure."""
        asked: dict[str, Any] = {"query": query.text, "max_results": RESULTS}
        if query.domains:
            asked["include_domains"] = list(query.domains)
        found = await answer(_Answer, "POST", self._url, headers=self._headers, body=asked)
        return kept((each.result for each in found.results), query)
