"""Files of conversations, read value by value: lines of JSON, an array of any length, or one object.

No more than one conversation is in memory. A value that is broken is counted, and the next one is read.
"""

import json
import re
from codecs import BOM_UTF8
from collections import Counter
from collections.abc import Iterator
from itertools import chain
from typing import Any, BinaryIO, NamedTuple

from service.commands.arguments import EXIT_USAGE
from service.features.client.errors import ClientError
from service.features.trajectories.formats import FORMS, KNOWN, StoryForm
from service.features.trajectories.stories import StoryTurn, inner, turns_of

MOST_BYTES = 256 << 20
"""The most bytes of one conversation in a file."""

PIECE_BYTES = 1 << 20
HEAD_BYTES = 1 << 16

TITLE_CHARS = 512

_STRUCTURE = re.compile(rb'"(?:[^"\\]++|\\.)*+"|["\[\]{}]', re.DOTALL)


class BegunFile:
    """A file, or a pipe, of which the beginning of its first line is known before it is read."""

    def __init__(self, file: BinaryIO) -> None:
        self._file, self.head = file, file.readline(HEAD_BYTES).removeprefix(BOM_UTF8)
        while self.head.isspace():
            self.head = file.readline(HEAD_BYTES)

    def read(self, most: int) -> bytes:
        head, self.head = self.head, b""
        return head or self._file.read(most)

    def readline(self, most: int) -> bytes:
        head, self.head = self.head, b""
        return head if head.endswith(b"\n") else head + self._file.readline(most - len(head))


class Story(NamedTuple):
    """A conversation of a file."""

    form: str
    id: str
    title: str
    turns: list[StoryTurn]


def stories(file: BegunFile, lost: Counter[str]) -> Iterator[Story]:
    """The conversations of a file. Raises ClientError for one of no known form."""
    values = _objects(_values(file, lost), lost)
    first = next(values, None)
    form = None if first is None else next((form for form in FORMS if form.fits(first[0])), None)
    if first is None or form is None:
        raise ClientError(f"this is not a file of conversations; supported are {KNOWN}", EXIT_USAGE)
    if form.session:
        lines = [first[0], *(line for line, _ in values)]
        named = next((line for line in lines if "sessionId" in line), inner(lines[0], "payload") or lines[0])
        yield from _story(form, named, lines, first[1], lost)
        return
    for value, raw in chain([first], values):
        yield from _story(form, value, value, raw, lost)


def _story(form: StoryForm, head: Any, content: Any, raw: bytes, lost: Counter[str]) -> Iterator[Story]:
    """A conversation, if it can be read, of what has its id and of its content."""
    try:
        title = str(head.get("title") or head.get("name") or "")[:TITLE_CHARS]
        turns = turns_of(list(form.read(content, lost)), lost)
        found = Story(form.name, form.id_of(head, raw), title, turns)
    except (LookupError, TypeError, ValueError, AttributeError, ArithmeticError, RecursionError):
        lost["broken conversations"] += 1
        return
    yield found


def _objects(values: Iterator[bytes], lost: Counter[str]) -> Iterator[tuple[Any, bytes]]:
    """The objects among the values, each also as it stands; all else is counted."""
    for raw in values:
        try:
            found: Any = json.loads(raw)
        except (ValueError, RecursionError):
            found = None
        if isinstance(found, dict):
            yield found, raw
        else:
            lost["broken lines"] += 1


def _values(file: BegunFile, lost: Counter[str]) -> Iterator[bytes]:
    """The values of a file: of an array, of lines, or one object of several lines. Raises ClientError for one that is
    too long.
    """
    head = file.head.strip()
    if head[:1] == b"[" or (file.head[-1:] == b"\n" and head[-1:] != b"}"):
        yield from _elements(file, int(head[:1] == b"["), lost)
        return
    while line := file.readline(MOST_BYTES + 1):
        if len(line) > MOST_BYTES:
            raise ClientError(f"a line has more than {MOST_BYTES} bytes", EXIT_USAGE)
        if line.strip():
            yield line


def _elements(file: BegunFile, level: int, lost: Counter[str]) -> Iterator[bytes]:
    """The objects and lists inside of so many others. Raises ClientError for one that is too long."""
    buffer, at, depth, start = b"", 0, 0, None
    while piece := file.read(max(PIECE_BYTES, len(buffer))):  # a text that has no end yet is read once more
        buffer += piece
        for match in _STRUCTURE.finditer(buffer, at):
            mark = match[0]
            if mark == b'"':
                break  # the rest of the text is still to come
            at = match.end()
            if mark in (b"{", b"["):
                start, depth = (match.start() if depth == level else start), depth + 1
            elif mark in (b"}", b"]"):
                depth -= 1
                if depth == level and start is not None:
                    yield buffer[start:at]
                    start = None
        done = at if start is None else start
        if len(buffer) - done > MOST_BYTES:
            raise ClientError(f"a conversation has more than {MOST_BYTES} bytes", EXIT_USAGE)
        buffer, at, start = buffer[done:], at - done, None if start is None else 0
    lost["broken conversations"] += start is not None
