"""Structural tags: the ways that one leaves open from each place of an answer.

A tag is walked from one content to the next: between two contents stand marks and headers, of which `ways` gives every
choice; the contents themselves are for `constrained` to write. A kind of format that the service never sends is
refused. What comes in is checked once and kept, within bounds.
"""

from collections.abc import Iterator
from functools import cached_property, lru_cache
from typing import Any

import msgspec

from service.engine.demo.headings import Heading, heading
from service.engine.demo.patterns import read_grammar, read_regex
from service.engine.port import EngineRefused
from service.harmony.tokens import MESSAGE, encode

WAYS = 2000
"""How many ways on from one place are looked at."""

TAGS = 8
"""How many tags are kept, with the ways through them."""

LOOKED_AHEAD = 3
"""How many messages ahead it is looked for who may be addressed."""


class Format(msgspec.Struct, tag_field="type"):
    """A part of a tag."""


class Sequence(Format, tag="sequence"):
    elements: tuple["Part", ...]


class Or(Format, tag="or"):
    elements: tuple["Part", ...]


class Optional(Format, tag="optional"):
    content: "Part"


class Token(Format, tag="token"):
    token: int


class Text(Format, tag="const_string"):
    value: str


class AnyTokens(Format, tag="any_tokens"):
    """A content of which anything may be said."""

    max_tokens: int | None = None


class AnyText(AnyTokens, tag="any_text"):
    """The same."""


class Json(Format, tag="json_schema"):
    json_schema: Any


class Regex(Format, tag="regex"):
    pattern: str

    def __post_init__(self) -> None:
        read_regex(self.pattern)


class Grammar(Format, tag="grammar"):
    grammar: str

    def __post_init__(self) -> None:
        read_grammar(self.grammar)


Constraint = Json | Regex | Grammar
Content = AnyTokens | AnyText | Constraint
Part = Sequence | Or | Optional | Token | Text | Content


class _Tag(msgspec.Struct):
    format: Part


class Place:
    """A place in a tag, from which ways go on. `ahead` is what is to come, the nearest first."""

    def __init__(self, ahead: tuple[Part, ...]) -> None:
        self._ahead = ahead

    @cached_property
    def ways(self) -> "tuple[Way, ...]":
        """All ways on, WAYS at most, the likelier first: what is optional comes before its absence."""
        found: dict[tuple[tuple[int, ...], bool], Way] = {}
        for _, way in zip(range(WAYS), _ways(self._ahead, ()), strict=False):
            found.setdefault((way.ids, way.content is None), way)
        return tuple(found.values())


class Way:
    """A way on: the ids up to the next content, that content (None is the tag's end), and the place behind it."""

    def __init__(self, ids: tuple[int, ...], content: Content | None, rest: Place) -> None:
        self.ids = ids
        self.content = content
        self.rest = rest

    @cached_property
    def heading(self) -> Heading | None:
        """The header of the message that it opens, if it does."""
        return heading(self.ids[: self.ids.index(MESSAGE)]) if MESSAGE in self.ids else None


@lru_cache(maxsize=TAGS)
def read_tag(tag: str) -> Place:
    """The beginning of a structural tag, from its JSON. Raises EngineRefused for one that can't be followed."""
    try:
        return Place((msgspec.json.decode(tag, type=_Tag).format,))
    except (msgspec.DecodeError, RecursionError) as error:
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


def _ways(ahead: tuple[Part, ...], before: tuple[int | str, ...]) -> Iterator[Way]:
    if not ahead:
        yield Way(_encoded(before), None, Place(()))
        return
    nearest, rest = ahead[0], ahead[1:]
    match nearest:
        case Sequence(elements=elements):
            yield from _ways((*elements, *rest), before)
        case Or(elements=elements):
            for option in elements:
                yield from _ways((option, *rest), before)
        case Optional(content=content):
            yield from _ways((content, *rest), before)
            yield from _ways(rest, before)
        case Token(token=said) | Text(value=said):
            yield from _ways(rest, (*before, said))
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
