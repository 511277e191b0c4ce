"""Long texts of the demo engine: numbers in order and stories of any length, line by line.

Everything here is a generator, so that a hundred thousand lines cost nothing before they are sent, and depends on its
arguments alone: the same request gives the same text.
"""

import re
from collections.abc import Iterator

MOST = 100_000
"""The highest number that is counted to, and the words of the longest story."""

STORY_WORDS, LONG_STORY_WORDS = 120, 1000
"""The length of a story when no length is asked for."""

SENTENCES_PER_PARAGRAPH = 5
"""The sentences after which a story has a new paragraph."""

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

_COUNT = re.compile(
    r"\bcount(?:ing)?\b[^.!?\n]{0,60}?(?:\b(?P<first>[\d,]{1,20}) )?\b(?:to|until|through) (?P<last>[\d,]{1,20})"
)
_STORY = re.compile(r"\b(?:write|tell)\b[^.!?\n]{0,60}\b(?:story|essay|poem|tale|novel|article)\b")
_LENGTH = re.compile(r"\b(?P<number>[\d,]{1,20})[ -]words?\b")


def text_for(words: str) -> tuple[str, Iterator[str]] | None:
    """The long text that `words` ask for: its name, for the thought about it, and its lines, which are written as they
    are taken. None where they ask for none.
    """
    text = " ".join(words.lower().split())
    if counting := _COUNT.search(text):
        first, last = (min(_number(counting[each] or "1"), MOST) for each in ("first", "last"))
        return f"count to {last}", count(first, last)
    length = _LENGTH.search(text)
    if length and (number := _number(length["number"])):
        return f"write {number} words", story(min(number, MOST))
    asked = _STORY.search(text)
    return asked and ("write a story", story(LONG_STORY_WORDS if "long" in asked[0] else STORY_WORDS))


def count(first: int, last: int) -> Iterator[str]:
    """The numbers from `first` to `last`, up or down, one a line."""
    for number in range(first, last, 1 if last >= first else -1):
        yield f"{number}\n"
    yield str(last)


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


def _number(digits: str) -> int:
    return int(digits.replace(",", "") or 0)
