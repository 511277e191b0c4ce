"""Speaking under a constraint: the way through a structural tag that says most of what was planned.

Whatever was planned, each id is one that the tag lets through there: headers and marks come from the tag, contents from
the plan where any will do, and from their own format where they are held.
"""

from collections.abc import Iterator, Sequence
from itertools import islice
from typing import Any

from jsonschema_rs import validator_for

from service.engine.demo.functions import Declaration
from service.engine.demo.halves import written
from service.engine.demo.plan import FORMATTED_LINES, Message
from service.engine.demo.schema import answer_for, arguments_for
from service.engine.demo.tags import Format, Heading, Way, read_tag
from service.engine.demo.texts import derived, matching
from service.engine.port import EngineRefused
from service.harmony.tokens import CALL, END, RETURN, encode

Ids = Sequence[int]


class Held:
    """What is left of a plan, and the tag to say it under.

    `answer` is what to say where a final answer is all that is left.
    """

    def __init__(self, tag: str, messages: Sequence[Message], answer: Message, stop_ids: frozenset[int]) -> None:
        self._place = read_tag(tag)
        self._messages = list(messages)
        self._answer = answer
        self._stops = stop_ids
        self._current: Message | None = None
        self._said: Ids = ()

    def open(self, message: Message, said: Ids) -> None:
        """Go on in a message that has these ids already."""
        self._current, self._said = message, said
        if message in self._messages:
            del self._messages[: self._messages.index(message) + 1]

    def spoken(self) -> Iterator[Ids]:
        """The ids up to where the tag ends, and one that stops the engine."""
        while True:
            way = self._chosen(self._place.ways)
            if way.ids:
                yield way.ids
            if way.content is None:
                yield (self._closing(),)
                return
            yield from self._content(way.content)
            self._place, self._said = way.rest, ()

    def _chosen(self, options: Sequence[Way]) -> Way:
        """The way to the next message of the plan that one leads to; else to the end, to an answer, or to any."""
        opening = [way for way in options if way.opens]
        for message in self._messages:
            fitting = [way for way in opening if fits(way.header, message)]
            if fitting:
                exact = [way for way in fitting if way.header == message.heading]
                del self._messages[: self._messages.index(message) + 1]
                self._current = message
                return (exact or fitting)[0]
        aside = next((way for way in options if not way.opens), None)
        if aside is not None:
            return aside
        way = next((way for way in opening if way.header.channel == "final"), opening[-1])
        self._current = self._made_up(way.header)
        return way

    def _made_up(self, header: Heading) -> Message:
        """A message that nobody planned."""
        if header.recipient:
            return Message("call", function=Declaration(header.recipient, "", ""), words=self._answer.words)
        return self._answer if header.channel == "final" else Message("thought", ["Hm."])

    def _content(self, content: Format) -> Iterator[Ids]:
        message = self._current or self._answer
        if content["type"] not in ("any_tokens", "any_text"):
            yield encode(held_text(content, message))
            return
        room: int | None = content.get("max_tokens")
        for piece in behind(message, self._said):
            yield piece if room is None else piece[:room]
            if room is not None and (room := room - len(piece)) <= 0:
                return

    def _closing(self) -> int:
        """The id that ends the message, or another one that stops the engine."""
        closing = closing_of(self._current) if self._current else RETURN
        if closing in self._stops or not self._stops:
            return closing
        return RETURN if RETURN in self._stops else min(self._stops)


def fits(header: Heading, message: Message) -> bool:
    """Whether a header is of such a message."""
    wanted = message.heading
    if header.recipient or wanted.recipient:
        return header.recipient == wanted.recipient
    return header.channel == wanted.channel


def closing_of(message: Message) -> int:
    """The id that ends a message."""
    return {"call": CALL, "answer": RETURN}.get(message.kind, END)


def behind(message: Message, said: Ids) -> Iterator[Ids]:
    """A message's content behind what was said of it; the whole of it where it was begun otherwise."""
    left = list(said)
    kept: list[Ids] = []
    for piece in (encode(text) for text in message.texts()):
        if not left:
            yield piece
        elif piece[: len(left)] == left[: len(piece)]:
            kept.append(piece)
            rest, left = piece[len(left) :], left[len(piece) :]
            if rest:
                yield rest
        else:
            yield from (*kept, piece)
            left = []


def held_text(content: Format, message: Message) -> str:
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
                return _held_json(content["json_schema"], message)
    except (ValueError, RecursionError) as error:
        raise EngineRefused(f"the demo engine finds no text for the constraint: {error}") from error


def _held_json(schema: Any, message: Message) -> str:
    if message.kind == "call":
        planned = message.called_with()
        return written(planned if _valid(schema, planned) else arguments_for(schema, message.words))
    if message.value is not None and _valid(schema, message.value):
        return written(message.value)
    return written(answer_for(schema, message.words, "".join(islice(message.lines, FORMATTED_LINES))))


def _valid(schema: Any, value: object) -> bool:
    """Whether a value matches a schema, as far as that can be told without asking elsewhere."""
    try:
        return validator_for(schema, offline=True).is_valid(value)
    except ValueError:
        return False
