"""Patterns: regular expressions and grammars, read into the same few nodes.

Only what constraints are made of is read; what isn't raises ValueError. Nothing here ever matches a pattern against a
text, so that no pattern can be slow.
"""

import math
import re
from collections.abc import Mapping
from dataclasses import dataclass
from functools import lru_cache

PATTERN_CHARS = 100_000
"""The longest pattern that is read."""

DEPTH = 100
"""How deep groups and rules may be nested."""

_DIGITS, _SPACES = ((48, 57),), ((9, 13), (32, 32))
_WORDS = ((48, 57), (65, 90), (95, 95), (97, 122))
_LETTERS = ((97, 122), (65, 90))
_NAMED = {"d": _DIGITS, "s": _SPACES, "w": _WORDS}
_CONTROLS = {"n": "\n", "t": "\t", "r": "\r", "f": "\f", "v": "\v", "0": "\0"}
_BOUNDS = re.compile(r"\{(\d{0,9})(?:(,)(\d{1,9})?)?\}")
_HEX = re.compile(r"x([0-9a-fA-F]{2})|u([0-9a-fA-F]{4})|U([0-9a-fA-F]{8})|[xu]\{([0-9a-fA-F]{1,6})\}")
_GROUP = re.compile(r"\?(?:[imsx]*:|P?<[A-Za-z_]\w*>)")
_NAME = re.compile(r"[A-Za-z_][\w.-]*")
_BLANK = re.compile(r"(?:\s|#[^\n]*)*")

Ranges = tuple[tuple[int, int], ...]


@dataclass(frozen=True)
class Chars:
    """One character within the ranges, or outside of them."""

    ranges: Ranges
    negated: bool = False

    def __contains__(self, char: str) -> bool:
        return any(low <= ord(char) <= high for low, high in self.ranges) is not self.negated


@dataclass(frozen=True)
class Row:
    """Parts one after the other; a row of none is the empty text."""

    parts: tuple["Node", ...] = ()


@dataclass(frozen=True)
class Choice:
    """One of the options."""

    options: tuple["Node", ...]


@dataclass(frozen=True)
class Again:
    """A part so many times; `most` may be infinity."""

    part: "Node"
    least: int
    most: float


@dataclass(frozen=True)
class Rule:
    """What a rule of the grammar says."""

    name: str


Node = Chars | Row | Choice | Again | Rule


@lru_cache(maxsize=64)
def read_regex(pattern: str) -> Node:
    """The nodes of a regular expression. Raises ValueError."""
    reader = _Reader(pattern, grammar=False)
    node = reader.choice(DEPTH)
    reader.end()
    return node


@lru_cache(maxsize=64)
def read_grammar(grammar: str) -> Mapping[str, Node]:
    """The rules of an EBNF grammar, with one named root. Raises ValueError."""
    reader = _Reader(grammar, grammar=True)
    rules: dict[str, Node] = {}
    while name := reader.rule_name():
        rules[name] = reader.choice(DEPTH)
    reader.end()
    if "root" not in rules:
        raise ValueError("the grammar has no rule named root")
    return rules


