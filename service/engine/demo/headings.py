"""The headers of an answer: whom a message addresses, and what an answer that was begun has already."""

from collections.abc import Sequence
from typing import Literal

import msgspec

from service.engine.demo.reading import places
from service.harmony.header import read_header
from service.harmony.tokens import ASSISTANT, CALL, END, MESSAGE, RETURN, START

Ids = Sequence[int]
Place = Literal["closed", "start", "header", "content"]

_CLOSINGS = (END, CALL, RETURN)


class Heading(msgspec.Struct, frozen=True):
    """Who is addressed, and on which channel, and whether the content is said to be JSON."""

    channel: str
    recipient: str = ""
    typed: bool = False


class Begun(msgspec.Struct, frozen=True):
    """The headers of the closed messages, and what stands behind them.

    `place` is behind a closing mark, behind START, in a header (of which nothing may be there yet), or in a content.
    """

    closed: tuple[Heading, ...]
    place: Place
    header: Ids = ()
    content: Ids = ()

    @property
    def heading(self) -> Heading:
        """The header of the open message, as far as it goes."""
        return heading(self.header)


def heading(ids: Ids) -> Heading:
    """What a header says, whole or in part; what stands before its START belongs to the message before."""
    begin = len(ids) - ids[::-1].index(START) if START in ids else 0
    header, _ = read_header(ids[begin:], role_given=begin == 0, marked=True)
    return Heading(header.channel or "", header.recipient or "", header.content_type is not None)


def take_apart(sampled: Ids) -> Begun:
    """The beginning of an answer, as it follows `<|start|>assistant`."""
    closed: list[Heading] = []
    starts = [0, *(place for place in places(START, sampled) if place)]
    for start, end in zip(starts, [*starts[1:], len(sampled)], strict=True):
        part = sampled[start:end]
        if MESSAGE not in part:
            continue
        content = part.index(MESSAGE) + 1
        if end == len(sampled) and part[-1] not in _CLOSINGS:
            return Begun(tuple(closed), "content", part[: content - 1], part[content:])
        closed.append(heading(part[: content - 1]))
    last = list(sampled[starts[-1] :])
    if last and last[-1] in _CLOSINGS:
        return Begun(tuple(closed), "closed")
    if last == [START]:
        return Begun(tuple(closed), "start")
    return Begun(tuple(closed), "header", last[2:] if last[:2] == [START, ASSISTANT] else last)
