"""Long texts of the demo engine: numbers in order and stories of any length, line by line.

Everything here is a generator, so that a hundred thousand lines cost nothing before they are sent, and
depends on its arguments alone: the same request gives the same text.
"""

import re
from collections.abc import Iterator
from dataclasses import dataclass

COUNT_TO = 100_000
"""The highest number that is counted to."""

WORDS = 100_000
"""The longest story, in words."""

STORY_WORDS, LONG_STORY_WORDS = 120, 1000
"""How long a story is when no length is asked for."""

SENTENCES_PER_PARAGRAPH = 5
"""How a story is broken up, so that it reads like one."""

_GREETING = "Hello there friend, I am harmonium's demo engine, glad to meet you."

_UNITS = re.findall(
    r"\w+",
    "zero one two three four five six seven eight nine ten eleven twelve "
    "thirteen fourteen fifteen sixteen seventeen eighteen nineteen",
)
_TENS = re.findall(r"\w+", "twenty thirty forty fifty sixty seventy eighty ninety")

_PARTS = [
    re.split(r",\s+", part)
    for part in (
        """The keeper of the lighthouse, A young mapmaker, The last train driver, An old clockmaker,
        My grandmother's cat, The night gardener, A patient engineer, The captain's daughter,
        A travelling cellist, The librarian, A boy with a kite, The harbour pilot""",
        "found, repaired, drew, carried, remembered, lost, painted, followed, counted, forgot, borrowed",
        """a box of letters, the broken compass, a song without words, seven silver keys, the wrong umbrella,
        a map of the coast, the smallest bell, a lantern, the blue notebook, a jar of rain, the missing page,
        an unfinished bridge, a promise""",
        """before the tide came in, while the town slept, on the longest day of the year, at the edge of the forest,
        under a sky full of starlings, during the first snow, and told nobody about it""",
    )
]
"""The parts of a story's sentences, in numbers that have no divisor in common."""

_COUNT = re.compile(r"\bcount(?:ing)?\b([^.!?\n]{0,80})")
_RANGE = re.compile(r"(?:\b(?P<first>[\w,-]{1,20}) )?\b(?:to|until|through) (?P<last>[\w,-]{1,20})")
_LENGTH = re.compile(
    r"\b(?:(?P<least>at least|over|more than) |(?P<exact>in|with|using|exactly|say) )?"
    r"(?P<number>[\w,]{1,20}(?:-[a-z]{1,9})?)[ -]words?\b"
)
_STORY = re.compile(r"\b(?:write|tell)\b[^.!?\n]{0,60}\b(?:story|essay|poem|tale|novel|article)\b")


@dataclass(frozen=True)
class Wish:
    """A text that somebody asked for: its name, for the thought about it, and its lines."""

    name: str
    lines: Iterator[str]


def wished(words: str) -> Wish | None:
    """The long text that `words` ask for, or None. Nothing is written until its lines are taken."""
    text = " ".join(words.lower().split())
    return _counting(text) or _writing(text)


def spelled(number: int) -> str:
    """A number in words up to a hundred, in digits beyond."""
    if 0 <= number < len(_UNITS):
        return _UNITS[number]
    if not 20 <= number <= 99:
        return "one hundred" if number == 100 else str(number)
    tens, unit = divmod(number, 10)
    return _TENS[tens - 2] + (f"-{_UNITS[unit]}" if unit else "")


def count(first: int, last: int, in_words: bool) -> Iterator[str]:
    """The numbers from `first` to `last`, up or down, one a line."""
    step = 1 if last >= first else -1
    for number in range(first, last, step):
        yield f"{spelled(number) if in_words else number}\n"
    yield spelled(last) if in_words else str(last)


def story(words: int) -> Iterator[str]:
    """Prose of at least `words` words, sentence by sentence. Its sentences repeat after 12,012."""
    number = written = 0
    while written < words:
        parts = [part[number % len(part)] for part in _PARTS]
        sentence = " ".join(parts) + "."
        written += sentence.count(" ") + 1
        number += 1
        gap = "\n\n" if number % SENTENCES_PER_PARAGRAPH == 1 else " "
        yield sentence if number == 1 else f"{gap}{sentence}"


def _counting(text: str) -> Wish | None:
    for match in _COUNT.finditer(text):
        bounds = _RANGE.search(match[1])
        last = _number(bounds["last"]) if bounds else None
        if bounds and last is not None:
            first = _number(bounds["first"] or "")
            first = 1 if first is None else min(first, COUNT_TO)
            last = min(last, COUNT_TO)
            return Wish(f"count to {last}", count(first, last, "in words" in text))
    return None


def _writing(text: str) -> Wish | None:
    for length in _LENGTH.finditer(text):
        number = _number(length["number"]) or 0
        if length["exact"] and 0 < number <= len(_GREETING.split()):
            return Wish(f"use {number} words", iter([_greeting(number)]))
        if number > len(_GREETING.split()) or (number and length["least"]):
            return Wish(f"write {number} words", story(min(number, WORDS)))
    asked = _STORY.search(text)
    if asked:
        return Wish("write a story", story(LONG_STORY_WORDS if "long" in asked[0] else STORY_WORDS))
    return None


def _greeting(words: int) -> str:
    return " ".join(_GREETING.split()[:words]).rstrip(",.") + "."


_SPELLED = {spelled(number): number for number in range(101)} | {"hundred": 100}


def _number(text: str) -> int | None:
    """The number that a word stands for, in digits or spelled; None for any other word."""
    word = text.strip(",-")
    digits = word.replace(",", "")
    if digits.isascii() and digits.isdigit():
        return int(digits)
    return _SPELLED.get(word)
