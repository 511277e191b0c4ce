"""Pages that were opened lately, each tenant's apart: a second visit needn't fetch one again."""

from collections import OrderedDict
from time import monotonic
from typing import NamedTuple

from service.browser.page import Page

SECONDS = 900.0
"""How long a page is kept."""

MAX_CHARS = 32 << 20
"""How much a process keeps, of all tenants together."""

OWN_CHARS = 1_000
"""The size that any page counts for besides its text."""


class Opened(NamedTuple):
    """The key of an opened page: a tenant that may see these domains, and an address."""

    tenant: str
    domains: tuple[str, ...]
    url: str


class _Kept(NamedTuple):
    until: float
    page: Page
    chars: int


class KeptPages:
    """The pages that a process keeps."""

    def __init__(self, *, seconds: float = SECONDS, chars: int = MAX_CHARS) -> None:
        self._seconds = seconds
        self._left = chars
        self._pages: OrderedDict[Opened, _Kept] = OrderedDict()

    def get(self, opened: Opened) -> Page | None:
        """The page that was opened so, if it is still kept."""
        found = self._pages.get(opened)
        if found is None or found.until < monotonic():
            return None
        self._pages.move_to_end(opened)
        return found.page

    def put(self, opened: Opened, page: Page) -> None:
        """Keeps a page; those unused for longest make room."""
        self._drop(opened)
        chars = OWN_CHARS + page.size + sum(map(len, opened.domains))
        self._pages[opened] = _Kept(monotonic() + self._seconds, page, chars)
        self._left -= chars
        while self._pages and (self._left < 0 or self._is_over(next(iter(self._pages)))):
            self._drop(next(iter(self._pages)))

    def _is_over(self, opened: Opened) -> bool:
        return self._pages[opened].until < monotonic()

    def _drop(self, opened: Opened) -> None:
        dropped = self._pages.pop(opened, None)
        if dropped is not None:
            self._left += dropped.chars
