"""Tavily's search, by a key. https://docs.tavily.com/documentation/api-reference/endpoint/search"""

from typing import Any

import msgspec

from service.browser.page import Result
from service.search.ask import answer
from service.search.port import RESULTS, Query, kept

URL = "https://api.tavily.com"


class _Found(msgspec.Struct):
    url: str | None = None
    title: str | None = None
    content: str | None = None


class _Answer(msgspec.Struct):
    results: list[_Found] = []


class Tavily:
    """Tavily, with a key of its API."""

    def __init__(self, key: str, url: str = URL) -> None:
        self._url = f"{url.rstrip('/')}/search"
        self._headers = {"authorization": f"Bearer {key}"}

    async def search(self, query: Query) -> list[Result]:
        """What it finds. It knows countries by their names, so ours isn't told. Raises SearchFailure."""
        asked: dict[str, Any] = {"query": query.text, "max_results": RESULTS}
        if query.domains:
            asked["include_domains"] = list(query.domains)
        found = await answer(_Answer, "POST", self._url, headers=self._headers, body=asked)
        return kept((Result(each.url or "", each.title or "", each.content or "") for each in found.results), query)
