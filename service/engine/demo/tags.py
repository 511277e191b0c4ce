"""Structural tags: the ways that one leaves open from each place of an answer.

A tag is walked from one content to the next: between two contents stand marks and headers, of which `ways` gives every
choice; the contents themselves are for `mind` to write. A kind of format that the service never sends is refused. What
comes in is checked once and kept, within bounds.
"""

import json
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import cached_property, lru_cache
from typing import Any, cast

from service.engine.demo.patterns import read_grammar, read_regex
from service.engine.port import EngineRefused
from service.harmony.tokens import MESSAGE, START, decode, encode

WAYS = 2000
"""How many ways on from one place are looked at."""

PARTS = 100_000
"""How many parts a tag may have."""

TAGS = 8
"""How many tags are kept, with the ways through them."""

LOOKED_AHEAD = 3
"""How many messages ahead it is looked for who may be addressed."""

Format = Mapping[str, Any]
Stack = tuple[Format, ...]
"""What is to come, the nearest first."""

_CONTENTS = ("any_tokens", "any_text", "json_schema", "regex", "grammar")
_RECIPIENT = re.compile(r" to=([\w.-]+?)(?: ?json)?(?=$| |<|commentary|analysis)")


@dataclass(frozen=True)
class Heading:
    """Who is addressed, and on which channel, of which type of content."""

    channel: str
    recipient: str = ""
    typed: bool = False


def heading(ids: tuple[int, ...]) -> Heading:
    """What a header says, whole or in part; what stands before its START belongs to the message before."""
    if START in ids:
        ids = ids[len(ids) - ids[::-1].index(START) :]
    text = decode(ids).removeprefix("assistant")
    addressed = _RECIPIENT.search(text)
    channel = next((each for each in ("analysis", "commentary", "final") if each in _RECIPIENT.sub("", text)), "")
    return Heading(channel, addressed[1] if addressed else "", text.endswith("json"))


@dataclass(frozen=True)
class Place:
    """A place in a tag, from which ways go on."""

    stack: Stack

    @cached_property
    def ways(self) -> "tuple[Way, ...]":
        """All ways on, WAYS at most, the likelier first: what is optional comes before its absence."""
        found: dict[tuple[tuple[int, ...], bool], Way] = {}
        for _, way in zip(range(WAYS), _ways(self.stack, ()), strict=False):
            found.setdefault((way.ids, way.content is None), way)
        return tuple(found.values())


@dataclass(frozen=True)
class Way:
    """A way on: the ids up to the next content, that content (None is the tag's end), and the place behind it."""

    ids: tuple[int, ...]
    content: Format | None
    rest: Place

    @property
    def opens(self) -> bool:
        """Whether it opens a message."""
        return MESSAGE in self.ids

    @cached_property
    def header(self) -> Heading:
        """The header of the message that it opens."""
        return heading(self.ids[: self.ids.index(MESSAGE)])


@lru_cache(maxsize=TAGS)
def read_tag(tag: str) -> Place:
    """The beginning of a structural tag, from its JSON. Raises EngineRefused for one that can't be followed."""
    try:
        whole: object = cast(dict[str, object], json.loads(tag))["format"]
        _check(whole)
        return Place((cast(Format, whole),))
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError) as error:
        raise EngineRefused(f"the demo engine can't read the structural tag: {error!r}") from error


def headings(tag: str) -> frozenset[Heading]:
    """The headers of the messages that a tag leads to, up to where one is no thought or preamble."""
    places, seen = [read_tag(tag)], set[Heading]()
    for _ in range(LOOKED_AHEAD):
        onward = [way for place in places for way in place.ways]
        seen.update(way.header for way in onward if way.opens)
        if any(each.recipient or each.channel == "final" for each in seen):
            break
        places = [way.rest for way in onward if way.content is not None]
    return frozenset(seen)


def _ways(stack: Stack, before: tuple[int | str, ...]) -> Iterator[Way]:
    if not stack:
        yield Way(_encoded(before), None, Place(()))
        return
    nearest, rest = stack[0], stack[1:]
    match nearest["type"]:
        case "sequence":
            yield from _ways((*nearest["elements"], *rest), before)
        case "or":
            for option in nearest["elements"]:
                yield from _ways((option, *rest), before)
        case "optional":
            yield from _ways((nearest["content"], *rest), before)
            yield from _ways(rest, before)
        case "token":
            yield from _ways(rest, (*before, nearest["token"]))
        case "const_string":
            yield from _ways(rest, (*before, nearest["value"]))
        case _:
            yield Way(_encoded(before), nearest, Place(rest))


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


def _check(whole: object) -> None:
    """Raise ValueError or KeyError for a format that can't be followed."""
    parts, seen = [whole], 0
    while parts:
        part, seen = cast(dict[str, Any], parts.pop()), seen + 1
        if seen > PARTS:
            raise ValueError(f"a tag may have {PARTS} parts at most")
        match part["type"]:
            case "sequence" | "or":
                parts += part["elements"]
            case "optional":
                parts.append(part["content"])
            case "token" if isinstance(part["token"], int):
                pass
            case "const_string" if isinstance(part["value"], str):
                pass
            case "regex":
                read_regex(part["pattern"])
            case "grammar":
                read_grammar(part["grammar"])
            case kind if kind in _CONTENTS:
                pass
            case kind:
                raise ValueError(f"{kind!r} is no format that it follows")
