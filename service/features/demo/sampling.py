"""How the demo engine samples: the messages of a plan as Harmony tokens, freely or as a constraint lets it.

`sampled_answer` is a generator of token ids, whose empty pieces are pauses; it has no state but its own and no clock,
so one prompt has one answer. A prompt may already have a beginning of that answer (a worker died, or the format of a
content is enforced from there on): then it goes on from there. A model never ends by itself: behind its last message it
says that it has no more.

A structural tag either says who may be addressed, and then the plan keeps to these, or it is the format of one content.
The headers that are sampled are among those that the service's tags let through.
"""

import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import pairwise
from typing import Any

from service.engine.port import EngineRefused
from service.features.demo.functions import DeclaredFunction, declarations_in
from service.features.demo.patterns import derive, matching
from service.features.demo.plan import DemoMessage, call, compact, decide, introduction
from service.features.demo.reading import PromptReading, places, read
from service.features.demo.values import answer_for, arguments_for
from service.grammar.checks import is_valid
from service.harmony.header import read_header
from service.harmony.tokens import ASSISTANT, CALL, END, MESSAGE, RETURN, START, STOPS, encode

Ids = Sequence[int]
Format = Mapping[str, Any]
"""A part of a structural tag."""

PIECES_PER_PAUSE = 200
"""The pieces of an answer that are passed over between two pauses."""

_NEXT = (START, ASSISTANT)
_TO: Format = {"type": "const_string", "value": " to="}
_NO_MORE = DemoMessage("final", ["I have no more to say."])


def sampled_answer(
    prompt: Ids, tag: str | None = None, stop_ids: Iterable[int] = STOPS, least: int = 0
) -> Iterator[Ids]:
    """Sample the answer to a Harmony prompt: pieces of ids up to a stop id, empty ones for pauses.

    `tag` is a structural tag to keep to. Without the stop ids that end its messages it goes on for ever. Among the
    first `least` ids a message ends without one, and another follows. Raises EngineRefused for a tag that it can't
    follow.
    """
    stops, sent = frozenset(stop_ids), 0
    for piece in _endless(prompt, tag):
        stop = next((place for place, id in enumerate(piece, 1) if id in stops), 0)
        if stop and sent + stop > least:
            yield piece[:stop]
            return
        sent += len(piece)
        yield [END if id in stops else id for id in piece] if stop else piece


def _endless(prompt: Ids, tag: str | None) -> Iterator[Ids]:
    try:
        form: Format = {} if tag is None else json.loads(tag)["format"]
        addressed = _recipients(form)
    except (ValueError, TypeError, LookupError, AttributeError, RecursionError) as error:
        raise EngineRefused(f"the demo engine can't read the structural tag: {error}") from error
    reading = yield from read(prompt)
    left = yield from decide(reading, addressed)
    answer = [START, ASSISTANT, *reading.sampled]
    parts = [answer[begin:end] for begin, end in pairwise([*places(START, answer), len(answer)])]
    begun = [] if answer[-1] in (END, CALL, RETURN) else parts.pop()
    for part in parts:
        place = next((place for place, message in enumerate(left, 1) if _fits(part, message)), 0)
        left = left[place:]
    if addressed is not None and "" not in addressed:
        left = [each for each in left if each.channel != "final"]
    if tag and addressed is None:
        message = _open(begun, left, reading)
        yield from _write_content(form, message)
        yield (CALL if message.function else RETURN,)
    elif begun or left:
        yield from _continue(begun, left, reading)
    else:
        yield (RETURN,)
    while True:
        yield _NEXT
        yield from _message(_NO_MORE)


def _recipients(form: Format) -> frozenset[str] | None:
    """The recipients that a tag lets through, "" for a final answer; None for a tag that is a content's format."""
    parts = [form]
    for part in parts:  # which grows meanwhile
        parts += [*part.get("elements", ()), *([part["content"]] if "content" in part else ())]
    if not any(part["type"] == "any_tokens" for part in parts if part):
        return None
    found = {"" for part in parts if part.get("value") == "final"}
    for part in parts:
        for before, each in pairwise(part.get("elements", ())):
            if before == _TO:
                found.update(option["value"] for option in each.get("elements", [each]))
    return frozenset(found)


