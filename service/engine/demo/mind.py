"""What the demo engine says: a plan made from the reading of a prompt, and the plan as Harmony tokens.

A plan is a thought, then either a call of a declared function or a final answer. `think` is a generator of
token ids, whose empty pieces are pauses; it holds no state but its own and asks no clock, so one prompt has
one answer. A prompt may already hold a beginning of that answer (a worker died, or the caller forces a
channel): then it goes on from there.
"""

import json
import re
from collections.abc import Generator, Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import lru_cache
from itertools import islice

from service.engine.demo.arguments import arguments, value_for
from service.engine.demo.functions import Declaration, declared, fitting, mentions_tools
from service.engine.demo.prose import wished
from service.engine.demo.reading import PAUSE, Output, Reading, read
from service.engine.demo.recall import asked, recall
from service.engine.demo.schema import response_shape
from service.protocol.tokens import (
    ASSISTANT,
    CALL,
    CHANNEL,
    CONSTRAIN,
    END,
    MESSAGE,
    RETURN,
    START,
    decode,
    encode,
)

QUOTED_CHARS = 60
"""How much of the user's words is quoted back."""

OUTPUT_CHARS = 400
"""How much of a tool's output is said again."""

FORMATTED_LINES = 50
"""How many lines of an answer go into a JSON format, where they are one string."""

PIECES_PER_PAUSE = 200
"""How many pieces of an answer are compared with a resumed one between two pauses."""

CACHED_CHARS = 64
"""Lines up to this long are encoded once and kept, 4,096 of them."""

Ids = Sequence[int]
Header = tuple[int, ...]

_FINAL: Header = (CHANNEL, *encode("final"), MESSAGE)
_ANALYSIS: Header = (CHANNEL, *encode("analysis"), MESSAGE)
_COMMENTARY: Header = (CHANNEL, *encode("commentary"), MESSAGE)
_JSON: Header = (CONSTRAIN, *encode("json"), MESSAGE)
_NEXT: Header = (END, START, ASSISTANT)
_RECIPIENT = re.compile(r" to=([\w.-]{1,200})( ?)")


@dataclass(frozen=True)
class Plan:
    """What will be said: thoughts, then a call (at high effort with a preamble) or an answer."""

    thoughts: tuple[str, ...]
    lines: Iterable[str] = ()
    call: Declaration | None = None
    preamble: str = ""


def think(prompt: Ids) -> Iterator[Ids]:
    """Sample the answer to a Harmony prompt: pieces of ids up to RETURN or CALL, empty ones for pauses."""
    reading = yield from read(prompt)
    plan = yield from _plan(reading, prompt)
    if not reading.sampled:
        yield from _spoken(plan, reading.words)
    elif not (yield from _resumed(_spoken(plan, reading.words), reading.sampled)):
        plan = yield from _plan(reading, prompt)  # the comparison has used up the lines of the first
        yield from _prefilled(plan, reading)


def _plan(reading: Reading, prompt: Ids) -> Generator[Ids, None, Plan]:
    """Decide what to say: what a tool said, what was told before, a long text, a call, or who this is."""
    if reading.outputs:
        return _answer(reading, "A tool has answered; I pass on what it says.", _relayed(reading.outputs))
    questions = asked(reading.words)
    for question in questions:
        told = yield from recall(question, prompt)
        if told:
            line = f"{question.spoken[0].upper()}{question.spoken[1:]} is {told}."
            return _answer(reading, "I was told this earlier, so I can say it.", [line])
    declarations = declared(reading.developer)
    asks_for_a_tool = bool(declarations) and mentions_tools(reading.words)
    wish = None if asks_for_a_tool else wished(reading.words)
    if wish:
        return _answer(reading, f"The user wants me to {wish.name}.", wish.lines)
    function = yield from fitting(declarations, reading.words, asks_for_a_tool)
    if function:
        preamble = f"I will call {function.short} for this." if _effort(reading) == "high" else ""
        thoughts = _thoughts(reading, f"The {function.short} function fits what the user asks.")
        return Plan(thoughts, call=function, preamble=preamble)
    if questions:
        line = f"I don't know {questions[0].spoken}: nobody has told me in this conversation."
        return _answer(reading, "Nothing in this conversation tells me that.", [line])
    return _answer(reading, "Nothing here asks for a skill of mine; I say who I am.", [_introduction(reading.words)])


def _answer(reading: Reading, thought: str, lines: Iterable[str]) -> Plan:
    """A plan for a final answer, in the format that the prompt demands, if it does."""
    shape = response_shape(reading.developer)
    if shape is not None:
        text = "".join(islice(lines, FORMATTED_LINES))
        lines = [_json(value_for(shape, reading.words, text))]
    return Plan(_thoughts(reading, thought), lines)


def _thoughts(reading: Reading, thought: str) -> tuple[str, ...]:
    """The lines on the analysis channel: as many as the effort in the system message asks for."""
    match _effort(reading):
        case "low":
            return (thought,)
        case "high":
            return (f"{_asking(reading)}\n", f"{thought}\n", "I keep it short and say only what I know.")
        case _:
            return (f"{_asking(reading)} ", thought)


