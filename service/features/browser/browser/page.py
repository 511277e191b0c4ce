"""Pages as the browser shows them: their text in lines, and where their links lead.

Everything in here is plain data: pages go into the journal of a response and into the notes of its turn, so a field
keeps its place; only ever add, with a default and the journal's next version.
"""

import re
import textwrap
from bisect import bisect_right
from collections.abc import Iterable, Sequence
from functools import lru_cache
from itertools import accumulate
from operator import itemgetter
from typing import Any, Literal, NamedTuple
from urllib.parse import urlsplit

import msgspec

WIDTH = 80
"""How long a line is at most. Links are wrapped as any text."""

WRAPPED_CHARS = 8_000
"""How much of a line is wrapped at once: wrapping keeps all other threads waiting, 100 ms for half a megabyte."""

MAX_PAGE_CHARS = 500_000
"""How much of a page's text there is. 200 pages of a book have as much."""

MAX_LINKS = 5_000
MAX_LINKS_CHARS = 250_000
"""How many characters the addresses of a page's links have together."""

MAX_URL_CHARS = 2_048

SOURCE = "view-source:"
"""The prefix of a page's address where the page is shown as it was sent."""

REST = "\n[The rest of this page is left out.]"

PAGES_CITED = 32
"""Of how many results of searches the lines are remembered, as an answer may cite them at every second word."""

_SPECIAL = (("【", "〖"), ("】", "〗"), ("◼", "◾"), ("\u200b", ""), ("\r", ""), ("\0", ""))
_LINK = re.compile(r"【(?P<number>\d{1,6})†(?P<text>[^†】]+)(?:†[^†】]+)?】")
_LINK_BEGUN = re.compile(r"^[^【】]*】")
_LINK_CUT = re.compile(r"【\d*(?:†(?P<text>[^†】]*)(?:†[^†】]*)?)?$")


class Page(msgspec.Struct, frozen=True, array_like=True):
    """A page, the results of a search, or the matches in a page.

    `links` are the addresses that links lead to, by their numbers. The matches in a page are `about` it, its address
    and title, and `places` are the lines that its links lead to. One that isn't `whole` lost its text for want of room.
    """

    kind: Literal["page", "search", "find"]
    url: str
    title: str
    text: str
    links: tuple[str, ...] = ()
    places: tuple[int, ...] = ()
    about: tuple[str, str] | None = None
    whole: bool = True

    @property
    def size(self) -> int:
        """About how many characters it has."""
        about = 0 if self.about is None else sum(map(len, self.about))
        return len(self.url) + len(self.title) + len(self.text) + sum(map(len, self.links)) + about


class Display(msgspec.Struct, frozen=True, array_like=True):
    """A display of the model's, under its `cursor`: a page, or `again` that of an earlier cursor. One with neither
    belonged to an item that was deleted.
    """

    page: Page | None = None
    again: int = -1
    cursor: int = -1

    @property
    def size(self) -> int:
        """About how many characters it has."""
        return 0 if self.page is None else self.page.size

    def bare(self) -> "Display":
        """The same without its text and links: those of a page can be fetched again."""
        if self.page is None:
            return self
        page = msgspec.structs.replace(self.page, text="", links=(), places=(), whole=False)
        return msgspec.structs.replace(self, page=page)


def displays_in(values: Iterable[Any]) -> tuple[Display, ...]:
    """The displays of a response, which are lists again where its plan or its journal was read."""
    return tuple(each if isinstance(each, Display) else msgspec.convert(each, Display) for each in values)


def page_under(displays: Sequence[Display], cursor: int) -> Page | None:
    """The page of an existing cursor; None where its item was deleted."""
    display = displays[cursor]
    return displays[display.again].page if display.again >= 0 else display.page


class Result(NamedTuple):
    """A search result: the address of a page, its title, and its words on the matter."""

    url: str
    title: str
    snippet: str


def plain(text: str) -> str:
    """A text without the characters that have a meaning in the browser."""
    if text.isascii() and "\r" not in text and "\0" not in text:
        return text
    for special, instead in _SPECIAL:  # `translate` takes 40 times as long for half a megabyte of Chinese
        text = text.replace(special, instead)
    return text


def page_of(url: str, title: str, text: str, links: Sequence[str] = ()) -> Page:
    """The page with this text, in which links are marked already, and nothing else is."""
    if len(text) > MAX_PAGE_CHARS:
        text = text[:MAX_PAGE_CHARS] + REST
    return Page("page", url, _title_of(title) or host_of(url), f"\nURL: {url}\n{text}", tuple(links))


def text_page(url: str, title: str, text: str) -> Page:
    """The page of some text, shown as it is."""
    return page_of(url, title, plain(text[: MAX_PAGE_CHARS + 1]))


def results_page(query: str, results: Sequence[Result]) -> Page:
    """The results of a search, as a page with a link to each."""
    links = tuple(dict.fromkeys(result.url for result in results))
    numbers = {url: number for number, url in enumerate(links)}
    lines: list[str] = []
    for result in results:
        title = _title_of(result.title).replace("†", "‡") or host_of(result.url)
        snippet = " ".join(plain(result.snippet).split())
        lines.append(f"  * 【{numbers[result.url]}†{title}†{host_of(result.url)}】 {snippet}".rstrip())
    text = "\n".join(lines) if lines else "No results."
    return Page("search", "", _title_of(query), f"\nURL: \n# Search Results\n\n{text}", links)


def lines_of(text: str) -> list[str]:
    """The text of a page, wrapped: the lines that the model counts."""
    lines: list[str] = []
    for line in text.split("\n"):
        if len(line) <= WIDTH and "\t" not in line:
            lines.append(line)
        else:
            lines += _wrap(line)
    return lines


def _wrap(line: str) -> list[str]:
    """A line in lines. The last one of each part is wrapped once more with the part behind it."""
    lines: list[str] = []
    rest = ""
    for start in range(0, len(line), WRAPPED_CHARS):
        part = f"{rest}{line[start : start + WRAPPED_CHARS]}"
        lines += textwrap.wrap(part, width=WIDTH, replace_whitespace=False, drop_whitespace=False)
        rest = lines.pop()
    return [*lines, rest]


def without_links(text: str) -> str:
    """The text of a page with the texts of its links in their places, those that are cut at its ends included."""
    text = _LINK_BEGUN.sub("", text)
    text = _LINK_CUT.sub(lambda link: link["text"] or "", text)
    return _LINK.sub(lambda link: link["text"], text)


def link_at(page: Page, line: int) -> tuple[str, str] | None:
    """The address and the text of the last link that begins in the first lines of a page, up to this one."""
    links = _links_in_lines(page.text)
    begun = bisect_right(links, line, key=itemgetter(0))
    if begun == 0 or links[begun - 1][1] >= len(page.links):
        return None
    _, number, text = links[begun - 1]
    return page.links[number], text


@lru_cache(PAGES_CITED)
def _links_in_lines(text: str) -> list[tuple[int, int, str]]:
    """The links of a page's text: the line in which each begins, its number, and its own text."""
    ends = list(accumulate(len(line) + 1 for line in lines_of(text)))
    return [(bisect_right(ends, link.start()), int(link["number"]), link["text"]) for link in _LINK.finditer(text)]


def host_of(url: str) -> str:
    """The host of an address, with its port; "" where it has none."""
    try:
        return urlsplit(url.removeprefix(SOURCE)).netloc.rpartition("@")[2]
    except ValueError:
        return ""


def _title_of(text: str) -> str:
    return " ".join(plain(text).split())[:300]
