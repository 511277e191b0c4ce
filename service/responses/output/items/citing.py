"""Citations in an answer: what it says its words come from, or where a file lies that it made.

What may be cited is known by the outcomes of the calls before (`Outcome.cites`). Spans count the characters of the text
that the client sees.
"""

import re
from collections.abc import Mapping, Sequence
from functools import partial
from typing import Any, NamedTuple, Protocol
from urllib.parse import unquote

from service.api.response import Logprob
from service.browser.citations import Citations, source_of
from service.browser.citations import Cited as PageCited
from service.browser.page import Display

DRIVE = "/mnt/data/"
"""Where code keeps its files, as models name it in links (`sandbox:/mnt/data/plot.png`)."""

MAX_LINK_CHARS = 1_200
"""How long a link to a file is at most. What goes on for longer is text."""

_LINK = re.compile(rf"sandbox:{DRIVE}[^\s()\[\]<>\"'`]+")
_BEGINNING = f"sandbox:{DRIVE}"
_SENTENCE = ".,;:!?*_"
"""What may stand behind a link and belong to its sentence."""


class Cited(NamedTuple):
    """A piece of text as the client sees it, with its log probabilities, and what is annotated behind it."""

    text: str
    beside: Sequence[Logprob] = ()
    annotation: dict[str, Any] | None = None


class Citing(Protocol):
    """Finds the citations of one answer, piece by piece."""

    def take(self, text: str, beside: Sequence[Logprob] = ()) -> Sequence[Cited]:
        """Some more text, and the log probabilities of its tokens; what can be shown by now."""
        ...

    def rest(self) -> Sequence[Cited]:
        """What is left, as nothing more comes."""
        ...


class FileCiting:
    """Links to files that code has written. The text stays as it is, so nothing is held back."""

    def __init__(self, files: Mapping[str, Mapping[str, str]]) -> None:
        """`files` has what is said of a file, by its path."""
        self._files = files
        self._waiting = ""
        """The end of the text, as far as it may be the beginning of a link."""
        self._chars = 0

    def take(self, text: str, beside: Sequence[Logprob] = ()) -> Sequence[Cited]:
        """As the protocol has it."""
        self._chars += len(text)
        waiting, self._waiting = self._waiting + text, ""
        found: list[Cited] = []
        begun = len(waiting)
        for link in _LINK.finditer(waiting):
            if link.end() == len(waiting) and len(link[0]) < MAX_LINK_CHARS:
                begun = link.start()
            else:
                found += self._cited(link, self._chars - len(waiting))
        self._waiting = waiting[min(begun, len(waiting) - _partial(waiting)) :]
        return [Cited(text, beside), *found]

    def rest(self) -> Sequence[Cited]:
        """As the protocol has it."""
        waiting, self._waiting = self._waiting, ""
        link = _LINK.fullmatch(waiting)
        return [] if link is None else self._cited(link, self._chars - len(waiting))

    def _cited(self, link: re.Match[str], before: int) -> list[Cited]:
        """The annotation of a link in a text that stands behind so many characters, if it leads to a file."""
        for said in (link[0], link[0].rstrip(_SENTENCE)):
            file = self._files.get(unquote(said.removeprefix("sandbox:")))
            if file is not None:
                start = before + link.start()
                span = {"start_index": start, "end_index": start + len(said)}
                return [Cited("", (), {"type": "container_file_citation"} | dict(file) | span)]
        return []


def _partial(text: str) -> int:
    """How many characters at the end may be the beginning of what every link begins with."""
    sizes = range(min(len(_BEGINNING), len(text)), 0, -1)
    return next((size for size in sizes if text.endswith(_BEGINNING[:size])), 0)


class PageCiting:
    """Marks of pages that the browser has shown, which become links to these."""

    def __init__(self, displays: Sequence[Display], files: FileCiting | None = None) -> None:
        """`files` finds links to files in what is left."""
        self._citations = Citations[Logprob](partial(source_of, displays))
        self._files = files

    def take(self, text: str, beside: Sequence[Logprob] = ()) -> Sequence[Cited]:
        """As the protocol has it."""
        return self._shown(self._citations.take(text, beside))

    def rest(self) -> Sequence[Cited]:
        """As the protocol has it."""
        left = self._shown(self._citations.rest())
        return left if self._files is None else [*left, *self._files.rest()]

    def _shown(self, pieces: Sequence[PageCited[Logprob]]) -> list[Cited]:
        out: list[Cited] = []
        for text, beside, annotation in pieces:
            out += [Cited(text, beside)] if self._files is None else self._files.take(text, beside)
            if annotation is not None:
                out.append(Cited("", (), annotation))
        return out


def citing_of(cites: Sequence[Mapping[str, Any]], displays: Sequence[Display] = ()) -> Citing | None:
    """What finds the citations of an answer behind outcomes that can be cited so, and what the browser has shown by
    then; None where nothing can be.
    """
    known = {path: file for each in cites for path, file in each.get("files", {}).items()}
    files = FileCiting(known) if known else None
    return PageCiting(displays, files) if displays else files
