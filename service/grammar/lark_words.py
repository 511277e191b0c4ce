"""The words of Lark's notation, and what its texts and patterns mean.

Each word is found by one look from left to right: no sign is looked at twice, whatever the text.
"""

import re
from ast import literal_eval

from service.grammar.regex import Tree, has_anchors, read_pattern

MAX_WORDS = 4_096
"""How many words, marks and ends of lines a grammar may have."""

_STRING = r'"(?:[^"\\\n]|\\.)*"'
_TOKENS = re.compile(
    "|".join(
        (
            r"(?P<SKIP>[ \t]+|\s*(?://|\#)[^\n]*|\\[ ]*\n)",
            r"(?P<OR>(?:\r?\n\s*)?\|)",
            r"(?P<END>\r?\n\s*)",
            rf"(?P<TEXT>{_STRING}i?)",
            r"(?P<PATTERN>/(?!/)(?:[^/\\\n]|\\.)*/[imslux]*)",
            r"(?P<TERMINAL>_?[A-Z][_A-Z0-9]*)",
            r"(?P<RULE>_?[a-z][_a-z0-9]*)",
            r"(?P<NUMBER>[+-]?\d+)",
            r"(?P<TO>->)",
            r"(?P<RANGE>\.\.)",
            r"(?P<STATEMENT>%\w+)",
            r"(?P<MARK>[][(){}:,.~*+!?])",
        )
    )
)
_ESCAPE = re.compile(r"\\(?:U[0-9A-Fa-f]{8}|u[0-9A-Fa-f]{4}|x[0-9A-Fa-f]{2}|[nftr\"\\]|.)", re.DOTALL)
_KNOWN_ESCAPES = "Uuxnftr"


def words_of(text: str) -> list[tuple[str, str, int]]:
    """The words with their kinds and lines; behind the last stands one of no kind."""
    words: list[tuple[str, str, int]] = []
    text, place, line = f"{text}\n", 0, 1
    while place < len(text):
        found = _TOKENS.match(text, place)
        if found is None:
            raise ValueError(f"{text[place : place + 10]!r} in line {line} can't be read")
        kind, word = found.lastgroup or "", found[0]
        if kind != "SKIP":
            words.append((kind, word, line))
            if len(words) > MAX_WORDS:
                raise ValueError(f"it has more than {MAX_WORDS} words and signs")
        line += word.count("\n")
        place = found.end()
    return [*words, ("", "", line)]


def _unescaped(text: str) -> str:
    """A literal as lark reads it: escapes that Python doesn't know stay as they are, for a pattern to make out."""

    def one(found: re.Match[str]) -> str:
        escape = found[0]
        if escape == '\\"':
            return '"'
        if escape[1] not in _KNOWN_ESCAPES:
            return escape
        try:
            letter: str = literal_eval(f"'{escape}'")
        except SyntaxError:
            letter = ""
        if not letter or "\ud800" <= letter <= "\udfff":
            raise ValueError(f"the escape {escape} is cut short, or of no character")
        return letter

    return _ESCAPE.sub(one, text)


def text_of(word: str) -> Tree:
    any_case = word.endswith("i")
    text = _unescaped(word[1 : -2 if any_case else -1]).replace("\\\\", "\\")
    if not text:
        raise ValueError("a text in it is empty")
    return [("IN", _cases(letter)) if any_case else ("LITERAL", ord(letter)) for letter in text]


def _cases(letter: str) -> tuple[tuple[int, int], ...]:
    codes = {ord(each) for each in (letter, letter.lower(), letter.upper()) if len(each) == 1}
    return tuple((code, code) for code in sorted(codes))


def range_of(first: str, last: str) -> Tree:
    low, high = _unescaped(first[1:-1]).replace("\\\\", "\\"), _unescaped(last[1:-1]).replace("\\\\", "\\")
    if len(low) != 1 or len(high) != 1 or low > high:
        raise ValueError(f"{first[:20]}..{last[:20]} is no range of characters")
    return [("IN", ((ord(low), ord(high)),))]


def pattern_of(word: str) -> Tree:
    end = word.rindex("/")
    flags = set(word[end + 1 :])
    if flags - {"s", "u"}:
        raise ValueError(f"flags {''.join(sorted(flags))} of a terminal; write classes such as [aA]")
    if end == 1:
        raise ValueError("a pattern in it is empty")
    tree = read_pattern(_unescaped(word[1:end]).replace("\\/", "/"), "", dot_is_all="s" in flags)
    if has_anchors(tree):
        raise ValueError("anchors such as ^ and $ can't be enforced in a grammar")
    return tree
