"""Texts that match a pattern or a grammar: of the user's words where they fit, and else as short as can be.

The grammar room reads the patterns. EBNF, the form in which an engine gets a grammar, becomes patterns, one for each
rule. Nothing is ever matched against a pattern here, so no pattern can be slow.
"""

import json
import math
import re
from functools import lru_cache
from itertools import groupby
from typing import Any

from service.grammar.regex import REPEATS, Ranges, Tree, inner_trees, ranges_of, unchecked_tree

STEPS, WORDS_CHARS = 10_000, 1000
"""The most steps that make a text, some 2 µs each, and how much of the words is looked through."""

DEPTH = 200
"""The deepest nesting of groups and rules."""

_ROUNDS = 200
_PICKED = "ae0A .-_@/1"
_CHARACTERS = ("LITERAL", "NOT_LITERAL", "ANY", "IN")
_BRACED = re.compile(r"\\[xu]\{([0-9a-fA-F]{1,6})\}")
_RULE = re.compile(r"^(\w+) ::= ", re.MULTILINE)
_PART = re.compile(r'"(?:[^"\\\n]|\\.)*"|\[(?:[^\]\\]|\\.)*\]|[A-Za-z_]\w*|\(|\s+|#[^\n]*')


@lru_cache(maxsize=64)
def matching(pattern: str, words: str = "") -> str:
    """A text that a regular expression matches as a whole. Raises ValueError for one that can't be read."""
    return _Maker({"root": _read_regex(pattern)}, words).text([("RULE", "root")])


@lru_cache(maxsize=64)
def derive(grammar: str, words: str = "") -> str:
    """A text that the rule `root` of an EBNF grammar derives. Raises ValueError for one that can't be read.

    Each rule is a regex but for its texts and the names of other rules.
    """
    _, *parts = _RULE.split(grammar)
    groups = _read_regex("".join(f"({_PART.sub(_as_regex, rule)})" for rule in parts[1::2]))
    _name_rules(groups)
    rules = {name: inner_trees(*group)[0] for name, group in zip(parts[::2], groups, strict=True)}
    return _Maker(rules, words).text([("RULE", "root")])


def _read_regex(pattern: str) -> Tree:
    try:
        return unchecked_tree(_BRACED.sub(lambda code: rf"\U{code[1]:0>8}", pattern))
    except (re.error, OverflowError, RecursionError) as error:
        raise ValueError(f"the pattern can't be read: {error}") from error


def _as_regex(part: re.Match[str]) -> str:
    """A part of a rule as it stands in a regex: a rule's name in a lookahead, which has no other use here."""
    match part[0][0]:
        case '"':
            return f"(?:{re.escape(json.loads(part[0]))})"
        case "[":
            return part[0]
        case "(":
            return "(?:"
        case letter:
            return f"(?={part[0]})" if letter.isalpha() or letter == "_" else ""


def _name_rules(tree: Tree) -> None:
    """Put what refers to a rule where its name was read in a lookahead."""
    for place, (kind, argument) in enumerate(tree):
        if kind == "ASSERT":
            tree[place] = ("RULE", _literal(argument[1]))
        for inner in inner_trees(kind, argument):
            _name_rules(inner)


class _Maker:
    """Makes texts of the rules: the shortest ones where no words fit."""

    def __init__(self, rules: dict[str, Tree], words: str) -> None:
        self._rules = rules
        self._words = words[:WORDS_CHARS]
        self._left = STEPS
        self._cost: dict[str, float] = dict.fromkeys(rules, math.inf)
        for _ in range(min(len(rules), _ROUNDS)):
            before = dict(self._cost)
            for name in reversed(rules):
                self._cost[name] = self._least(rules[name])
            if self._cost == before:
                break

    def text(self, tree: Tree, depth: int = 0) -> str:
        """A text of a tree. Raises ValueError where there is none, or it would be too long."""
        if depth > DEPTH or self._least(tree) == math.inf:
            raise ValueError("no text matches")
        return "".join([self._one(kind, argument, depth + 1) for kind, argument in tree])

    def _one(self, kind: str, argument: Any, depth: int) -> str:
        self._left -= 1
        if self._left < 0:
            raise ValueError(f"no text is found in {STEPS} steps")
        inner = inner_trees(kind, argument)
        if kind in _CHARACTERS:
            return _pick(ranges_of(kind, argument))
        if kind == "RULE":
            return self.text(self._rules[argument], depth)
        if kind == "BRANCH":
            said = next((text for branch in inner if (text := _literal(branch)) and text in self._words), None)
            return self.text(min(inner, key=self._least), depth) if said is None else said
        if kind in REPEATS:
            least, most = argument[:2]
            ranges = _characters(inner[0])
            if most and ranges is not None and (run := self._run(ranges, least, most)):
                return run
            return "".join([self.text(inner[0], depth) for _ in range(least)])
        if kind in ("AT", "SUBPATTERN"):
            return self.text(inner[0], depth) if inner else ""
        raise ValueError("the pattern has something in it that is not regular")

    def _run(self, ranges: Ranges, least: int, most: int) -> str:
        """A stretch of the words that are of such characters, a whole one if one fits; empty where there is none."""
        runs = [run for run in _runs(self._words, ranges) if len(run) >= least]
        return next((run for run in runs if len(run) <= most), runs[0] if runs else "")[:most]

    def _least(self, tree: Tree) -> float:
        """About how long the shortest text of a tree is; infinity where none is known yet."""
        least = 0.0
        for kind, argument in tree:
            if kind == "RULE":
                least += 1 + self._cost.get(argument, math.inf)
            elif kind in REPEATS:
                least += argument[0] * self._least(argument[2]) if argument[0] else 0
            elif kind != "AT":
                least += min(map(self._least, inner_trees(kind, argument)), default=1)
        return least


@lru_cache(maxsize=64)
def _runs(words: str, ranges: Ranges) -> list[str]:
    """The longest stretches of the words that are of such characters."""
    runs = ("".join(run) for fits, run in groupby(words, lambda char: _within(char, ranges)) if fits)
    return [run for run in runs if run.strip()]


def _pick(ranges: Ranges) -> str:
    """One of the characters, a letter or a digit where there is one."""
    if not ranges:
        raise ValueError("a class has no characters")
    low, high = ranges[0]
    return next((char for char in _PICKED if _within(char, ranges)), chr(max(low, min(high, 33))))


def _within(char: str, ranges: Ranges) -> bool:
    return any(low <= ord(char) <= high for low, high in ranges)


def _characters(tree: Tree) -> Ranges | None:
    """The characters that a tree of one character may be; None for any other tree."""
    while len(tree) == 1 and tree[0][0] == "SUBPATTERN":
        tree = tree[0][1][3]
    return ranges_of(*tree[0]) if len(tree) == 1 and tree[0][0] in _CHARACTERS else None


def _literal(tree: Tree) -> str:
    """The text of a tree that has only one; empty for any other."""
    texts = [_characters([each]) for each in tree]
    single = [chr(each[0][0]) for each in texts if each and len(each) == 1 and each[0][0] == each[0][1]]
    return "".join(single) if len(single) == len(tree) else ""
