"""The headers of an answer: whom a message addresses, and what an answer that was begun has already."""

from collections.abc import Sequence
from itertools import pairwise
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
    answer = [START, ASSISTANT, *sampled]
    parts = [answer[start:end] for start, end in pairwise([*places(START, answer), len(answer)])]
    last = parts[-1]
    ended = parts if last[-1] in _CLOSINGS else parts[:-1]
    closed = tuple(heading(part[: part.index(MESSAGE)]) for part in ended if MESSAGE in part)
    if ended == parts:
        return Begun(closed, "closed")
    if MESSAGE in last:
        content = last.index(MESSAGE)
        return Begun(closed, "content", last[2:content], last[content + 1 :])
    if last == [START]:
        return Begun(closed, "start")
    return Begun(closed, "header", last[2:] if last[:2] == [START, ASSISTANT] else last)
