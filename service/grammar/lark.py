"""Lark's notation of grammars, read into trees: the same kind that a pattern's parser gives, with names besides.

Lark itself is not asked. It writes each choice of a rule out, in times that double with every `?`, its terminals copy
each other, and its patterns for strings backtrack for ever. Here everything is read once, from left to right, and a
grammar is as long as its text. The terminals of lark's library `common` are kept as a text in the same notation.
"""

import re
from ast import literal_eval
from collections.abc import Callable, Mapping
from functools import cache
from typing import Any, TypeVar

import msgspec

from service.grammar.regex import MAX_DEPTH, MOST, Tree, has_anchors, read_pattern

T = TypeVar("T")

MAX_EXPANDED = 256
"""The largest count of `~`."""

_TIMES = {"?": (0, 1), "*": (0, MOST), "+": (1, MOST)}

COMMON = "common."
"""The prefix of the library's names."""

_LIBRARY = r"""
DIGIT: "0".."9"
HEXDIGIT: "a".."f" | "A".."F" | DIGIT
INT: DIGIT+
SIGNED_INT: ["+" | "-"] INT
DECIMAL: INT "." INT? | "." INT
_EXP: ("e" | "E") SIGNED_INT
FLOAT: INT _EXP | DECIMAL _EXP?
SIGNED_FLOAT: ["+" | "-"] FLOAT
NUMBER: FLOAT | INT
SIGNED_NUMBER: ["+" | "-"] NUMBER
ESCAPED_STRING: /"([^"\\\n]|\\.)*"/
LCASE_LETTER: "a".."z"
UCASE_LETTER: "A".."Z"
LETTER: UCASE_LETTER | LCASE_LETTER
WORD: LETTER+
CNAME: ("_" | LETTER) ("_" | LETTER | DIGIT)*
WS_INLINE: (" " | /\t/)+
WS: /[ \t\f\r\n]/+
CR: /\r/
LF: /\n/
NEWLINE: (CR? LF)+
SH_COMMENT: /#[^\n]*/
CPP_COMMENT: /\/\/[^\n]*/
C_COMMENT: "/*" /(.|\n)*?/ "*/"
SQL_COMMENT: /--[^\n]*/
"""
"""Lark's library `common`. A string ends at the first quote that isn't escaped, as lark's lexer reads it."""

MAX_WORDS = 4_096
"""The most words, marks and ends of lines of a grammar."""

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


class Definition(msgspec.Struct, frozen=True):
    """A rule or a terminal. `params` are a template's.

    Besides a pattern's operations its tree has ("NAME", a rule, a terminal or a parameter), ("USE", [the name of a
    template, its arguments as trees]), and ("TEXT", the tree of a terminal without a name).
    """

    tree: Tree
    params: tuple[str, ...] = ()


class Definitions(msgspec.Struct, frozen=True):
    """The definitions of a grammar's text, by name, and the trees of the ignored terminals."""

    named: Mapping[str, Definition]
    ignored: list[Tree]


def read_lark(text: str) -> Definitions:
    """The definitions of a grammar, in at most some 10 ms. Raises ValueError, re.error and InvalidRequest."""
    return _Reader(text).read()


@cache
def _common() -> Mapping[str, Definition]:
    return _Reader(_LIBRARY, COMMON).read().named


