"""How the demo engine samples: the messages of a plan as Harmony tokens, freely or as a constraint lets it.

`sampled_answer` is a generator of token ids, whose empty pieces are pauses; it has no state but its own and no
clock, so one prompt has one answer. A prompt may already have a beginning of that answer (a worker died, or the caller
forces a channel): then it goes on from there. A model never ends by itself: behind its last message it says that it has
no more.

Under a constraint it takes the way through a structural tag that holds most of the plan. The tag lets each of its ids
through: headers and marks come from the tag, contents from the plan where any will do, and from
their own format where they have one.
"""

from collections.abc import Iterable, Iterator, Sequence
from typing import Any

from service.engine.demo.functions import PYTHON
from service.engine.demo.halves import rest_of, written
from service.engine.demo.patterns import derived, matching
from service.engine.demo.plan import Message, decide, made_up
from service.engine.demo.reading import PAUSE, Reading, read
from service.engine.demo.tags import Begun, Format, Heading, Way, headings, read_tag, take_apart
from service.engine.demo.values import answer_for, arguments_for
from service.engine.port import EngineRefused
from service.grammar.checks import is_valid
from service.harmony.tokens import (
    ASSISTANT,
    CALL,
    CHANNEL,
    CONSTRAIN,
    END,
    MESSAGE,
    RETURN,
    START,
    STOPS,
    decode,
    encode,
)

Ids = Sequence[int]

_NEXT = (START, ASSISTANT)
_JSON = (CONSTRAIN, *encode("json"), MESSAGE)
_NO_MORE = Message("answer", ["I have no more to say."])

PIECES_PER_PAUSE = 200
"""The pieces of an answer compared with its beginning between two pauses."""


def sampled_answer(prompt: Ids, tag: str | None = None, stop_ids: Iterable[int] = STOPS) -> Iterator[Ids]:
    """Sample the answer to a Harmony prompt: pieces of ids up to a stop id, empty ones for pauses.

    `tag` is a structural tag to keep to. Without the stop ids that end its messages it goes on for ever. Raises
    EngineRefused for a tag that it can't follow.
    """
    stops = frozenset(stop_ids)
    for piece in _endless(prompt, tag):
        if piece and piece[0] in stops:
            yield piece[:1]
            return
        yield piece


def _endless(prompt: Ids, tag: str | None) -> Iterator[Ids]:
    addressed = headings(tag) if tag else frozenset[Heading]()
    reading = yield from read(prompt)
    plan = yield from decide(reading, addressed)
    begun = take_apart(reading.sampled)
    left = _left(plan, begun.closed)
    if tag:
        constrained = Constrained(tag, left, reading)
        if begun.place == "content":
            constrained.open(_open(begun, left, reading), begun.content)
        yield from constrained.ids()
    else:
        yield from _continued(begun, left, reading)
    while True:
        yield _NEXT
        yield from _message(_NO_MORE)


def _message(message: Message) -> Iterator[Ids]:
    """One message, without its START and role."""
    yield _header(message)
    yield from behind(message, ())
    yield (closing_of(message),)


def _header(message: Message) -> list[int]:
    heading = message.heading
    if not heading.recipient:
        return [CHANNEL, *encode(heading.channel), MESSAGE]
    if message.function is PYTHON:
        return [CHANNEL, *encode(f"{heading.channel} to={heading.recipient} code"), MESSAGE]
    to = f"commentary to={heading.recipient}"
    return [CHANNEL, *encode(f"{to} "), *_JSON] if heading.typed else [CHANNEL, *encode(to), MESSAGE]


def _continued(begun: Begun, left: Sequence[Message], reading: Reading) -> Iterator[Ids]:
    """Goes on from a beginning: ours, one that was sampled under a constraint, or a message that the caller opened."""
    if begun.place != "content" and not begun.header and not left:
        return
    if begun.place in ("closed", "start"):
        yield _NEXT if begun.place == "closed" else _NEXT[1:]
    message = _open(begun, left, reading)
    if begun.place != "content":
        yield _rest_of_header(begun, message)
    yield from _rest(message, begun.content)
    yield (closing_of(message),)
    for following in left[left.index(message) + 1 :] if message in left else left:
        yield _NEXT
        yield from _message(following)


def _rest_of_header(begun: Begun, message: Message) -> Ids:
    """The ids that complete the header of a message that was begun."""
    if _begins(message, begun):
        return _header(message)[len(begun.header) :]
    forced = begun.heading.recipient
    if not forced or CONSTRAIN in begun.header:
        return (MESSAGE,)
    missing = f"{message.function.name[len(forced) :]} ".removeprefix(" " if decode(begun.header).endswith(" ") else "")
    return (*encode(missing), *_JSON)


def _begins(message: Message, begun: Begun) -> bool:
    return _header(message)[: len(begun.header)] == list(begun.header)


def _open(begun: Begun, left: Sequence[Message], reading: Reading) -> Message:
    """The message that is open: one of the plan's, or one that was forced."""
    heading = begun.heading
    if begun.place != "content" and left and _begins(left[0], begun):
        return left[0]
    return next((message for message in left if fits(heading, message)), None) or made_up(heading, reading)


def _rest(message: Message, begun: Ids) -> Iterator[Ids]:
    """The rest of a content: JSON that was begun otherwise is completed, as it stands."""
    text, value = decode(begun), message.said()
    if value is None or not text.lstrip().startswith("{") or "".join(message.texts()).startswith(text):
        yield from behind(message, begun)
    else:
        yield encode(rest_of(text, value))


def _left(messages: Sequence[Message], closed: Sequence[Heading]) -> list[Message]:
    """The messages still to say behind messages of these headers."""
    left = list(messages)
    for heading in closed:
        place = next((place for place, message in enumerate(left) if fits(heading, message)), None)
        if heading.recipient and place is None:
            place = next((place for place, message in enumerate(left) if message.kind == "call"), None)
        if place is not None:
            left = [*(each for each in left[:place] if each.kind == "call"), *left[place + 1 :]]
    return left


class Constrained:
    """The rest of a plan, and the tag to say it under."""

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
    """A text that matches a format, with the planned value of the message if that can be.

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
    """The planned value of the message where the schema allows it, else another value of the schema."""
    planned = message.said()
    if planned is not None and is_valid(schema, planned):
        return planned
    if message.kind == "call":
        return arguments_for(schema, message.words)
    return answer_for(schema, message.words, message.text(), introduces=message.introduces)
