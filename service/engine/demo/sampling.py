"""How the demo engine samples: the messages of a plan as Harmony tokens, freely or as a constraint lets it.

`sampled_answer` is a generator of token ids, whose empty pieces are pauses; it has no state but its own and no
clock, so one prompt has one answer. A prompt may already have a beginning of that answer (a worker died, or the caller
forces a channel): then it goes on from there. A model never ends by itself: behind its last message it says that it has
no more.
"""

from collections.abc import Generator, Iterable, Iterator, Sequence
from functools import lru_cache

from service.engine.demo.constrained import Constrained, behind, closing_of, fits
from service.engine.demo.functions import Declaration, declared
from service.engine.demo.halves import rest_of
from service.engine.demo.headings import Begun, Heading, take_apart
from service.engine.demo.plan import Message, decide, final, introduction
from service.engine.demo.reading import PAUSE, Reading, read
from service.engine.demo.tags import headings
from service.harmony.tokens import ASSISTANT, CHANNEL, CONSTRAIN, MESSAGE, START, STOPS, decode, encode

PIECES_PER_PAUSE = 200
"""How many pieces of an answer are compared with a resumed one between two pauses."""

CACHED_CHARS = 64
"""Lines up to this long are encoded once and kept, 4,096 of them."""

Ids = Sequence[int]

_NEXT = (START, ASSISTANT)
_JSON = (CONSTRAIN, *encode("json"), MESSAGE)
_CHANNELS = {each: (CHANNEL, *encode(each), MESSAGE) for each in ("analysis", "commentary", "final")}
_NO_MORE = Message("answer", ["I have no more to say."])


def sampled_answer(prompt: Ids, tag: str | None = None, stop_ids: Iterable[int] = STOPS) -> Iterator[Ids]:
    """Sample the answer to a Harmony prompt: pieces of ids up to a stop id, empty ones for pauses.

    `tag` is a structural tag to keep to. Without the stop ids that end its messages it goes on for ever. Raises
    EngineRefused for a tag that it can't follow.
    """
    stops = frozenset(stop_ids)
    for piece in _endless(prompt, tag, stops):
        if piece and piece[0] in stops:
            yield piece[:1]
            return
        yield piece


def _endless(prompt: Ids, tag: str | None, stops: frozenset[int]) -> Iterator[Ids]:
    addressed = headings(tag) if tag else frozenset[Heading]()
    reading = yield from read(prompt)
    plan = yield from decide(reading, prompt, addressed)
    if tag or not (yield from _resumed(_messages(plan), reading.sampled)):
        if not tag:
            plan = yield from decide(reading, prompt, addressed)  # the comparison has used up the lines of the first
        begun = take_apart(reading.sampled)
        left = _left(plan, begun.closed)
        if tag:
            constrained = Constrained(tag, left, final(reading, [introduction(reading.words)]), stops)
            if begun.place == "content":
                constrained.open(_open(begun, left, reading), begun.content)
            yield from constrained.ids()
        else:
            yield from _continued(begun, left, reading)
    while True:
        yield _NEXT
        yield from _message(_NO_MORE)


def _messages(messages: Sequence[Message]) -> Iterator[Ids]:
    """Messages as tokens, as they follow `<|start|>assistant`."""
    for number, message in enumerate(messages):
        if number:
            yield _NEXT
        yield from _message(message)


def _message(message: Message) -> Iterator[Ids]:
    """One message, without its START and role."""
    heading = message.heading
    if heading.recipient:
        yield (CHANNEL, *_ids(f"commentary to={heading.recipient}{' ' if heading.typed else ''}"))
        yield _JSON if heading.typed else (MESSAGE,)
    else:
        yield _CHANNELS[heading.channel]
    yield from map(_ids, message.texts())
    yield (closing_of(message),)


def _resumed(pieces: Iterator[Ids], begun: Ids) -> Generator[Ids, None, bool]:
    """Go on after `begun`, if that is how `pieces` begin.

    Otherwise nothing is said, and the result is False.
    """
    matched = 0
    for number, piece in enumerate(pieces):
        if matched == len(begun):
            yield piece
            continue
        known = min(len(piece), len(begun) - matched)
        if list(piece[:known]) != list(begun[matched : matched + known]):
            return False
        matched += known
        if known < len(piece):
            yield piece[known:]
        elif number % PIECES_PER_PAUSE == 0:
            yield PAUSE
    return matched == len(begun)


def _continued(begun: Begun, left: Sequence[Message], reading: Reading) -> Iterator[Ids]:
    """Go on from a beginning that isn't ours: it was sampled under a constraint, or the caller opened a message."""
    if begun.place in ("closed", "start"):
        yield _NEXT if begun.place == "closed" else _NEXT[1:]
    if begun.place != "content" and not begun.header:
        yield from _messages(left)
        return
    message = _open(begun, left, reading)
    if begun.place == "content":
        yield from _rest(message, begun.content)
    else:
        yield _rest_of_header(begun, message)
        yield from map(_ids, message.texts())
    yield (closing_of(message),)
    left = left[left.index(message) + 1 :] if message in left else left
    if left:
        yield _NEXT
    yield from _messages(left)


def _rest_of_header(begun: Begun, message: Message) -> Ids:
    """What completes the header of a message that was begun."""
    forced = begun.heading.recipient
    text = decode(begun.header)
    if not forced and list(begun.header) == [CHANNEL]:
        return _CHANNELS["analysis"][1:]
    if not forced or CONSTRAIN in begun.header:
        return (MESSAGE,)
    missing = f"{message.function.name[len(forced) :]} ".removeprefix(" " if text.endswith(" ") else "")
    return (*encode(missing), *_JSON)


def _open(begun: Begun, left: Sequence[Message], reading: Reading) -> Message:
    """The message that is open: one of the plan's, or one that was forced."""
    heading = begun.heading
    if heading.recipient:
        planned = [message for message in left if message.function.name == heading.recipient]
        function = _named(heading.recipient, declared(reading.developer))
        return planned[0] if planned else Message("call", function=function, words=reading.words)
    planned = [message for message in left if fits(heading, message)]
    if planned:
        return planned[0]
    if heading.channel == "final":
        return final(reading, [introduction(reading.words)])
    return left[0] if left and left[0].kind == "thought" else Message("thought", ["Hm."])


def _rest(message: Message, begun: Ids) -> Iterator[Ids]:
    """The rest of a content: JSON that was begun otherwise is completed, as it stands."""
    text = decode(begun)
    json = text.lstrip().startswith("{") and (message.kind == "call" or message.value is not None)
    value = message.called_with() if message.kind == "call" else message.value
    if not json or "".join(message.texts()).startswith(text):
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


def _named(name: str, declarations: tuple[Declaration, ...]) -> Declaration:
    """The declared function whose name begins like this; an undeclared one takes no arguments."""
    exact = [d for d in declarations if d.name == name] or [d for d in declarations if d.name.startswith(name)]
    return exact[0] if exact else Declaration(name, "", "")


def _ids(line: str) -> Ids:
    """Encode a line. Short ones, which come again and again, are kept."""
    return _kept_ids(line) if len(line) <= CACHED_CHARS else encode(line)


@lru_cache(maxsize=4096)
def _kept_ids(line: str) -> tuple[int, ...]:
    return tuple(encode(line))