def _heading(part: Ids) -> tuple[str, str]:
    """The recipient and the channel of a message that begins with START, as far as it goes."""
    found, _ = read_header(part[2 : _content(part)], role_given=True, marked=True)
    return found.recipient or "", found.channel or ""


def _content(part: Ids) -> int:
    """The place of the mark before a message's content, or where there is none, the end."""
    return next((place for place, id in enumerate(part) if id == MESSAGE), len(part))


def _fits(part: Ids, message: DemoMessage) -> bool:
    """Whether a message that was begun is this one: it has the same recipient, or its channel where there is none."""
    recipient, channel = _heading(part)
    return recipient == message.recipient and bool(recipient or channel == message.channel)


def _open(part: Ids, left: Iterable[DemoMessage], reading: PromptReading) -> DemoMessage:
    """The message that was begun: the plan's, or one that isn't planned."""
    planned = next((message for message in left if _fits(part, message)), None)
    recipient, _ = _heading(part)
    if planned is None and recipient:
        known = (each for each in declarations_in(reading.developer) if each.name == recipient)
        return call(next(known, DeclaredFunction(recipient)), reading.words)
    return planned or introduction(reading)


def _continue(begun: Ids, left: Sequence[DemoMessage], reading: PromptReading) -> Iterator[Ids]:
    """Goes on from the beginning of a message to the end of the plan."""
    message = _open(begun, left, reading)
    place = _content(begun)
    if place == len(begun):
        message = next((each for each in left if _begins(each, begun)), message)
        yield [*_NEXT, *message.header][len(begun) :] if _begins(message, begun) else (MESSAGE,)
    yield from _behind(message, begun[place + 1 :])
    yield (message.closing,)
    for following in left[left.index(message) + 1 :] if message in left else left:
        yield _NEXT
        yield from _message(following)


def _begins(message: DemoMessage, begun: Ids) -> bool:
    return [*_NEXT, *message.header][: len(begun)] == begun


def _message(message: DemoMessage) -> Iterator[Ids]:
    """One message, without its START and role."""
    yield message.header
    yield from _behind(message, ())
    yield (message.closing,)


def _behind(message: DemoMessage, begun: Ids) -> Iterator[Ids]:
    """A message's content behind what there is of it, which is passed over unread."""
    passed = len(begun)
    for number, line in enumerate(message.lines):
        piece = encode(line)
        if passed < len(piece) or number % PIECES_PER_PAUSE == 0:
            yield piece[passed:]
        passed = max(0, passed - len(piece))


def _write_content(form: Format, message: DemoMessage) -> Iterator[Ids]:
    """A content in its format. Raises EngineRefused for a format that has no text, or none that could be found."""
    match form:
        case {"type": "sequence", "elements": [*elements]}:
            for each in elements:
                yield from _write_content(each, message)
        case {"type": "token", "token": int(id)}:
            yield (id,)
        case {"type": "const_string", "value": str(text)}:
            yield encode(text)
        case {"type": "regex" | "grammar" | "json_schema"}:
            try:
                yield encode(_matching(form, message))
            except (ValueError, LookupError, RecursionError) as error:
                raise EngineRefused(f"the demo engine finds no text for the constraint: {error}") from error
        case _:
            raise EngineRefused(f"the demo engine can't follow a structural tag with {form!r:.80} in it")


def _matching(form: Format, message: DemoMessage) -> str:
    """A text in a format, with the planned value of the message where a schema allows it."""
    if form["type"] == "regex":
        return matching(form["pattern"], message.words)
    if form["type"] == "grammar":
        return derive(form["grammar"], message.words)
    schema = form["json_schema"]
    if message.value is not None and is_valid(schema, message.value):
        return compact(message.value)
    if message.function:
        return compact(arguments_for(schema, message.words))
    return compact(answer_for(schema, message.words, message.text()))
