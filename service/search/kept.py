"""Pages that were opened lately, of each tenant its own: who goes back to one needn't fetch it again."""

from collections import OrderedDict
from time import monotonic

from service.browser.page import Page

SECONDS = 900.0
"""How long a page is kept."""

MAX_CHARS = 32 << 20
"""How much text a process keeps, of all tenants together."""


class KeptPages:
    """The pages that a process keeps."""

    def __init__(self, *, seconds: float = SECONDS, chars: int = MAX_CHARS) -> None:
        self._seconds = seconds
        self._left = chars
        self._pages: OrderedDict[tuple[str, str], tuple[float, Page]] = OrderedDict()

    def get(self, tenant: str, url: str) -> Page | None:
        """The page that a tenant opened at an address."""
        found = self._pages.get((tenant, url))
        if found is None or found[0] < monotonic():
            return None
        self._pages.move_to_end((tenant, url))
        return found[1]

    def put(self, tenant: str, url: str, page: Page) -> None:
        """Keep a page; those that nobody came back to for longest make room."""
        self._drop((tenant, url))
        self._pages[tenant, url] = (monotonic() + self._seconds, page)
        self._left -= len(page.text)
        while self._left < 0 and self._pages:
            self._drop(next(iter(self._pages)))

    def _drop(self, key: tuple[str, str]) -> None:
        dropped = self._pages.pop(key, None)
        if dropped is not None:
            self._left += len(dropped[1].text)