class _Reader:
    """A cursor over a regular expression, or over a grammar, where blanks separate and strings are quoted."""

    def __init__(self, text: str, *, grammar: bool) -> None:
        if len(text) > PATTERN_CHARS:
            raise ValueError(f"a pattern may have {PATTERN_CHARS} characters at most")
        self._text = text
        self._place = 0
        self._grammar = grammar

    def end(self) -> None:
        """Raise ValueError unless everything is read."""
        if self._peek():
            raise ValueError(f"{self._peek()!r} at {self._place} can't be read")

    def rule_name(self) -> str:
        """The name before the next `::=`; empty where no rule begins."""
        match = self._rule()
        if match is None:
            return ""
        self._place = match.end()
        return match[1]

    def choice(self, depth: int) -> Node:
        """Rows with `|` between them."""
        if depth == 0:
            raise ValueError(f"groups may be nested {DEPTH} deep at most")
        options = [self._row(depth)]
        while self._take("|"):
            options.append(self._row(depth))
        return options[0] if len(options) == 1 else Choice(tuple(options))

    def _row(self, depth: int) -> Node:
        parts: list[Node] = []
        while self._peek() not in ("", "|", ")") and not (self._grammar and self._rule()):
            parts.append(self._counted(self._single(depth)))
        return parts[0] if len(parts) == 1 else Row(tuple(parts))

    def _single(self, depth: int) -> Node:
        char = self._next()
        match char:
            case "(":
                return self._group(depth)
            case "[":
                return self._class()
            case '"' if self._grammar:
                return self._string()
            case "\\" if not self._grammar:
                return self._escape()
            case "." if not self._grammar:
                return Chars(((10, 10),), negated=True)
            case "^" | "$" if not self._grammar:
                return Row()
            case "*" | "+" | "?" | "{" if self._grammar or char != "{":
                raise ValueError(f"{char!r} at {self._place - 1} has nothing to repeat")
            case _ if self._grammar:
                self._place -= 1
                name = _NAME.match(self._text, self._place)
                if name is None:
                    raise ValueError(f"{char!r} at {self._place} can't be read")
                self._place = name.end()
                return Rule(name[0])
            case _:
                return _char(char)

    def _group(self, depth: int) -> Node:
        if not self._grammar and self._text.startswith("?", self._place):
            opening = _GROUP.match(self._text, self._place)
            if opening is None:
                raise ValueError(f"the group at {self._place} is of a kind that can't be made")
            self._place = opening.end()
        node = self.choice(depth - 1)
        if not self._take(")"):
            raise ValueError("a group isn't closed")
        return node

    def _counted(self, part: Node) -> Node:
        while True:
            bounds = _BOUNDS.match(self._text, self._place)
            least, most = 0, math.inf
            if bounds and bounds[0] not in ("{}", "{,}"):
                self._place = bounds.end()
                least = int(bounds[1] or 0)
                most = least if not bounds[2] else int(bounds[3]) if bounds[3] else math.inf
            elif self._take("?", blanks=False):
                most = 1
            elif self._take("+", blanks=False):
                least = 1
            elif not self._take("*", blanks=False):
                return part
            part = Again(part, least, most)
            if not self._grammar:
                self._take("?")

    def _string(self) -> Node:
        parts: list[Node] = []
        while (char := self._next(blanks=False)) != '"':
            parts.append(self._escape() if char == "\\" else _char(char))
        return Row(tuple(parts))

    def _class(self) -> Node:
        negated = self._take("^", blanks=False)
        ranges: list[tuple[int, int]] = []
        while (char := self._next(blanks=False)) != "]" or not (ranges or self._grammar):
            low = self._escape() if char == "\\" else _char(char)
            following = self._text[self._place : self._place + 2]
            if following[:1] == "-" and following[1:] not in ("]", "") and low.ranges[0][0] == low.ranges[-1][1]:
                self._place += 1
                char = self._next(blanks=False)
                high = self._escape() if char == "\\" else _char(char)
                ranges.append((low.ranges[0][0], high.ranges[-1][1]))
            else:
                ranges += outside(low.ranges) if low.negated else low.ranges
        return Chars(tuple(ranges), negated)

    def _escape(self) -> Chars:
        code = _HEX.match(self._text, self._place)
        if code:
            self._place = code.end()
            return _char(chr(int("".join(code.groups("")), 16)))
        char = self._next(blanks=False)
        if char in ("p", "P") and self._take("{", blanks=False):
            end = self._text.index("}", self._place)
            self._place = end + 1
            return Chars(_LETTERS, negated=char == "P")
        if char.lower() in _NAMED:
            return Chars(_NAMED[char.lower()], negated=char.isupper())
        if char in "bBAzZ" and not self._grammar:
            return Chars(())
        return _char(_CONTROLS.get(char, char))

    def _rule(self) -> re.Match[str] | None:
        self._skip()
        return _DEFINED.match(self._text, self._place)

    def _peek(self) -> str:
        self._skip()
        return self._text[self._place : self._place + 1]

    def _next(self, *, blanks: bool = True) -> str:
        if blanks:
            self._skip()
        if self._place >= len(self._text):
            raise ValueError("the pattern ends in the middle")
        self._place += 1
        return self._text[self._place - 1]

    def _take(self, char: str, *, blanks: bool = True) -> bool:
        if blanks:
            self._skip()
        if not self._text.startswith(char, self._place):
            return False
        self._place += 1
        return True

    def _skip(self) -> None:
        if self._grammar:
            blank = _BLANK.match(self._text, self._place)
            self._place = blank.end() if blank else self._place


_DEFINED = re.compile(r"([A-Za-z_][\w.-]*)\s*::=")


def _char(char: str) -> Chars:
    return Chars(((ord(char), ord(char)),))


def outside(ranges: Ranges) -> Ranges:
    """What lies between ranges, which are in order."""
    edges = [-1, *(edge for low, high in ranges for edge in (low, high)), 0x110000]
    return tuple((low + 1, high - 1) for low, high in zip(edges[::2], edges[1::2], strict=True) if low + 1 < high)
