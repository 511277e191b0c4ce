"""The demo engine's plan: the messages of an answer, decided from the reading of a prompt.

A thought comes first, then calls of functions that were declared, or a final answer. It has no clock and no state, so
one prompt has one plan; a long text is written only as its lines are taken.

Words of the user earlier in this very prompt ("my name is Ada") answer "what is my name?". There is no memory but the
prompt: another conversation's words can't come up, which makes the demo engine a test of continuation. Patterns run
over users' text, so each is linear: no unbounded repeat in another.
"""

import json
import re
from collections.abc import Collection, Generator, Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import islice
from typing import Any

from service.features.demo.functions import PYTHON, DeclaredFunction, also, asks_for_a_tool, declarations_in, fitting
from service.features.demo.prose import text_for
from service.features.demo.reading import PAUSE, Output, PromptReading
from service.features.demo.values import UserWords, answer_for, arguments_for, response_schema
from service.harmony.tokens import CALL, CHANNEL, CONSTRAIN, END, MESSAGE, RETURN, encode

QUOTED_CHARS = 60
"""How much of the user's words is quoted back."""

OUTPUT_CHARS, LINE_CHARS = 400, 200
"""How much of a tool's output, and of a page's line, is said again."""

FORMATTED_LINES = 50
"""The lines of an answer that go into a JSON format, where they are one string."""

SUMMED_UP = 12
"""The pieces of the user's words that go into a summary, the newest."""

SUMMARY_WANTED = "summary of the conversation"
"""The sign of a developer message behind a conversation to summarise."""

COMMANDS = "container.exec"
"""The function that runs commands, of which gpt-oss knows from its training how they are written."""

SEARCH, OPEN = "browser.search", "browser.open"

VALUE_CHARS, CODE_CHARS = 80, 16_384
"""The longest value that is remembered, and the length to which words are looked through for code."""

QUESTIONS = 3
"""The questions of one message that are looked into."""

_CODE = re.compile(r"\bpython\b[^:`\n]{0,40}(?::[ \n]*```(?:python)?\n(.+?)```|:\s*(.+))", re.IGNORECASE | re.DOTALL)
_DISPLAY = re.compile(r"\[(\d+)\] ")
_LINE = re.compile(r"^L(\d+): (?!URL:|#)(.*\w.*)$", re.MULTILINE)
_LINK = re.compile(r"【\d+†([^†】]*)[^】]*】")
_QUESTION = re.compile(
    r"(?i)\b(?:(?:what|who|where|when|which)(?:'?s)?|remind me|tell me|repeat|remember|recall)\b(?! about\b)"
    r"[^.!?\n]{0,60}?\b(?P<whose>my|the|our) (?P<thing>[\w'-]{1,30}(?: [\w'-]{1,30}){0,5})"
)
_STATEMENT = re.compile(
    r"(?i)(?<!what )(?<!who )(?<!where )(?<!when )\b(?:my|the|our) (?P<thing>[\w'-]{1,30}(?: [\w'-]{1,30}){0,4}?)"
    r" (?:is|are|was)(?: now)?(?: called| named)?:? (?=\S)"
)
_VALUE_END = re.compile(r"[.!?,](?=\W|$)|[;\n]| (?:and|but) (?:my|the|our|i|you|please|remember)\b", re.IGNORECASE)
_THING_END = re.compile(
    r"(?i)(?:^| )(?:is|are|was|were|called|named|again|please|now|that|which|i|you|we|and|so|then|if)(?: .*|$)"
)

Pauses = Generator[Sequence[int], None, Any]


@dataclass(frozen=True)
class DemoMessage:
    """One message of an answer: its channel and lines, and the function that it calls.

    A content may be a JSON `value`. Its `words` are what another value or text can be made of, and `plain` is the
    answer without its format.
    """

    channel: str
    lines: Iterable[str]
    function: DeclaredFunction | None = None
    words: str = ""
    value: object = None
    plain: str = ""

    def text(self) -> str:
        """The beginning of the answer, without its format."""
        return self.plain or "".join(islice(self.lines, FORMATTED_LINES))

    @property
    def recipient(self) -> str:
        """The name of the function that it calls, if it calls one."""
        return self.function.name if self.function else ""

    @property
    def header(self) -> list[int]:
        """The ids before its content, behind START and the role."""
        if self.function is None:
            return [CHANNEL, *encode(self.channel), MESSAGE]
        to = f"{self.channel} to={self.function.name}"
        if self.function is PYTHON:
            return [CHANNEL, *encode(f"{to} code"), MESSAGE]
        if self.function.bare:
            return [CHANNEL, *encode(to), MESSAGE]
        return [CHANNEL, *encode(f"{to} "), CONSTRAIN, *encode("json"), MESSAGE]

    @property
    def closing(self) -> int:
        """The id that ends it."""
        return CALL if self.function else RETURN if self.channel == "final" else END


