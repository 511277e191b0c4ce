"""Files of conversations, read value by value: lines of JSON, an array of any length, or one object.

No more than one conversation is in memory. A value that is broken is counted, and the next one is read.
"""

import json
import re
from collections import Counter
from collections.abc import Iterator
from typing import Any, BinaryIO, NamedTuple

from service.features.client.errors import EXIT_USAGE, ClientError
from service.features.trajectories.formats import FORMS, KNOWN, StoryForm
from service.features.trajectories.stories import StoryNode

MOST_BYTES = 256 << 20
"""The most bytes of one conversation in a file."""

PIECE_BYTES = 1 << 20
HEAD_BYTES = 1 << 16

_STRUCTURE = re.compile(rb'"(?:[^"\\]|\\.)*+"|["\[\]{}]', re.DOTALL)


class Story(NamedTuple):
    """A conversation of a file."""

    form: str
    id: str
    title: str
    nodes: list[StoryNode]


def stories(file: BinaryIO, lost: Counter[str]) -> Iterator[Story]:
    """The conversations of a file, which is at its beginning. Raises ClientError for one of no known form."""
    values = _values(file, lost)
    first = next(((found, raw) for raw in values if (found := _parsed(raw, lost)) is not None), None)
    form = None if first is None else next((form for form in FORMS if form.fits(first[0])), None)
    if first is None or form is None:
        raise ClientError(f"that is no file of conversations; known are {KNOWN}", EXIT_USAGE)
    if form.session:
        yield from _session(form, file, lost)
        return
    for value, raw in _with_first(first, values, lost):
        if found := _story(form, value, raw, lost):
            yield found


def _with_first(first: tuple[Any, bytes], values: Iterator[bytes], lost: Counter[str]) -> Iterator[tuple[Any, bytes]]:
    yield first
    for raw in values:
        if (value := _parsed(raw, lost)) is not None:
            yield value, raw


def _session(form: StoryForm, file: BinaryIO, lost: Counter[str]) -> Iterator[Story]:
    """The conversation of which each line is a part."""
    file.seek(0)
    lines = [line for raw in _lines(file) if (line := _parsed(raw, lost)) is not None]
    named = [(line.get("payload") or {}).get("id") if "payload" in line else line.get("sessionId") for line in lines]
    id = next(filter(None, named), None)
    if found := _story(form, lines, json.dumps(lines[0]).encode(), lost, id):
        yield found


def _story(form: StoryForm, value: Any, raw: bytes, lost: Counter[str], id: str | None = None) -> Story | None:
    try:
        title = value.get("title") or value.get("name") or "" if isinstance(value, dict) else ""
        return Story(form.name, id or form.id_of(value, raw), str(title), list(form.read(value, lost)))
    except (LookupError, TypeError, ValueError, AttributeError):
        lost["broken conversations"] += 1
        return None


def _parsed(raw: bytes, lost: Counter[str]) -> Any:
    """An object; None for anything else, which is counted."""
    try:
        found = json.loads(raw)
    except (ValueError, RecursionError):
        found = None
    if not isinstance(found, dict):
        lost["broken lines"] += 1
        return None
    return found


def _values(file: BinaryIO, lost: Counter[str]) -> Iterator[bytes]:
    """The values of a file: of an array, of lines, or one object of several lines."""
    head = file.read(HEAD_BYTES).lstrip()
    file.seek(0)
    first, newline, _ = head.partition(b"\n")
    if head[:1] == b"[":
        return _elements(file, 1, lost)
    return _elements(file, 0, lost) if newline and first.rstrip()[-1:] != b"}" else _lines(file)


def _lines(file: BinaryIO) -> Iterator[bytes]:
    """The lines that aren't empty. Raises ClientError for one that is too long."""
    while line := file.readline(MOST_BYTES + 1):
        if len(line) > MOST_BYTES:
            raise ClientError(f"a line has more than {MOST_BYTES} bytes", EXIT_USAGE)
        if line.strip():
            yield line


def _elements(file: BinaryIO, level: int, lost: Counter[str]) -> Iterator[bytes]:
    """The objects and lists inside of so many others. Raises ClientError for one that is too long."""
    buffer, at, depth, start = b"", 0, 0, None
    while piece := file.read(PIECE_BYTES):
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
