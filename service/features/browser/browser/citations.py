"""Citations in an answer: marks such as 【3†L9-L11】 become links, and annotations with their places.

    High water is at ten【3†L9】.  ─▶  High water is at ten ([tides.example](https://tides.example/brest)).

An answer comes in pieces, so a text that may begin a mark is held back until that is known. Offsets count
characters of the text that the client sees.
"""

import re
from collections.abc import Callable, Sequence
from typing import NamedTuple

from service.api.citing import Cited
from service.api.response import Logprob
from service.features.browser.browser.page import SOURCE, Display, host_of, link_at, page_under

MAX_MARK_CHARS = 200
"""The longest mark. Longer ones are text."""

MAX_LINE = 1_000_000

_MARK = re.compile(r"【(\d{1,6})†([^†【】]{1,180})(?:†[^†【】]{1,180})?】")
_BEGUN = re.compile(r"【(?:\d{0,6}|\d{1,6}†[^†【】]*(?:†[^†【】]*)?)\Z")
_LINE = re.compile(r"L(\d{1,7})")


class Source(NamedTuple):
    """The target of a mark."""

    url: str
    title: str


class Citations:
    """The citations of one answer. The log probabilities that come beside its text stay with it."""

    def __init__(self, source_of: Callable[[int, int], Source | None]) -> None:
        """`source_of` returns the target of a cursor's line."""
        self._source_of = source_of
        self._held = ""
        self._beside: list[Logprob] = []
        self._chars = 0
        self._last = ""

    def take(self, text: str, beside: Sequence[Logprob] = ()) -> list[Cited]:
        """Some more text; what can be shown by now."""
        self._beside += beside
        if not self._held and "【" not in text:
            return self._give([text])
        held, self._held = self._held + text, ""
        pieces, start = list[str | re.Match[str]](), 0
        for mark in _MARK.finditer(held):
            if len(mark[0]) > MAX_MARK_CHARS:  # it would be one only where it came at once
                continue
            pieces += [held[start : mark.start()], mark]
            start = mark.end()
        rest = held[start:]
        begun = _BEGUN.search(rest)
        if begun is not None and len(begun[0]) < MAX_MARK_CHARS:
            self._held = begun[0]
            rest = rest[: begun.start()]
        return self._give([*pieces, rest])

    def rest(self) -> list[Cited]:
        """The held-back pieces, as nothing more comes."""
        held, self._held = self._held, ""
        return self._give([held]) if held or self._beside else []

    def _give(self, pieces: Sequence[str | re.Match[str]]) -> list[Cited]:
        """The pieces as they are shown. Log probabilities come with the last of them."""
        out: list[Cited] = []
        for piece in pieces:
            source = None if isinstance(piece, str) else self._source_of(int(piece[1]), _line(piece[2]))
            if source is None:
                if text := piece if isinstance(piece, str) else piece[0]:
                    out.append(self._show(text))
                continue
            if self._last and not self._last.isspace():
                out.append(self._show(" "))
            start = self._chars
            linked = source.url.replace("(", "%28").replace(")", "%29").replace(" ", "%20")
            cited = self._show(f"([{host_of(source.url)}]({linked}))")
            annotation = {"type": "url_citation", "start_index": start, "end_index": self._chars} | source._asdict()
            out.append(cited._replace(annotation=annotation))
        if out and not self._held:
            beside, self._beside = self._beside, []
            out[-1] = out[-1]._replace(beside=beside)
        return out

    def _show(self, text: str) -> Cited:
        self._chars += len(text)
        self._last = text[-1]
        return Cited(text)


def _line(place: str) -> int:
    """The first line that a mark names; its page as a whole, where it names none."""
    found = _LINE.search(place)
    return min(int(found[1]), MAX_LINE) if found else 0


def source_of(displays: Sequence[Display], cursor: int, line: int) -> Source | None:
    """The target of a display's line: its page; for matches in a page, that page; for a search, the link that stands
    there. None where there is nothing.
    """
    page = page_under(displays, cursor) if 0 <= cursor < len(displays) else None
    if page is None:
        return None
    if page.kind == "search":
        link = link_at(page, line)
        return None if link is None else Source(link[0], _title(displays, *link))
    url, title = page.about or (page.url, page.title)
    return Source(url.removeprefix(SOURCE), title)


def _title(displays: Sequence[Display], url: str, link: str) -> str:
    """The title of a page that was opened, else the text of the link to it."""
    for display in displays:
        if display.page is not None and display.page.kind == "page" and display.page.url == url:
            return display.page.title
    return link
