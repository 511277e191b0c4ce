"""What the demo engine wants to say: the messages of an answer, decided from the reading of a prompt.

A thought comes first, then calls of functions that were declared, or a final answer. It has no clock and no
state, so one prompt has one plan; a long text is written only as its lines are taken.
"""

from collections.abc import Generator, Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from itertools import islice
from typing import Literal, cast

from service.engine.demo.browsing import cited, onward
from service.engine.demo.functions import (
    PYTHON,
    Declaration,
    also,
    code_asked_for,
    declared,
    fitting,
    mentions_tools,
    named,
)
from service.engine.demo.halves import written
from service.engine.demo.headings import Heading
from service.engine.demo.patterns import matching
from service.engine.demo.prose import wished
from service.engine.demo.reading import PAUSE, Output, Reading
from service.engine.demo.recall import asked, recall
from service.engine.demo.values import answer_for, arguments_for, command_for, response_schema

QUOTED_CHARS = 60
"""How much of the user's words is quoted back."""

OUTPUT_CHARS = 400
"""How much of a tool's output is said again."""

FORMATTED_LINES = 50
"""How many lines of an answer go into a JSON format, where they are one string."""

SUMMED_UP = 12
"""How many pieces of the user's words go into a summary, the newest."""

SUMMARY_WANTED = "summary of the conversation"
"""What a developer message says behind a conversation that is to be summed up."""

COMMANDS = "container.exec"
"""The function that runs commands, of which gpt-oss knows from its training how they are written."""

REGEX_FOLLOWS = "regular expression:"
"""What stands in a tool's description before the pattern of its input."""

Ids = Sequence[int]
Plan = tuple["Message", ...]
Kind = Literal["thought", "preamble", "call", "answer"]


@dataclass(frozen=True)
class Message:
    """One message of an answer: its lines, or the function that it calls and the words that the call is about.

    `value` is what the lines of an answer in a JSON format say, or what a call is given, and `plain` what they would
    say without the format. One that only `introduces` the engine answers nothing else.
    """

    kind: Kind
    lines: Iterable[str] = ()
    function: Declaration = field(default_factory=lambda: Declaration("", "", ""))
    words: str = ""
    value: object = None
    plain: str = ""
    introduces: bool = False

    @property
    def heading(self) -> Heading:
        """Its header."""
        match self.kind:
            case "call" if self.function is PYTHON:
                return Heading("analysis", PYTHON.name, True)
            case "call":
                return Heading("commentary", self.function.name, not self.function.bare)
            case "preamble":
                return Heading("commentary")
            case kind:
                return Heading("analysis" if kind == "thought" else "final")

    def said(self) -> object:
        """What its content says in JSON, None where it says nothing; of a call whose input is a text, that."""
        if self.kind != "call" or self.value is not None:
            return self.value
        if self.function.name == COMMANDS:
            return command_for(self.words)
        if not self.function.bare:
            return arguments_for(self.function.parameters, self.words)
        _, follows, pattern = self.function.description.partition(REGEX_FOLLOWS)
        try:
            return matching(pattern.strip(), self.words) if follows else self.words
        except ValueError:
            return self.words

    def texts(self) -> Iterator[str]:
        """Its content, line by line."""
        if self.kind != "call":
            yield from self.lines
        else:
            said = self.said()
            yield said if isinstance(said, str) else written(said)

    def text(self) -> str:
        """The beginning of its content, for a JSON format that has it as one string."""
        return self.plain or "".join(islice(self.lines, FORMATTED_LINES))


_WAITING = Message("answer", ["I wait for what comes of it."])


