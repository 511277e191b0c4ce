"""How the demo engine samples: the messages of a plan as Harmony tokens, freely or as a constraint lets it.

`sampled_answer` is a generator of token ids, whose empty pieces are pauses; it has no state but its own and no
clock, so one prompt has one answer. A prompt may already have a beginning of that answer (a worker died, or the caller
forces a channel): then it goes on from there. A model never ends by itself: behind its last message it says that it has
no more.
"""

from collections.abc import Iterable, Iterator, Sequence

from service.engine.demo.constrained import Constrained, behind, closing_of, fits
from service.engine.demo.functions import PYTHON
from service.engine.demo.halves import rest_of
from service.engine.demo.headings import Begun, Heading, take_apart
from service.engine.demo.plan import Message, decide, made_up
from service.engine.demo.reading import Reading, read
from service.engine.demo.tags import headings
from service.harmony.tokens import ASSISTANT, CHANNEL, CONSTRAIN, MESSAGE, START, STOPS, decode, encode

Ids = Sequence[int]

_NEXT = (START, ASSISTANT)
_JSON = (CONSTRAIN, *encode("json"), MESSAGE)
_NO_MORE = Message("answer", ["I have no more to say."])


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
    """Go on from a beginning: ours, one that was sampled under a constraint, or a message that the caller opened."""
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
    """What completes the header of a message that was begun."""
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
    """What is still to say behind messages of these headers."""
    left = list(messages)
    for heading in closed:
        place = next((place for place, message in enumerate(left) if fits(heading, message)), None)
        if heading.recipient and place is None:
            place = next((place for place, message in enumerate(left) if message.kind == "call"), None)
        if place is not None:
            left = [*(each for each in left[:place] if each.kind == "call"), *left[place + 1 :]]
    return left
