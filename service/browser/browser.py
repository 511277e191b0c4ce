"""The browser's three tools over their earlier displays: pure, so that any process that continues a response shows the
same.

    arguments ─▶ asked ─▶ Search │ Fetch: the caller's to do ─▶ a page ─▶ view
                      └─▶ a page that is there ──────────────────────────▲

A cursor is the number of a display. They number on over a conversation, as its history has them all.
"""

import re
from collections.abc import Sequence
from typing import Any

import msgspec

from service.browser.displays import UsageError, found, shown
from service.browser.page import SOURCE, Display, Page

INVALID = '{"error": "Invalid function arguments"}'
MAX_PATTERN_CHARS = 500
MAX_QUERY_CHARS = 2_000

_MOST = 1 << 31
_LINK_NUMBER = re.compile(r"\d{1,9}", re.ASCII)
_ARGUMENTS = msgspec.json.Decoder(dict[str, Any])


class Gone(Exception):
    """The text of a page is wanted that was dropped for want of room: fetch it from its `url` again."""

    def __init__(self, url: str) -> None:
        super().__init__(url)
        self.url = url


class Search(msgspec.Struct, frozen=True):
    """A search is to be made."""

    query: str


class Fetch(msgspec.Struct, frozen=True):
    """The page at an address is to be shown from a line on. One that the model named itself is `fresh`: it is fetched
    even where it is there.
    """

    url: str
    line: int
    lines: int
    fresh: bool = False


class Scroll(msgspec.Struct, frozen=True):
    """A page that is there, that of a `cursor`, is to be shown from a line on."""

    cursor: int
    line: int
    lines: int


class Find(msgspec.Struct, frozen=True):
    """A pattern is to be looked for in the page of a `cursor`."""

    cursor: int
    pattern: str


Asked = Search | Fetch | Scroll | Find


def asked(tool: str, arguments: str, displays: Sequence[Display]) -> Asked:
    """The request that a tool call makes, after these displays. Raises UsageError, and Gone where it needs a page that
    isn't whole.
    """
    try:
        given = _ARGUMENTS.decode(arguments or "{}")
    except (msgspec.DecodeError, RecursionError):
        raise UsageError(INVALID) from None
    if tool == "search":
        return Search(_text(given, "query", MAX_QUERY_CHARS))
    if tool == "find":
        cursor = _cursor(given, displays)
        if page_at(displays, cursor).kind != "page":
            raise UsageError("Cannot run `find` on search results page or find results page")
        return Find(cursor, _text(given, "pattern", MAX_PATTERN_CHARS))
    return _open(given, displays)


def _open(given: dict[str, Any], displays: Sequence[Display]) -> Asked:
    link, line, lines = given.get("id", -1), _number(given, "loc"), _number(given, "num_lines")
    source = given.get("view_source") is True
    if isinstance(link, str) and not _LINK_NUMBER.fullmatch(link):
        return Fetch(_source(link, source), max(line, 0), lines, fresh=True)
    number = int(link) if isinstance(link, str) else _number(given, "id")
    cursor = _cursor(given, displays)
    page = page_at(displays, cursor)
    if number < 0:
        if source and page.kind == "page":
            return Fetch(_source(page.url, source), max(line, 0), lines)
        return Scroll(cursor, max(line, 0), lines)
    links = page.links if page.about is None else (page.about[0],) * len(page.places)
    if number >= len(links):
        raise UsageError(f"Invalid link id `{number}`.")
    if line < 0 and not source and number < len(page.places):
        place = page.places[number]
        line = place - 4 if place > 4 else place
    return Fetch(_source(links[number], source), max(line, 0), lines)


def _source(url: str, source: bool) -> str:
    return f"{SOURCE}{url}" if source and not url.startswith(SOURCE) else url


def _text(given: dict[str, Any], name: str, most: int) -> str:
    value = given.get(name)
    if not isinstance(value, str) or not value or len(value) > most:
        raise UsageError(INVALID)
    return value


def _number(given: dict[str, Any], name: str) -> int:
    value = given.get(name, -1)
    if isinstance(value, bool) or not isinstance(value, int) or not -_MOST < value < _MOST:
        raise UsageError(INVALID)
    return value


def _cursor(given: dict[str, Any], displays: Sequence[Display]) -> int:
    """The cursor that is meant, the last one where none is given. Raises UsageError."""
    cursor, last = _number(given, "cursor"), len(displays) - 1
    if last < 0:
        raise UsageError("No pages to access!")
    if not -1 <= cursor <= last:
        raise UsageError(f"Cursor `{cursor}` is out of range. Available cursor indices: [0 - {last}].")
    return last if cursor == -1 else cursor


def page_at(displays: Sequence[Display], cursor: int) -> Page:
    """The page of an existing cursor. Raises Gone, and UsageError for a page that can't be fetched again."""
    display = displays[cursor]
    while display.page is None:
        display = displays[display.again]
    if not display.page.whole and display.page.kind != "page":
        raise UsageError(f"Cursor `{cursor}` shows no page, and is no longer available.")
    if not display.page.whole:
        raise Gone(display.page.url)
    return display.page


def restored(displays: Sequence[Display], page: Page) -> list[Display]:
    """The displays with a page that was fetched again in its old place."""
    return [
        Display(page) if old is not None and not old.whole and old.url == page.url else display
        for display, old in ((display, display.page) for display in displays)
    ]


def page_there(displays: Sequence[Display], wanted: Asked) -> Page | None:
    """The page that a request is about, where a display has its text; None where it is to be searched or fetched."""
    if isinstance(wanted, Scroll | Find):
        return page_at(displays, wanted.cursor)
    if isinstance(wanted, Search) or wanted.fresh:
        return None
    pages = (display.page for display in reversed(displays) if display.page is not None)
    return next((page for page in pages if page.whole and page.kind == "page" and page.url == wanted.url), None)


def view_of(displays: Sequence[Display], page: Page, wanted: Asked, view_tokens: int) -> tuple[str, Display]:
    """The text that the model is shown, of a page that was searched, fetched or is there, and the display to keep.
    A page that was shown before isn't kept once more. Raises UsageError.
    """
    line, lines = (wanted.line, wanted.lines) if isinstance(wanted, Fetch | Scroll) else (0, -1)
    if isinstance(wanted, Find):
        page = found(page, wanted.pattern)
    text = shown(len(displays), page, line=line, lines=lines, view_tokens=view_tokens)
    if page.kind == "page":
        for cursor in range(len(displays) - 1, -1, -1):
            if displays[cursor].page == page:
                return text, Display(again=cursor)
    return text, Display(page)