def _effort(reading: Reading) -> str:
    _, _, rest = reading.system.partition("Reasoning: ")
    return rest[:6].split("\n")[0].strip()


def _asking(reading: Reading) -> str:
    return f"The user says: {_quoted(reading.words)}." if reading.words else "Nobody has said a word to me."


def _relayed(outputs: tuple[Output, ...]) -> list[str]:
    """What the tools said, a line each."""
    said = [f"The {o.tool.rpartition('.')[2]} function says: {o.text.strip()[:OUTPUT_CHARS]}" for o in outputs]
    return [*(f"{line}\n" for line in said[:-1]), said[-1]]


def _introduction(words: str) -> str:
    said = f"You said {_quoted(words)}. " if words.strip() else ""
    who = "I am harmonium's demo engine, no real model"
    return f"{said}{who}: I can count, recall, tell stories and call tools."


def _quoted(words: str) -> str:
    """The beginning of the user's words on one line, in quotation marks."""
    text = " ".join(words[: 4 * QUOTED_CHARS].split())
    return f'"{text[:QUOTED_CHARS].rstrip()}…"' if len(text) > QUOTED_CHARS else f'"{text}"'


def _spoken(plan: Plan, words: str) -> Iterator[Ids]:
    """A whole plan as tokens, as they follow `<|start|>assistant`."""
    yield _ANALYSIS
    yield from map(_ids, plan.thoughts)
    yield _NEXT
    if plan.call is None:
        yield _FINAL
        yield from _finished(plan)
        return
    if plan.preamble:
        yield _COMMENTARY
        yield _ids(plan.preamble)
        yield _NEXT
    yield (CHANNEL, *_ids(f"commentary to={plan.call.name} "))
    yield _JSON
    yield from _called(plan.call, words)


def _finished(plan: Plan) -> Iterator[Ids]:
    """The content of a final message and the token that ends it."""
    yield from map(_ids, plan.lines)
    yield (RETURN,)


def _called(function: Declaration, words: str) -> Iterator[Ids]:
    """The arguments of a call and the token that ends it."""
    yield encode(_json(arguments(function.parameters, words)))
    yield (CALL,)


def _resumed(pieces: Iterator[Ids], sampled: Ids) -> Generator[Ids, None, bool]:
    """Go on after `sampled`, if that is how `pieces` begin.

    Otherwise nothing is said, and the result is False.
    """
    matched = 0
    for number, piece in enumerate(pieces):
        if matched == len(sampled):
            yield piece
            continue
        known = min(len(piece), len(sampled) - matched)
        if list(piece[:known]) != list(sampled[matched : matched + known]):
            return False
        matched += known
        if known < len(piece):
            yield piece[known:]
        elif number % PIECES_PER_PAUSE == 0:
            yield PAUSE
    return matched == len(sampled)


def _prefilled(plan: Plan, reading: Reading) -> Iterator[Ids]:
    """Go on from a beginning that isn't ours: the caller opened a message to force a channel or a call."""
    message = _open_message(reading.sampled)
    in_content = MESSAGE in message
    header = message[: message.index(MESSAGE)] if in_content else message
    forced = _RECIPIENT.search(decode(header))
    opening: Ids = () if in_content else (MESSAGE,)
    if not message:
        yield from _spoken(plan, reading.words)
    elif forced:
        function = _named(forced[1], declared(reading.developer))
        if not in_content:
            yield encode(f"{function.name[len(forced[1]) :]} ".removeprefix(" " if forced[2] else ""))
            yield _JSON if CONSTRAIN not in header else opening
        yield from _called(function, reading.words)
    elif decode(header).endswith("final"):
        yield opening
        yield from _finished(plan if plan.call is None else Plan((), [_introduction(reading.words)]))
    else:
        yield _ANALYSIS[1:] if list(header) == [CHANNEL] else opening
        yield from islice(_spoken(plan, reading.words), 1, None)


def _open_message(sampled: Ids) -> Ids:
    """The ids of the last message, without START and its role."""
    if START not in sampled:
        return sampled
    return sampled[len(sampled) - sampled[::-1].index(START) + 1 :]


def _named(name: str, declarations: tuple[Declaration, ...]) -> Declaration:
    """The declared function whose name begins like this; an undeclared one takes no arguments."""
    exact = [d for d in declarations if d.name == name] or [d for d in declarations if d.name.startswith(name)]
    return exact[0] if exact else Declaration(name, "", "")


def _json(value: object) -> str:
    return json.dumps(value, ensure_ascii=False, separators=(",", ":"))


def _ids(line: str) -> Ids:
    """Encode a line. Short ones, which come again and again, are kept."""
    return _kept_ids(line) if len(line) <= CACHED_CHARS else encode(line)


@lru_cache(maxsize=4096)
def _kept_ids(line: str) -> tuple[int, ...]:
    return tuple(encode(line))
