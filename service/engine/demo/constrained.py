"""An answer under a constraint: the way through a structural tag that says most of what was planned.

Whatever was planned, each id is one that the tag lets through there: headers and marks come from the tag, contents from
the plan where any will do, and from their own format where they have one.
"""

from collections.abc import Iterator, Sequence
from typing import Any

from service.engine.demo.halves import written
from service.engine.demo.headings import Heading
from service.engine.demo.patterns import derived, matching
from service.engine.demo.plan import Message, made_up
from service.engine.demo.reading import PAUSE, Reading
from service.engine.demo.tags import Format, Way, read_tag
from service.engine.demo.values import answer_for, arguments_for
from service.engine.port import EngineRefused
from service.grammar.checks import is_valid
from service.harmony.tokens import CALL, END, RETURN, encode

PIECES_PER_PAUSE = 200
"""How many pieces of an answer are compared with what was begun between two pauses."""

Ids = Sequence[int]


class Constrained:
    """What is left of a plan, and the tag to say it under."""

    def __init__(self, tag: str, messages: Sequence[Message], reading: Reading) -> None:
        self._place = read_tag(tag)
        self._messages = list(messages)
        self._reading = reading
        self._current = made_up(Heading("final"), reading)
        self._begun: Ids = ()

    def open(self, message: Message, begun: Ids = ()) -> None:
        """Go on in a message that has these ids already; those before it are passed over."""
        self._current, self._begun = message, begun
        if message in self._messages:
            del self._messages[: self._messages.index(message) + 1]

    def ids(self) -> Iterator[Ids]:
        """The ids up to where the tag ends, and one that stops the engine."""
        while True:
            way = self._chosen(self._place.ways)
            if way.ids:
                yield way.ids
            if way.content is None:
                yield (CALL if self._current.kind == "call" else RETURN,)
                return
            yield from self._content(way.content)
            self._place, self._begun = way.rest, ()

    def _chosen(self, ways: Sequence[Way]) -> Way:
        """The way to the next message of the plan that one leads to; else to the end, to an answer, or to any."""
        opening = [(way.heading, way) for way in ways if way.heading]
        for message in self._messages:
            fitting = [(heading, way) for heading, way in opening if fits(heading, message)]
            if fitting:
                self.open(message)
                return next((way for heading, way in fitting if heading == message.heading), fitting[0][1])
        staying = next((way for way in ways if not way.heading), None)
        if staying is not None:
            return staying
        heading, way = next((each for each in opening if each[0].channel == "final"), opening[-1])
        self._current = made_up(heading, self._reading)
        return way

    def _content(self, content: Format) -> Iterator[Ids]:
        if content["type"] == "any_tokens":
            return behind(self._current, self._begun)
        return iter([encode(_matching(content, self._current))])


def fits(heading: Heading, message: Message) -> bool:
    """Whether a header is of such a message."""
    wanted = message.heading
    if heading.recipient or wanted.recipient:
        return heading.recipient == wanted.recipient
    return heading.channel == wanted.channel


def closing_of(message: Message) -> int:
    """The id that ends a message."""
    return {"call": CALL, "answer": RETURN}.get(message.kind, END)


def behind(message: Message, begun: Ids) -> Iterator[Ids]:
    """A message's content behind what there is of it; the whole of it where it was begun otherwise."""
    pieces = map(encode, message.texts())
    if not begun:
        yield from pieces
        return
    begun, matched = list(begun), 0
    for number, piece in enumerate(pieces):
        known = piece[: len(begun) - matched]
        if list(known) != begun[matched : matched + len(known)]:
            yield begun[:matched]
            begun, matched, known = [], 0, ()
        matched += len(known)
        if len(known) < len(piece):
            yield piece[len(known) :]
        elif number % PIECES_PER_PAUSE == 0:
            yield PAUSE


def _matching(content: Format, message: Message) -> str:
    """A text that matches a format, and says what the message was to say if that can be.

    Raises EngineRefused for a format that has no text, or none that could be found.
    """
    try:
        match content["type"]:
            case "regex":
                return matching(content["pattern"], message.words)
            case "grammar":
                return derived(content["grammar"], message.words)
            case _:
                return written(_value(content["json_schema"], message))
    except (ValueError, LookupError, RecursionError) as error:
        raise EngineRefused(f"the demo engine finds no text for the constraint: {error}") from error


def _value(schema: Any, message: Message) -> object:
    """What the message was to say where the schema allows it, else another value of the schema."""
    planned = message.said()
    if planned is not None and is_valid(schema, planned):
        return planned
    if message.kind == "call":
        return arguments_for(schema, message.words)
    return answer_for(schema, message.words, message.text(), introduces=message.introduces)
