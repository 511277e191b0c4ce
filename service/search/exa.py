"""Exa's search, by a key. https://docs.exa.ai/reference/search"""

from typing import Any

import msgspec

from service.browser.page import Result
from service.search.ask import answer
from service.search.port import MAX_SNIPPET_CHARS, RESULTS, Query, kept

URL = "https://api.exa.ai"


class _Found(msgspec.Struct):
    url: str | None = None
    title: str | None = None
    text: str | None = None


class _Answer(msgspec.Struct):
    results: list[_Found] = []


class Exa:
    """Exa, with a key of its API."""

    def __init__(self, key: str, url: str = URL) -> None:
        self._url = f"{url.rstrip('/')}/search"
        self._headers = {"x-api-key": key}

    async def search(self, query: Query) -> list[Result]:
        """What it finds. Raises SearchFailure."""
        asked: dict[str, Any] = {
            "query": query.text,
            "numResults": RESULTS,
            "contents": {"text": {"maxCharacters": MAX_SNIPPET_CHARS}},
        }
        if query.domains:
            asked["includeDomains"] = list(query.domains)
        if query.country:
            asked["userLocation"] = query.country
        found = await answer(_Answer, "POST", self._url, headers=self._headers, body=asked)
        return kept((Result(each.url or "", each.title or "", each.text or "") for each in found.results), query)
