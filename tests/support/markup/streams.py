"""Streams as an engine samples them: ids with their text, from a vocabulary in which some marks are one token each."""

import random
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple

from service.engine.port import SERVER
from service.features.models.markup.by_server import ByServer
from service.features.models.markup.chat import Parser
from service.features.models.markup.families import ENDS, FAMILIES, MARKS, MARKUPS
from service.features.models.markup.stream import StreamParser
from service.harmony.segments import Closed, Opened, Segment

FIRST_ORDINARY, LAST_ORDINARY = 1000, (1 << 31) - 1
END = "<|im_end|>"
"""What ends a turn here."""
SPECIAL = {spelling: id for id, spelling in enumerate((*MARKS, *ENDS))}
"""Every mark as one token."""

SCHEMAS: Mapping[str, Mapping[str, Any]] = {
    "get_weather": {
        "type": "object",
        "properties": {
            "city": {"type": "string"},
            "days": {"type": "integer"},
            "metric": {"type": "boolean"},
            "near": {"type": "array", "items": {"type": "string"}},
        },
    },
    "now": {"type": "object", "properties": {}},
    "search_web": {"type": "object", "properties": {"query_tag": {"type": "array"}, "query_list": {"type": "array"}}},
}


class Token(NamedTuple):
    """An id with its text."""

    id: int
    text: str


class Message(NamedTuple):
    """What became of one segment: whom it is for (a recipient, or the channel), its text, and how it ended."""

    to: str
    text: str
    stop: int | None


def tokens_of(text: str, marks: Iterable[str] = SPECIAL, *, longest: int = 4, seed: int = 0) -> list[Token]:
    """A text as tokens: `marks` as one each, all else in pieces of up to `longest` characters."""
    chance = random.Random(f"{seed}{text}")
    special = "|".join(re.escape(mark) for mark in sorted({*marks, END}, key=len, reverse=True))
    parts = re.split(f"({special})", text)
    out: list[Token] = []
    for place, part in enumerate(parts):
        out += [Token(SPECIAL[part], part)] if place % 2 else ordinary(part, chance, longest)
    return out


def ordinary(text: str, chance: random.Random, longest: int = 4) -> Iterator[Token]:
    at = 0
    while at < len(text):
        size = chance.randint(1, longest)
        piece = text[at : at + size]
        number = sum(ord(sign) << (8 * place) for place, sign in enumerate(piece))
        yield Token(FIRST_ORDINARY + number % (LAST_ORDINARY - FIRST_ORDINARY), piece)
        at += size


def parser(markup: str, marks: Iterable[str] = SPECIAL, *, thinking: bool = False) -> Parser:
    """A parser for a vocabulary in which these marks are one token each."""
    if markup == SERVER:
        return ByServer({})
    written = MARKUPS[FAMILIES[markup].markup if markup in FAMILIES else markup]
    known = {mark: SPECIAL[mark] for mark in (*marks, END)}
    return StreamParser(written, known, SCHEMAS, {}, thinking=thinking)


def segments_of(reader: Parser, chunks: Iterable[Sequence[Token]]) -> list[Segment]:
    """All that a parser makes of chunks of tokens."""
    out: list[Segment] = []
    for chunk in chunks:
        out += reader.feed([token.id for token in chunk], "".join(token.text for token in chunk))
    return out + reader.end()


def messages_of(segments: Iterable[Segment]) -> list[Message]:
    """The segments joined; each is Opened, text, Closed, and nothing stands between two."""
    out: list[Message] = []
    to, text = None, ""
    for segment in segments:
        if isinstance(segment, Opened):
            assert to is None, "a segment opened within another"
            header = segment.header
            to, text = header.recipient or header.channel or "", ""
        elif isinstance(segment, Closed):
            assert to is not None, "a segment closed that was not open"
            out.append(Message(to, text, segment.stop))
            to = None
        else:
            assert to is not None, "text outside of a segment"
            assert segment, "an empty text"
            text += segment
    assert to is None, "a segment was left open"
    return out


def read(markup: str, text: str, marks: Iterable[str] = SPECIAL, *, thinking: bool = False) -> list[Message]:
    """What a markup's parser makes of a text, token by token."""
    tokens = tokens_of(text, marks)
    return messages_of(segments_of(parser(markup, marks, thinking=thinking), [[token] for token in tokens]))


def cut(tokens: Sequence[Token], chance: random.Random, most: int = 8) -> Iterator[Sequence[Token]]:
    """The tokens in chunks of up to so many."""
    at = 0
    while at < len(tokens):
        size = chance.randint(1, most)
        yield tokens[at : at + size]
        at += size
