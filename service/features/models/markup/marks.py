"""Finds the marks among sampled ids, and the text between them.

Where a mark is one special token of the model's vocabulary, its id alone is the mark: the same spelling in ordinary
tokens is text, so nothing that a model quotes from a user acts as one. An engine gives the text of a chunk as a whole,
so here the ids and the spellings are brought together.
"""

import re
from collections.abc import Iterator, Mapping, Sequence
from typing import NamedTuple

LOOKS_LIKE_A_MARK = (
    re.compile(r"<[^<>\s]{1,62}>"),
    re.compile(r"\[(?:/?[A-Z_]{2,32}\]|gMASK\]|\|[^\[\]|\s]{1,58}\|\]|[a-z!]{0,2}~[a-z!]{0,2}[\[\]])"),
    re.compile(r"\](?:[a-z!]{0,2}~[a-z!]{0,2}[\[\]]|<\][a-z ]{1,32}\[>\[)"),
    re.compile("\uff5c[^\uff5c<>\\s]{1,62}\uff5c"),
)
"""How models spell marks: `<|im_end|>`, `</think>` or with DeepSeek's wide bars; `[INST]`, and EXAONE's `[|user|]`;
`]~b]`, `[e~[` and `]<]minimax[>[`; DSML between wide bars. One that begins with a certain character is searched ten
times as fast.
"""


LONGEST_MARK = 64
"""The most characters of a text that looks like a mark."""

SEARCHED_CHARS = 65_536
"""How much of a text is searched at once. Meanwhile no other thread goes on: for 15 ms at most, where each of the
characters may begin a mark.
"""


def like_marks(pattern: re.Pattern[str], text: str, most: int = SEARCHED_CHARS) -> Iterator[re.Match[str]]:
    """The matches of one of the patterns in a text of any length, of which `most` characters are searched at once and a
    mark more. In `]~b]~b]` it finds two, which have a bracket in common.
    """
    at = 0
    for end in range(most, len(text) + most, most):
        while (found := pattern.search(text, at, end + LONGEST_MARK)) is not None and found.start() < end:
            at = found.start() + 1
            yield found
        at = max(at, end)


class MarkedPiece(NamedTuple):
    """Some ids with their text; `mark` is set where they are one mark, whose spelling is the text."""

    ids: Sequence[int]
    text: str
    mark: bool


class TokenMarks:
    """The marks that are one token each, by their ids."""

    def __init__(self, spellings: Mapping[str, int]) -> None:
        self._spellings = {id: spelling for spelling, id in spellings.items()}
        self.absent_from = frozenset(self._spellings).isdisjoint

    def split(self, ids: Sequence[int], text: str) -> Iterator[MarkedPiece]:
        """The pieces of a chunk in order. Their texts are the chunk's, and a mark's spelling where that was left out.

        Where ordinary tokens of a chunk spell its mark, too, the first spelling is taken for the mark.
        """
        begin = at = 0
        for place, id in enumerate(ids):
            if id not in self._spellings:
                continue
            spelling = self._spellings[id]
            start = text.find(spelling, at)
            end = start + len(spelling)
            if start < 0:
                start = end = len(text) if place > begin and place == len(ids) - 1 else at
            if place > begin or start > at:
                yield MarkedPiece(ids[begin:place], text[at:start], False)
            yield MarkedPiece((id,), spelling, True)
            begin, at = place + 1, end
        if begin < len(ids) or at < len(text):
            yield MarkedPiece(ids[begin:], text[at:], False)