_WAITING = DemoMessage("final", ["I wait for what comes of it."])


def decide(
    reading: PromptReading, addressed: Collection[str] | None
) -> Generator[Sequence[int], None, Sequence[DemoMessage]]:
    """The messages of an answer. `addressed` are the functions that a constraint lets through, "" for a final answer;
    None is no constraint. Yields are pauses.
    """
    functions = [*declarations_in(reading.developer), *declarations_in(reading.system)]
    if addressed is not None:
        functions = [each for each in functions if each.name in addressed]
        unknown = {*addressed} - {each.name for each in functions} - {"", PYTHON.name}
        functions += [DeclaredFunction(name) for name in sorted(unknown)]
    has_python = "\n## python\n" in reading.system if addressed is None else PYTHON.name in addressed
    code = _CODE.search(reading.words[:CODE_CHARS]) if has_python else None
    has_to_call = addressed is not None and "" not in addressed
    if has_to_call and (code or not functions):
        return [_thinking(reading, "Python can tell."), code_call(reading, code), _WAITING]
    if has_to_call:
        function = yield from fitting(functions, reading.words)
        return (yield from _calls(reading, function or functions[0], functions))
    if SUMMARY_WANTED in reading.instruction:
        return _answer(reading, "I am asked to sum up.", [(yield from _summary(reading))])
    if reading.outputs:
        return _relay(reading, functions)
    if code:
        return [_thinking(reading, "Python can tell."), code_call(reading, code), _WAITING]
    questions = _questions(reading.words)
    for spoken, thing in questions:
        value = yield from _recall(thing, reading.user_texts())
        if value:
            told = f"{spoken[0].upper()}{spoken[1:]} is {value}."
            return _answer(reading, "I was told this earlier, so I can say it.", [told])
    wish = None if functions and asks_for_a_tool(reading.words) else text_for(reading.words)
    if wish:
        return _answer(reading, f"The user wants me to {wish[0]}.", wish[1])
    function = yield from fitting(functions, reading.words)
    if function:
        return (yield from _calls(reading, function, functions))
    if questions:
        unknown = f"I don't know {questions[0][0]}: nobody has told me in this conversation."
        return _answer(reading, "Nothing in this conversation tells me that.", [unknown])
    return [_thinking(reading, "Nothing here asks for a skill of mine; I say who I am."), introduction(reading)]


def introduction(reading: PromptReading) -> DemoMessage:
    """The demo engine's introduction, its answer when nothing else is asked for."""
    said = f"You said {_quote(reading.words)}. " if reading.words.strip() else ""
    who = "I am harmonium's demo engine, no real model"
    return _final(reading, [f"{said}{who}: I can count, recall, tell stories and call tools."])


def call(function: DeclaredFunction, words: str, value: object = None) -> DemoMessage:
    """A call of a function, whose arguments are the value, or made of the words."""
    if function.bare:
        return DemoMessage("commentary", [words], function, words)
    if function.name == COMMANDS:
        value = {"cmd": ["bash", "-lc", UserWords(words).take_phrase() or "pwd"]}
    elif value is None:
        value = arguments_for(function.parameters, words)
    return DemoMessage("commentary", [compact(value)], function, words, value)


def code_call(reading: PromptReading, code: re.Match[str] | None = None) -> DemoMessage:
    """A call that runs code, as in "use python: 2 + 2" or between ```."""
    said = (code[1] or code[2]).strip() if code else f"print({reading.words[:QUOTED_CHARS]!r})"
    return DemoMessage("analysis", [said], PYTHON, said)


def compact(value: object) -> str:
    """A value as JSON, without blanks."""
    return json.dumps(value, ensure_ascii=False, separators=(",", ":"))


def _final(reading: PromptReading, lines: Iterable[str]) -> DemoMessage:
    """A final answer, in the format that the prompt demands, if it does."""
    words = "\n".join(each.text for each in reading.outputs) or reading.words
    schema = response_schema(reading.developer)
    if schema is None:
        return DemoMessage("final", lines, words=words)
    plain = "".join(islice(lines, FORMATTED_LINES))
    value = answer_for(schema, words, plain)
    return DemoMessage("final", [compact(value)], words=words, value=value, plain=plain)


