"""The browser's three tools over their earlier displays: pure, so that any process that continues a response shows the
same.

    arguments ─▶ asked ─▶ Search │ Fetch: the caller's to do ─▶ a page ─▶ view
                      └─▶ a page that is there ──────────────────────────▲

A display is a view of a page, byte for byte as gpt-oss was trained on them:

    [3] Tides in Brest (https://tides.example/brest)
    **viewing lines [0 - 7] of 7**

    L0: …

A cursor is the number of a display. They number on over a conversation, as its history has them all: in notes, which go
where its turns go, and with them. No prompt has a note. The pages stand in it as they were read, so that any process
that continues the conversation shows the same lines under the same numbers.
"""

import re
from bisect import bisect_right
from collections.abc import Iterable, Sequence
from itertools import accumulate
from typing import Any
from urllib.parse import quote, unquote

import msgspec

from service.features.browser.browser.page import SOURCE, Display, Page, lines_of, page_under, plain, without_links
from service.harmony import tokens
from store.turn import StoredMessage

MAX_CHARS = 1_000_000
"""How much of pages' texts a response takes over from its conversation: the newest that have room. Others are fetched
again.
"""

MAX_DISPLAYS_CHARS = 2_000_000
"""How much there may be of it at the end of a response, before new pages are kept without their texts."""

MAX_ADDRESS_CHARS = 1_024
MOST_VIEWS = 4
"""How many views' tokens there may be at once, where the model asks for many lines."""

MAX_FOUND = 50
FOUND_LINES = 4
"""How many lines of a page a match shows, and how many matches there are at most."""

_DISPLAY = msgspec.json.Decoder(Display)

INVALID = '{"error": "Invalid function arguments"}'
MAX_PATTERN_CHARS = 500
MAX_QUERY_CHARS = 2_000

_MOST = 1 << 31
_LINK_NUMBER = re.compile(r"\d{1,9}", re.ASCII)
_ARGUMENTS = msgspec.json.Decoder(dict[str, Any])


class UsageError(Exception):
    """The model asked for a missing page or line. It is told so, and no cursor is used up."""


class PageGone(Exception):
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


def request_of(tool: str, arguments: str, displays: Sequence[Display]) -> Asked:
    """The request that a tool call makes, after these displays. Raises UsageError, and PageGone where it needs a
    page that isn't whole.
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
    """The page of an existing cursor. Raises PageGone, and UsageError for a page that can't be fetched again."""
    page = page_under(displays, cursor)
    if page is None or (not page.whole and page.kind != "page"):
        raise UsageError(f"Cursor `{cursor}` shows no page, and is no longer available.")
    if not page.whole:
        raise PageGone(page.url)
    return page


def restore(displays: Sequence[Display], page: Page) -> list[Display]:
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
        page = matches(page, wanted.pattern)
    text = excerpt_of(len(displays), page, line=line, lines=lines, view_tokens=view_tokens)
    if page.kind == "page":
        for cursor in range(len(displays) - 1, -1, -1):
            if displays[cursor].page == page:
                return text, Display(again=cursor, cursor=len(displays))
    return text, Display(page, cursor=len(displays))


def displays_of(notes: Iterable[StoredMessage]) -> tuple[Display, ...]:
    """The displays of a conversation's notes, by their cursors: those whose items were deleted leave empty places. It
    takes a millisecond for each megabyte of them.
    """
    left, kept = MAX_CHARS, list[Display]()
    for note in notes:
        display = _DISPLAY.decode(note.name or "")
        kept += [Display()] * (display.cursor - len(kept))
        kept.append(display)
    for cursor, display in reversed(list(enumerate(kept))):
        if display.size > left:
            kept[cursor] = display.bare()
        left -= kept[cursor].size
    return tuple(kept)


def with_room(display: Display, before: Iterable[Display]) -> Display:
    """A display as it is kept beside those before it."""
    size = display.size + sum(each.size for each in before)
    return display if size <= MAX_DISPLAYS_CHARS else display.bare()


def excerpt_of(cursor: int, page: Page, *, line: int, lines: int, view_tokens: int) -> str:
    """A view of a page from a `line` on: so many `lines`, or as many as have the tokens of a view, where that is below
    1. Raises UsageError for a line that the page doesn't have.
    """
    wrapped = lines_of(page.text)
    if line >= len(wrapped):
        raise UsageError(f"Invalid location parameter: `{line}`. Cannot exceed page maximum of {len(wrapped) - 1}.")
    numbered = [f"L{number}: {text}" for number, text in enumerate(wrapped[line:], line)]
    wanted = _lines_of_view(numbered, view_tokens)
    if lines > 0:
        wanted = lines if lines <= wanted else min(lines, _lines_of_view(numbered, view_tokens * MOST_VIEWS))
    end = min(line + wanted, len(wrapped))
    address = shorten(plain(" ".join(unquote(page.url).split())))
    header = f"{page.title} ({address})" if address else page.title
    body = "\n".join(numbered[:wanted])
    return f"[{cursor}] {header}\n**viewing lines [{line} - {end - 1}] of {len(wrapped) - 1}**\n\n{body}"


def _lines_of_view(numbered: Sequence[str], view_tokens: int) -> int:
    """How many lines it takes for so many tokens, the one included in which the last of them ends.

    A token's length is that of its own text, a piece of a character counted as one: so the model was shown its views.
    """
    ids: list[int] = []
    for number, line in enumerate(numbered):
        ids += tokens.encode(line if number == len(numbered) - 1 else f"{line}\n")
        if len(ids) > view_tokens:
            chars = sum(len(tokens.decode((id,))) for id in ids[:view_tokens])
            return bisect_right(list(accumulate(len(line) + 1 for line in numbered)), chars) + 1
    return len(numbered)


def matches(page: Page, pattern: str) -> Page:
    """The matches of a pattern in a page, in capitals or small letters."""
    pattern = pattern.lower()
    lines = without_links("\n".join(lines_of(page.text))).split("\n")
    places: list[int] = []
    for number, line in enumerate(lines):
        apart = not places or number >= places[-1] + FOUND_LINES
        if apart and len(places) < MAX_FOUND and pattern in line.lower():
            places.append(number)
    texts = [
        "\n".join((f"# 【{match}†match at L{place}】", *lines[place : place + FOUND_LINES]))
        for match, place in enumerate(places)
    ]
    return Page(
        "find",
        f"{page.url}/find?pattern={quote(pattern)}",
        f"Find results for text: `{pattern}` in `{page.title}`",
        "\n\n".join(texts) or f"No `find` results for pattern: `{pattern}`",
        places=tuple(places),
        about=(page.url, page.title),
    )


def shorten(text: str) -> str:
    """A text of at most so many characters, as errors and headers have it."""
    return text if len(text) <= MAX_ADDRESS_CHARS else f"{text[: MAX_ADDRESS_CHARS - 3]}..."
