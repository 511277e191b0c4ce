"""The demo engine's plan: the messages of an answer, decided from the reading of a prompt.

A thought comes first, then calls of functions that were declared, or a final answer. It has no clock and no
state, so one prompt has one plan; a long text is written only as its lines are taken.

Words of the user earlier in this very prompt ("my name is Ada") answer "what is my name?". There is no memory but the
prompt: another conversation's words can't come up, which makes the demo engine a test of continuation. Patterns run
over users' text, so each is linear: no unbounded repeat in another.
"""

import re
from collections.abc import Generator, Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from itertools import islice
from typing import Any, Literal, NamedTuple, cast

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
from service.engine.demo.patterns import matching
from service.engine.demo.prose import wished
from service.engine.demo.reading import PAUSE, Output, Reading
from service.engine.demo.tags import Heading
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
"""The sign of a developer message behind a conversation to summarise."""

COMMANDS = "container.exec"
"""The function that runs commands, of which gpt-oss knows from its training how they are written."""

REGEX_FOLLOWS = "regular expression:"
"""The words before the pattern of its input in a tool's description."""

Ids = Sequence[int]
Plan = tuple["Message", ...]
Kind = Literal["thought", "preamble", "call", "answer"]

SEARCH, OPEN = "browser.search", "browser.open"

QUOTED_LINE_CHARS = 200
"""How much of a page's line is said again."""

_DISPLAY = re.compile(r"\[(\d+)\] ")
_LINE = re.compile(r"^L(\d+): (.*\w.*)$", re.MULTILINE)
_LINK = re.compile(r"【\d+†([^†】]*)[^】]*】")

VALUE_CHARS = 80
"""The longest value that is remembered."""

QUESTIONS = 3
"""How many questions of one message are looked into."""

_QUESTION = re.compile(
    r"(?i)\b(?:(?:what|who|where|when|which)(?:'?s)?|remind me|tell me|repeat|do you (?:know|remember)"
    r"|recall)\b(?! about\b)"
    r"(?P<rest>[^.!?\n]{0,100})"
)
_THING = re.compile(r"(?i)\b(?P<whose>my|the|our) (?P<what>[\w'-]{1,30}(?: [\w'-]{1,30}){0,5})")
_GIVEN_THING = re.compile(r"(?i)(?P<what>[\w'-]{1,30}) (?:did|have|was|should)(?P<whose>) (?:i|you)\b")
_STATEMENT = re.compile(
    r"(?i)(?<!what )(?<!who )(?<!where )(?<!when )\b(?:my|the|our) "
    r"(?P<what>[\w'-]{1,30}(?: [\w'-]{1,30}){0,4}?)"
    r"(?: (?:is|are|was)(?: now)?(?: called| named)?:? (?=\S)|:? (?=[\"'`\d]))"
)
_VALUE_END = re.compile(r"[.!?,](?=\W|$)|[;\n]| (?:and|but) (?:my|the|our|i|you|please|remember)\b", re.IGNORECASE)
_THING_END = re.compile(
    r"(?i)(?:^| )(?:is|are|was|were|called|named|again|please|now|that|which|i|you|we|and|so|then|if)"
    r"(?: .*|$)"
)


@dataclass(frozen=True)
class Message:
    """One message of an answer: its lines, or the function that it calls and the words that the call is about.

    `value` is the JSON value of an answer's lines, or a call's arguments, and `plain` the answer without the format.
    One that only `introduces` the engine answers nothing else.
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
        """Its content as JSON, or None; the text itself for a call whose input is a text."""
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
    """A message with such a header that isn't planned."""
    if heading.recipient == PYTHON.name:
        return Message("call", function=PYTHON, words=f"print({reading.words[:QUOTED_CHARS]!r})")
    if heading.recipient:
        return Message("call", function=named(heading.recipient, declared(reading.developer)), words=reading.words)
    return _introduction(reading) if heading.channel == "final" else Message("thought", ["Hm."])


