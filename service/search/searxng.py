"""SearXNG, which searches many engines and is hosted by oneself.

Its settings.yml has to allow JSON (`search: formats: [html, json]`), else it answers with 403.
https://docs.searxng.org/dev/search_api.html
"""

import msgspec

from service.browser.page import Result
from service.search.ask import answer
from service.search.port import Query, kept


class _Found(msgspec.Struct):
    url: str | None = None
    title: str | None = None
    content: str | None = None


class _Answer(msgspec.Struct):
    results: list[_Found] = []


class SearXng:
    """A SearXNG at a base URL."""

    def __init__(self, url: str) -> None:
        self._url = f"{url.rstrip('/')}/search"

    async def search(self, query: Query) -> list[Result]:
        """What its engines find. It knows no countries and no domains but those of a query. Raises SearchFailure."""
        text = query.text
        if query.domains:
            text = f"{text} {' OR '.join(f'site:{domain}' for domain in query.domains)}"
        given = {"q": text, "format": "json", "pageno": "1", "categories": "general"}
        found = await answer(_Answer, "GET", self._url, params=given)
        return kept((Result(each.url or "", each.title or "", each.content or "") for each in found.results), query)