class _Reader:
    """The words of a grammar, and the place of its reader. The `prefix` stands before the grammar's own names."""

    def __init__(self, text: str, prefix: str = "") -> None:
        self._prefix = prefix
        self._words = words_of(text)
        self._place = 0
        self._depth = 0
        self._named: dict[str, Definition] = {}
        self._ignored: list[Tree] = []

    def read(self) -> Definitions:
        while (kind := self._kind) != "":
            if kind == "END":
                self._next()
            elif kind == "STATEMENT":
                self._statement()
            else:
                self._definition()
        return Definitions(self._named, self._ignored)

    # --- words ---

    @property
    def _kind(self) -> str:
        return self._words[self._place][0]

    @property
    def _word(self) -> str:
        return self._words[self._place][1]

    def _next(self, *kinds: str) -> str:
        """The next word, which is of one of these kinds."""
        kind, word, line = self._words[self._place]
        if kinds and kind not in kinds:
            found = repr(word[:20]) if word.strip() else "the end of a line"
            raise ValueError(f"{found} in line {line} is not expected there")
        self._place += 1
        return word

    def _mark(self, *marks: str) -> bool:
        """Take the next word if it is one of these marks; returns whether it was."""
        found = self._kind == "MARK" and self._word in marks
        self._place += found
        return found

    def _expect(self, mark: str) -> None:
        if not self._mark(mark):
            raise ValueError(f"'{mark}' is missing in line {self._words[self._place][2]}")

    def _elements(self, read: Callable[[], T], closing: str) -> list[T]:
        """The elements between commas, up to a closing mark."""
        found = [read()]
        while self._mark(","):
            found.append(read())
        self._expect(closing)
        return found

    # --- statements ---

    def _statement(self) -> None:
        statement = self._next()
        if statement == "%ignore":
            self._ignored.append(self._choices())
        elif statement == "%import":
            self._import()
        else:
            raise ValueError(f"of statements, only %ignore and %import can be enforced, not {statement[:20]}")
        self._next("END")

    def _import(self) -> None:
        self._mark(".")
        if self._next("RULE", "TERMINAL") != "common":
            raise ValueError("nothing but 'common' can be imported")
        if self._mark("("):
            found = {name: name for name in self._elements(lambda: self._next("TERMINAL", "RULE"), ")")}
        else:
            self._expect(".")
            name = self._next("TERMINAL", "RULE")
            found = {name: name}
            if self._kind == "TO":
                self._next()
                found = {name: self._next("TERMINAL")}
        for name, known in found.items():
            if f"{COMMON}{name}" not in _common():
                raise ValueError(f"'common' has no {name[:40]!r}")
            self._define(known, Definition([("NAME", f"{COMMON}{name}")]))
        self._named |= _common()

    def _definition(self) -> None:
        if self._mark("!", "?"):
            self._mark("!", "?")
        name = self._next("RULE", "TERMINAL")
        params = self._elements(lambda: self._next("RULE"), "}") if self._mark("{") else []
        if self._mark("."):
            self._next("NUMBER")
        self._expect(":")
        self._define(f"{self._prefix}{name}", Definition(self._choices(), tuple(params)))
        self._next("END")

    def _define(self, name: str, definition: Definition) -> None:
        if name in self._named or name.startswith("__"):
            raise ValueError(f"{name[:40]!r} is defined twice, or reserved")
        self._named[name] = definition

    # --- expressions ---

    def _choices(self) -> Tree:
        self._depth += 1
        if self._depth > MAX_DEPTH:
            raise ValueError(f"its groups are nested too deeply, at most {MAX_DEPTH} are allowed")
        branches = [self._sequence()]
        while self._kind == "OR":
            self._next()
            branches.append(self._sequence())
        self._depth -= 1
        return branches[0] if len(branches) == 1 else [("BRANCH", [None, branches])]

    def _sequence(self) -> Tree:
        tree: Tree = []
        while self._kind in ("TEXT", "PATTERN", "TERMINAL", "RULE") or (self._kind == "MARK" and self._word in "(["):
            tree.append(self._times(self._atom()))
        if self._kind == "TO":
            self._next()
            self._next("RULE")
        return tree

    def _times(self, tree: Tree) -> tuple[str, Any]:
        """An atom with the sign behind it. (A `?` before a name begins another rule only at a line's beginning.)"""
        least, most = 1, 1
        if self._kind == "MARK" and self._word in _TIMES:
            least, most = _TIMES[self._next()]
        elif self._mark("~"):
            least = most = self._count()
            if self._kind == "RANGE":
                self._next()
                most = self._count()
        if most < least:
            raise ValueError(f"~{least}..{most} is no range")
        if (least, most) == (1, 1):
            return tree[0] if len(tree) == 1 else ("SUBPATTERN", [None, 0, 0, tree])
        return ("MAX_REPEAT", [least, most, tree])

    def _count(self) -> int:
        word = self._next("NUMBER")
        count = int(word) if len(word) < 10 else MAX_EXPANDED + 1
        if not 0 <= count <= MAX_EXPANDED:
            raise ValueError(f"it repeats something more than {MAX_EXPANDED} times")
        return count

    def _atom(self) -> Tree:
        if self._mark("("):
            inner = self._choices()
            self._expect(")")
            return inner
        if self._mark("["):
            inner = self._choices()
            self._expect("]")
            return [("MAX_REPEAT", [0, 1, inner])]
        kind, word = self._kind, self._next()
        if kind == "PATTERN":
            return [("TEXT", pattern_of(word))]
        if kind == "TEXT":
            if self._kind != "RANGE":
                return [("TEXT", text_of(word))]
            self._next()
            return [("TEXT", range_of(word, self._next("TEXT")))]
        if kind == "TERMINAL" or not self._mark("{"):
            return [("NAME", f"{self._prefix}{word}")]
        return [("USE", [word, self._elements(self._atom, "}")])]


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


def _unescape(text: str) -> str:
    """A literal as lark reads it: escapes that Python doesn't know stay as they are, for the pattern's parser."""

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
    text = _unescape(word[1 : -2 if any_case else -1]).replace("\\\\", "\\")
    if not text:
        raise ValueError("a text in it is empty")
    if not any_case:
        return [("LITERAL", ord(letter)) for letter in text]
    cases = [{ord(each) for each in (letter, letter.lower(), letter.upper()) if len(each) == 1} for letter in text]
    return [("IN", tuple((code, code) for code in sorted(codes))) for codes in cases]


def range_of(first: str, last: str) -> Tree:
    low, high = _unescape(first[1:-1]).replace("\\\\", "\\"), _unescape(last[1:-1]).replace("\\\\", "\\")
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
    tree = read_pattern(_unescape(word[1:end]).replace("\\/", "/"), "", dot_is_all="s" in flags)
    if has_anchors(tree):
        raise ValueError("anchors such as ^ and $ can't be enforced in a grammar")
    return tree
