"""What an answer has already: its messages that are closed, and where in the next one it was broken off."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

from service.engine.demo.reading import places
from service.engine.demo.tags import Heading, heading
from service.harmony.tokens import ASSISTANT, CALL, END, MESSAGE, RETURN, START

Ids = Sequence[int]
Place = Literal["closed", "start", "header", "content"]

_CLOSINGS = (END, CALL, RETURN)


@dataclass(frozen=True)
class Begun:
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
        return heading(tuple(self.header))


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
        closed.append(heading(tuple(part[: content - 1])))
    last = list(sampled[starts[-1] :])
    if last and last[-1] in _CLOSINGS:
        return Begun(tuple(closed), "closed")
    if last == [START]:
        return Begun(tuple(closed), "start")
    return Begun(tuple(closed), "header", last[2:] if last[:2] == [START, ASSISTANT] else last)
