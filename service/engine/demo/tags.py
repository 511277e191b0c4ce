"""Headers and structural tags: the recipient of a message, and the ways that a tag leaves open from each place.

The walk goes from one content of a tag to the next: between two contents stand marks and headers, of which `ways` gives
every choice; `constrained` writes the contents themselves. A kind of format that the service never sends is
refused. Parsed tags are cached, within bounds.
"""

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property, lru_cache
from itertools import pairwise
from typing import Any, Literal

import msgspec

from service.engine.demo.reading import places
from service.engine.port import EngineRefused
from service.harmony.header import read_header
from service.harmony.tokens import ASSISTANT, CALL, END, MESSAGE, RETURN, START, encode

WAYS = 2000
"""How many ways on from one place are looked at."""

TAGS = 8
"""How many tags are kept, with the ways through them."""

LOOKED_AHEAD = 3
"""How many messages ahead the possible recipients are looked for."""

Format = Mapping[str, Any]
"""A part of a tag."""

Ids = Sequence[int]
Reached = Literal["closed", "start", "header", "content"]

_CLOSINGS = (END, CALL, RETURN)


class Heading(msgspec.Struct, frozen=True):
    """The recipient of a message, its channel, and whether its content is said to be JSON."""

    channel: str
    recipient: str = ""
    typed: bool = False


class Begun(msgspec.Struct, frozen=True):
    """The headers of the closed messages, and the ids behind them.

    `place` is behind a closing mark, behind START, in a header (of which nothing may be there yet), or in a content.
    """

    closed: tuple[Heading, ...]
    place: Reached
    header: Ids = ()
    content: Ids = ()

    @property
    def heading(self) -> Heading:
        """The header of the open message, as far as it goes."""
        return heading(self.header)


def heading(ids: Ids) -> Heading:
    """The heading of a header, whole or in part. Ids before its START belong to the message before."""
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


@dataclass(frozen=True)
class TagPosition:
    """A place in a tag, from which ways go on. `ahead` is what is to come, the nearest first."""

    ahead: tuple[Any, ...]

    @cached_property
    def ways(self) -> "tuple[Way, ...]":
        """All ways on, WAYS at most, the likelier first: what is optional comes before its absence."""
        found: dict[tuple[tuple[int, ...], bool], Way] = {}
        for _, way in zip(range(WAYS), _ways(self.ahead, ()), strict=False):
            found.setdefault((way.ids, way.content is None), way)
        return tuple(found.values())


@dataclass(frozen=True)
class Way:
    """A way on: the ids up to the next content, that content (None is the tag's end), and the place behind it."""

    ids: tuple[int, ...]
    content: Format | None
    rest: TagPosition

    @cached_property
    def heading(self) -> Heading | None:
        """The header of the message that it opens, if it does."""
        return heading(self.ids[: self.ids.index(MESSAGE)]) if MESSAGE in self.ids else None


@lru_cache(maxsize=TAGS)
def read_tag(tag: str) -> TagPosition:
    """The beginning of a structural tag, from its JSON. Raises EngineRefused for one that can't be followed."""
    try:
        return TagPosition((json.loads(tag)["format"],))
    except (ValueError, TypeError, LookupError, RecursionError) as error:
        raise EngineRefused(f"the demo engine can't read the structural tag: {error}") from error


def headings(tag: str) -> frozenset[Heading]:
    """The headers of the messages that a tag leads to, up to where one is no thought or preamble."""
    places, seen = [read_tag(tag)], set[Heading]()
    for _ in range(LOOKED_AHEAD):
        onward = [way for place in places for way in place.ways]
        seen.update(way.heading for way in onward if way.heading)
        if any(each.recipient or each.channel == "final" for each in seen):
            break
        places = [way.rest for way in onward if way.content is not None]
    return frozenset(seen)


def _ways(ahead: tuple[Any, ...], before: tuple[int | str, ...]) -> Iterator[Way]:
    if not ahead:
        yield Way(_encoded(before), None, TagPosition(()))
        return
    nearest, rest = ahead[0], ahead[1:]
    match nearest:
        case {"type": "sequence", "elements": [*elements]}:
            yield from _ways((*elements, *rest), before)
        case {"type": "or", "elements": [*options]}:
            for option in options:
                yield from _ways((option, *rest), before)
        case {"type": "optional", "content": content}:
            yield from _ways((content, *rest), before)
            yield from _ways(rest, before)
        case {"type": "token", "token": int(said)} | {"type": "const_string", "value": str(said)}:
            yield from _ways(rest, (*before, said))
        case {"type": "any_tokens" | "json_schema" | "regex" | "grammar"}:
            yield Way(_encoded(before), nearest, TagPosition(rest))
        case _:
            raise EngineRefused(f"the demo engine can't follow a structural tag with {nearest!r:.80} in it")


def _encoded(parts: tuple[int | str, ...]) -> tuple[int, ...]:
    """Marks and texts as ids; texts that stand side by side are encoded as one."""
    ids: list[int] = []
    text = ""
    for part in parts:
        if isinstance(part, str):
            text += part
        else:
            ids += [*_text_ids(text), part]
            text = ""
    return (*ids, *_text_ids(text))


@lru_cache(maxsize=4096)
def _text_ids(text: str) -> tuple[int, ...]:
    return tuple(encode(text))