def introduction(words: str) -> str:
    """The demo engine's introduction, its answer when nothing else is asked for."""
    said = f"You said {_quoted(words)}. " if words.strip() else ""
    who = "I am harmonium's demo engine, no real model"
    return f"{said}{who}: I can count, recall, tell stories and call tools."


def _calls(
    reading: Reading, function: Declaration, declarations: tuple[Declaration, ...]
) -> Generator[Ids, None, Plan]:
    """Calls of a function, and of those that the words ask for beside it."""
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
    """The tools' outputs, a line each."""
    said = [f"The {o.tool.rpartition('.')[2]} function says: {o.text.strip()[:OUTPUT_CHARS]}" for o in outputs]
    return [*(f"{line}\n" for line in said[:-1]), said[-1]]


def _summary(reading: Reading) -> Generator[Ids, None, str]:
    """A short summary of the user's texts."""
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


class Opening(NamedTuple):
    """A page is to be opened: the function that does it, and what it is given."""

    function: Declaration
    arguments: dict[str, Any]


def onward(outputs: Sequence[Output], declarations: Sequence[Declaration]) -> Opening | None:
    """The page to open after a search with results; None for any other output."""
    last = outputs[-1]
    able = [each for each in declarations if each.name == OPEN]
    return Opening(able[0], {"id": 0}) if able and last.tool == SEARCH and "【0†" in last.text else None


def cited(outputs: Sequence[Output]) -> str | None:
    """The first line of the page that was opened last, with a citation; None where there is none."""
    last = outputs[-1]
    display = _DISPLAY.match(last.text)
    if last.tool != OPEN or display is None:
        return None
    said = [line for line in _LINE.finditer(last.text) if not line[2].startswith(("URL:", "#"))]
    if not said:
        return None
    line = _LINK.sub(r"\1", said[0][2]).strip().removesuffix(".")[:QUOTED_LINE_CHARS]
    return f"{line}【{display[1]}†L{said[0][1]}】."


@dataclass(frozen=True)
class Question:
    """A question: the thing asked for, as the answer repeats it ("your name") and as it is looked up ("name")."""

    spoken: str
    what: str


def asked(words: str) -> tuple[Question, ...]:
    """The things that `words` ask about, QUESTIONS at most."""
    questions: list[Question] = []
    for match in _QUESTION.finditer(_plain(words)):
        rest = _single_spaced(match["rest"])
        thing = None if _STATEMENT.search(match[0]) else _THING.search(rest) or _GIVEN_THING.match(rest)
        what = _bare(thing["what"]) if thing else ""
        if thing and what and len(questions) < QUESTIONS:
            whose = "your" if thing["whose"] and thing["whose"].lower() != "the" else "the"
            questions.append(Question(f"{whose} {what}", what.lower()))
    return tuple(questions)


def recall(question: Question, texts: Iterable[str]) -> Generator[tuple[int, ...], None, str | None]:
    """The newest value that the user gave for the question, or None; newer texts come first. Yields are pauses."""
    for text in texts:
        if question.what in _single_spaced(text).lower():
            values = [value for what, value in _statements(text) if what.lower() == question.what]
            if values:
                return values[-1]
        yield PAUSE
    return None


def _statements(text: str) -> Iterator[tuple[str, str]]:
    """Every (thing, value) that a text states, in order."""
    for line in _plain(text).splitlines():
        spaced = _single_spaced(line)
        for match in _STATEMENT.finditer(spaced):
            rest = spaced[match.end() : match.end() + VALUE_CHARS]
            end = _VALUE_END.search(rest)
            value = rest[: end.start() if end else None].strip(" \"'`*“”")
            if value:
                yield _bare(match["what"]), value


def _bare(thing: str) -> str:
    """A thing without the words that only follow its name: "boat called" and "boat" are the same."""
    return _THING_END.sub("", thing).strip()


def _plain(text: str) -> str:
    """Typographic apostrophes become plain ones."""
    return text.replace("\u2019", "'")


def _single_spaced(text: str) -> str:
    return " ".join(text.split())
