"""Brave's search, by a key. https://api-dashboard.search.brave.com/app/documentation/web-search"""

from html import unescape

import msgspec

from service.browser.page import Result
from service.search.ask import answer
from service.search.port import RESULTS, Query, kept

URL = "https://api.search.brave.com"

MAX_SAID_CHARS = 4_000
"""How much of a text is read, in which a character may take many."""


class _Found(msgspec.Struct):
    url: str | None = None
    title: str | None = None
    description: str | None = None


class _Web(msgspec.Struct):
    results: list[_Found] = []


class _Answer(msgspec.Struct):
    web: _Web | None = None


class Brave:
    """Brave, with a key of its API."""

    def __init__(self, key: str, url: str = URL) -> None:
        self._url = f"{url.rstrip('/')}/res/v1/web/search"
        self._headers = {"x-subscription-token": key}

    async def search(self, query: Query) -> list[Result]:
        """What it finds. Raises SearchFailure."""
        text = query.text
        if query.domains:
            text = f"{text} {' OR '.join(f'site:{domain}' for domain in query.domains)}"
        given = {"q": text[:400], "count": str(RESULTS), "text_decorations": "false"}
        if query.country:
            given["country"] = query.country
        found = (await answer(_Answer, "GET", self._url, headers=self._headers, params=given)).web or _Web()
        return kept(
            (Result(each.url or "", _said(each.title), _said(each.description)) for each in found.results), query
        )


def _said(text: str | None) -> str:
    return unescape((text or "")[:MAX_SAID_CHARS])
