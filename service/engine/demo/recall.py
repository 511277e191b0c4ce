"""Recall: what the user said earlier in this very prompt ("my name is Ada") answers "what is my name?".

There is no memory but the prompt: what another conversation said can't come up here, which is what makes the
demo engine a test of continuation. Patterns run over users' text, so each is linear: no unbounded repeat in
another.
"""

import re
from collections.abc import Generator, Iterable, Iterator
from dataclasses import dataclass

from service.engine.demo.reading import PAUSE

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
class Question:
    """What is asked for, as it will be said back ("your name") and as it is looked for ("name")."""

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
    """The newest value that the user gave for what is asked, or None; newer texts come first. Yields are pauses."""
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
    """A thing without what only follows its name: "boat called" and "boat" are the same."""
    return _THING_END.sub("", thing).strip()


def _plain(text: str) -> str:
    """Typographic apostrophes become plain ones."""
    return text.replace("\u2019", "'")


def _single_spaced(text: str) -> str:
    return " ".join(text.split())