def _calls(reading: PromptReading, function: DeclaredFunction, functions: Sequence[DeclaredFunction]) -> Pauses:
    """Calls of a function, and of those that the words ask for beside it."""
    calls = [call(function, reading.words)]
    if isinstance(calls[0].value, dict):
        others = yield from also(function, calls[0].value, functions, reading.words)  # pyright: ignore
        calls += [call(other, words) for other, words in others]
    thoughts = [_thinking(reading, f"The {function.short} function fits what the user asks.")]
    if _effort(reading) == "high":
        thoughts.append(DemoMessage("commentary", [f"I will call {function.short} for this."]))
    return [*thoughts, *calls, _WAITING]


def _answer(reading: PromptReading, thought: str, lines: Iterable[str]) -> Sequence[DemoMessage]:
    return [_thinking(reading, thought), _final(reading, lines)]


def _thinking(reading: PromptReading, thought: str) -> DemoMessage:
    """The message on the analysis channel: as long as the effort in the system message asks for."""
    asking = f"The user says: {_quote(reading.words)}." if reading.words else "Nobody has said a word to me."
    match _effort(reading):
        case "low":
            return DemoMessage("analysis", [thought])
        case "high":
            return DemoMessage("analysis", [f"{asking}\n", f"{thought}\n", "I keep it short and say only what I know."])
        case _:
            return DemoMessage("analysis", [f"{asking} ", thought])


def _effort(reading: PromptReading) -> str:
    _, _, rest = reading.system.partition("Reasoning: ")
    return rest[:6].split("\n")[0].strip()


def _relay(reading: PromptReading, functions: Sequence[DeclaredFunction]) -> Sequence[DemoMessage]:
    """The answer to tools' outputs: after a search the first page is opened, and then cited; others are said again."""
    last = reading.outputs[-1]
    opener = next((each for each in functions if each.name == OPEN), None)
    if opener and last.tool == SEARCH and "【0†" in last.text:
        return [_thinking(reading, "I open the first page that was found."), call(opener, "", {"id": 0}), _WAITING]
    if line := _citation(last):
        return _answer(reading, "The page says it.", [line])
    said = [f"The {o.tool.rpartition('.')[2]} function says: {o.text.strip()[:OUTPUT_CHARS]}" for o in reading.outputs]
    lines = [*(f"{line}\n" for line in said[:-1]), said[-1]]
    return _answer(reading, "A tool has answered; I pass on what it says.", lines)


def _citation(output: Output) -> str | None:
    """The first line of a page that was opened, with a citation; None where there is none."""
    display, said = _DISPLAY.match(output.text), _LINE.search(output.text)
    if output.tool != OPEN or display is None or said is None:
        return None
    line = _LINK.sub(r"\1", said[2]).strip().removesuffix(".")[:LINE_CHARS]
    return f"{line}【{display[1]}†L{said[1]}】."


def _summary(reading: PromptReading) -> Pauses:
    """A short summary of the user's texts."""
    pieces: list[str] = []
    for text in islice(reading.user_texts(), SUMMED_UP):
        pieces.append(_quote(text.strip()))
        yield PAUSE
    return f"The user said {', then '.join(reversed(pieces))}." if pieces else "Nobody has said a word yet."


def _quote(words: str) -> str:
    """The beginning of the user's words on one line, in quotation marks."""
    text = " ".join(words[: 4 * QUOTED_CHARS].split())
    return f'"{text[:QUOTED_CHARS].rstrip()}…"' if len(text) > QUOTED_CHARS else f'"{text}"'


def _questions(words: str) -> Sequence[tuple[str, str]]:
    """The things that the words ask about, as the answer repeats them ("your name") and as they are looked up."""
    found: list[tuple[str, str]] = []
    for match in islice(_QUESTION.finditer(words.replace("\u2019", "'")), QUESTIONS):
        thing = _THING_END.sub("", match["thing"]).strip()
        if thing and not _STATEMENT.search(match[0]):
            found.append((f"{'the' if match['whose'].lower() == 'the' else 'your'} {thing}", thing.lower()))
    return found


def _recall(thing: str, texts: Iterable[str]) -> Pauses:
    """The newest value that the user gave for a thing, or None; newer texts come first."""
    for text in texts:
        if thing in text.lower():
            values = [value for what, value in _statements(text) if what == thing]
            if values:
                return values[-1]
        yield PAUSE
    return None


def _statements(text: str) -> Iterator[tuple[str, str]]:
    """Every thing that a text states, with its value, in order."""
    for line in text.splitlines():
        for match in _STATEMENT.finditer(line):
            rest = line[match.end() : match.end() + VALUE_CHARS]
            end = _VALUE_END.search(rest)
            value = rest[: end.start() if end else None].strip(" \"'`*“”")
            if value:
                yield _THING_END.sub("", match["thing"]).strip().lower(), value