def decide(reading: Reading, addressed: frozenset[Heading]) -> Generator[Ids, None, Plan]:
    """The messages of an answer. `addressed` are the headers that a constraint lets through; none is no constraint.

    Yields are pauses.
    """
    allowed = {heading.recipient for heading in addressed if heading.recipient}
    known = (*declared(reading.developer), *declared(reading.system))
    declarations = tuple(each for each in known if not addressed or each.name in allowed)
    code = code_asked_for(reading.system, reading.words) if not addressed or PYTHON.name in allowed else None
    if addressed and not any(heading.channel == "final" for heading in addressed):
        if code is not None or allowed == {PYTHON.name}:
            return _python(reading, code or f"print({reading.words[:QUOTED_CHARS]!r})")
        function = yield from fitting(declarations, reading.words, asked_for=True)
        return (yield from _calls(reading, function or Declaration(min(allowed, default=""), "", ""), declarations))
    if SUMMARY_WANTED in reading.instruction:
        return _answer(reading, "I am asked to sum up.", [(yield from _summary(reading))])
    if reading.outputs:
        opening = onward(reading.outputs, declarations)
        if opening is not None:
            call = Message("call", function=opening.function, value=opening.arguments)
            return Message("thought", _thoughts(reading, "I open the first page that was found.")), call, _WAITING
        line = cited(reading.outputs)
        if line is not None:
            return _answer(reading, "The page says it.", [line])
        return _answer(reading, "A tool has answered; I pass on what it says.", _relayed(reading.outputs))
    if code is not None:
        return _python(reading, code)
    questions = asked(reading.words)
    for question in questions:
        value = yield from recall(question, reading.user_texts())
        if value:
            line = f"{question.spoken[0].upper()}{question.spoken[1:]} is {value}."
            return _answer(reading, "I was told this earlier, so I can say it.", [line])
    asks_for_a_tool = bool(declarations) and mentions_tools(reading.words)
    wish = None if asks_for_a_tool else wished(reading.words)
    if wish:
        return _answer(reading, f"The user wants me to {wish.name}.", wish.lines)
    function = yield from fitting(declarations, reading.words, asks_for_a_tool)
    if function:
        return (yield from _calls(reading, function, declarations))
    if questions:
        line = f"I don't know {questions[0].spoken}: nobody has told me in this conversation."
        return _answer(reading, "Nothing in this conversation tells me that.", [line])
    thought = "Nothing here asks for a skill of mine; I say who I am."
    return Message("thought", _thoughts(reading, thought)), _introduction(reading)


def _introduction(reading: Reading) -> Message:
    return final(reading, [introduction(reading.words)], introduces=True)


def final(reading: Reading, lines: Iterable[str], *, introduces: bool = False) -> Message:
    """A final answer, in the format that the prompt demands, if it does."""
    answer = Message("answer", lines, words=reading.words, introduces=introduces)
    schema = response_schema(reading.developer)
    if schema is None:
        return answer
    plain = answer.text()
    value = answer_for(schema, reading.words, plain, introduces=introduces)
    return replace(answer, lines=[written(value)], value=value, plain=plain)


def made_up(heading: Heading, reading: Reading) -> Message:
    """A message of such a header that nobody planned."""
    if heading.recipient == PYTHON.name:
        return Message("call", function=PYTHON, words=f"print({reading.words[:QUOTED_CHARS]!r})")
    if heading.recipient:
        return Message("call", function=named(heading.recipient, declared(reading.developer)), words=reading.words)
    return _introduction(reading) if heading.channel == "final" else Message("thought", ["Hm."])


def introduction(words: str) -> str:
    """Who this is, for whoever asks for nothing else."""
    said = f"You said {_quoted(words)}. " if words.strip() else ""
    who = "I am harmonium's demo engine, no real model"
    return f"{said}{who}: I can count, recall, tell stories and call tools."


def _calls(
    reading: Reading, function: Declaration, declarations: tuple[Declaration, ...]
) -> Generator[Ids, None, Plan]:
    """Calls of a function and of what the words ask for beside it."""
    calls = [Message("call", function=function, words=reading.words)]
    given = calls[0].said()
    if isinstance(given, dict):
        others = yield from also(function, cast(dict[str, object], given), declarations, reading.words)
        calls += [Message("call", function=other, words=words) for other, words in others]
    messages = [Message("thought", _thoughts(reading, f"The {function.short} function fits what the user asks."))]
    if _effort(reading) == "high":
        messages.append(Message("preamble", [f"I will call {function.short} for this."]))
    return (*messages, *calls, _WAITING)


def _python(reading: Reading, code: str) -> Plan:
    """A call that runs code."""
    thought = Message("thought", _thoughts(reading, "Python can tell."))
    return thought, Message("call", function=PYTHON, words=code), Message("answer", ["I wait for what comes of it."])


def _answer(reading: Reading, thought: str, lines: Iterable[str]) -> Plan:
    return Message("thought", _thoughts(reading, thought)), final(reading, lines)


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


def _summary(reading: Reading) -> Generator[Ids, None, str]:
    """What the user said, in short."""
    pieces: list[str] = []
    for text in islice(reading.user_texts(), SUMMED_UP):
        pieces.append(_quoted(text.strip()))
        yield PAUSE
    said = ", then ".join(reversed(pieces))
    return f"The user said {said}." if pieces else "Nobody has said a word yet."


def _quoted(words: str) -> str:
    """The beginning of the user's words on one line, in quotation marks."""
    text = " ".join(words[: 4 * QUOTED_CHARS].split())
    return f'"{text[:QUOTED_CHARS].rstrip()}…"' if len(text) > QUOTED_CHARS else f'"{text}"'
