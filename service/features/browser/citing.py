"""Citations in an answer: the sources that it names, and links to files that it made.

The outcomes of earlier calls say what may be cited (`Outcome.cites`). Spans count the characters of the text
that the client sees.
"""

import re
from bisect import bisect_right
from collections.abc import Iterator, Mapping, Sequence
from functools import partial
from typing import Any
from urllib.parse import quote

from service.api.citing import Cited, Citing
from service.api.response import Logprob
from service.features.browser.browser.citations import Citations, source_of
from service.features.browser.browser.page import Display, displays_in

DRIVE = "/mnt/data/"
"""Where code keeps its files, as models name it in links (`sandbox:/mnt/data/plot.png`)."""

_SCHEME = "sandbox:"
_BEGINNING = f"{_SCHEME}{DRIVE}"
_AS_IT_IS = "/;,?:@&=+$-_.!~*'()#"
"""The characters that programs leave unescaped in URLs (`encodeURI` of JavaScript)."""

_EITHER = "._"
"""Characters that may end a sentence behind a name, or belong to the name."""

_MOST_EITHER = 8
"""The most of them in a row that are held back until something else follows."""

_IN_NAMES = "%/-~"
"""Characters that continue a name, beside letters and digits."""


class FileCiting:
    """Links to files that code has written. The text stays as it is, so nothing is held back.

    A name may have any character, and a link any of its own behind it: so the names that are known are looked for.
    """

    def __init__(self, files: Mapping[str, Mapping[str, str]]) -> None:
        """`files` has the annotation of each file, by its path."""
        self._files = {said: file for path, file in files.items() for said in _spellings(path)}
        self._known = sorted(self._files)
        self._sizes = sorted({len(said) for said in self._known}, reverse=True)
        self._waiting = ""
        """The end of the text, as far as it may be the beginning of a link."""
        self._chars = 0

    def take(self, text: str, beside: Sequence[Logprob] = ()) -> Sequence[Cited]:
        """Take more text, and the log probabilities of its tokens; the pieces that can be shown by now."""
        self._chars += len(text)
        self._waiting += text
        return [Cited(text, beside), *self._cite(whole=False)]

    def rest(self) -> Sequence[Cited]:
        """The pieces that are left when no more text comes."""
        found = self._cite(whole=True)
        self._waiting = ""
        return found

    def _cite(self, *, whole: bool) -> list[Cited]:
        """The annotations of the links that are complete; nothing comes behind a text that is `whole`."""
        found: list[Cited] = []
        waiting, place = self._waiting, 0
        while (start := waiting.find(_BEGINNING, place)) >= 0:
            name = self._name(waiting[start + len(_SCHEME) :], whole=whole)
            if name is None:
                self._waiting = waiting[start:]
                return found
            place = start + len(_BEGINNING)
            if name:
                place = start + len(_SCHEME) + len(name)
                before = self._chars - len(waiting)
                span = {"start_index": before + start, "end_index": before + place}
                annotation = {"type": "container_file_citation"} | dict(self._files[name]) | span
                found.append(Cited("", (), annotation))
        left = waiting[place:]
        sizes = range(min(len(_BEGINNING) - 1, len(left)), 0, -1)
        self._waiting = left[-size:] if (size := next((n for n in sizes if left.endswith(_BEGINNING[:n])), 0)) else ""
        return found

    def _name(self, said: str, *, whole: bool) -> str | None:
        """The longest name of a file with which something begins, "" where it is none, and None
        where that is open.
        """
        if not whole and self._begins(said):
            return None
        for size in self._sizes:
            if said[:size] in self._files:
                ends = _ends(said[size:], whole=whole)
                if ends is None or ends:
                    return said[:size] if ends else None
        return ""

    def _begins(self, said: str) -> bool:
        """Whether it may be the beginning of a longer name."""
        place = bisect_right(self._known, said)
        return place < len(self._known) and self._known[place].startswith(said)


def _spellings(path: str) -> Iterator[str]:
    """A path as a link may have it: as it is, or with escapes of URLs."""
    yield path
    for escaped in (quote(path), quote(path, safe=_AS_IT_IS)):
        yield escaped
        yield _ESCAPE.sub(lambda found: found[0].lower(), escaped)


_ESCAPE = re.compile("%[0-9A-F]{2}")


def _ends(behind: str, *, whole: bool) -> bool | None:
    """Whether a name ends before this; None where that is open."""
    rest = behind.lstrip(_EITHER)
    if not rest:
        return True if whole or len(behind) > _MOST_EITHER else None
    return not (rest[0].isalnum() or rest[0] in _IN_NAMES)


class PageCiting:
    """Marks of pages that the browser has shown, which become links to these."""

    def __init__(self, displays: Sequence[Display], files: FileCiting | None = None) -> None:
        """`files` finds links to files in the text between marks."""
        self._citations = Citations(partial(source_of, displays))
        self._files = files

    def take(self, text: str, beside: Sequence[Logprob] = ()) -> Sequence[Cited]:
        """Take more text; see FileCiting."""
        return self._show(self._citations.take(text, beside))

    def rest(self) -> Sequence[Cited]:
        """The pieces that are left when no more text comes."""
        left = self._show(self._citations.rest())
        return left if self._files is None else [*left, *self._files.rest()]

    def _show(self, pieces: Sequence[Cited]) -> Sequence[Cited]:
        if self._files is None:
            return pieces
        out: list[Cited] = []
        for text, beside, annotation in pieces:
            out += self._files.take(text, beside)
            if annotation is not None:
                out.append(Cited("", (), annotation))
        return out


def citing_of(cites: Sequence[Mapping[str, Any]], displays: Sequence[Any] = ()) -> Citing | None:
    """The finder of an answer's citations: of the outcomes before it, and of the pages that the browser has shown by
    then. None where nothing can be cited.
    """
    known = {path: file for each in cites for path, file in each.get("files", {}).items()}
    files = FileCiting(known) if known else None
    return PageCiting(displays_in(displays), files) if displays else files
