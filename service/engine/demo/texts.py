"""Texts that match a pattern: of the user's words where they fit, and else as short as can be."""

import math
from collections.abc import Iterator, Mapping

from service.engine.demo.patterns import Again, Chars, Choice, Node, Row, Rule, outside, read_grammar, read_regex

SAMPLE_CHARS = 20_000
"""The longest text that is made; a grammar that needs more is given up."""

_ROUNDS = 200
_PICKED = "ae0A .-_@/1"


def matching(pattern: str, words: str = "") -> str:
    """A text that a regular expression matches as a whole. Raises ValueError for one that can't be read."""
    return _Maker({}, words).text(read_regex(pattern))


def derived(grammar: str, words: str = "") -> str:
    """A text that the rule `root` of an EBNF grammar derives. Raises ValueError for one that can't be read."""
    rules = read_grammar(grammar)
    return _Maker(rules, words).text(rules["root"])


class _Maker:
    """Makes texts of the rules: shortest where the words say nothing."""

    def __init__(self, rules: Mapping[str, Node], words: str) -> None:
        self._rules = rules
        self._words = words
        self._cost: dict[str, float] = dict.fromkeys(rules, math.inf)
        self._left = SAMPLE_CHARS
        for _ in range(min(len(rules), _ROUNDS)):
            before = dict(self._cost)
            for name, node in rules.items():
                self._cost[name] = self._least(node)
            if self._cost == before:
                break

    def text(self, node: Node, depth: int = 0) -> str:
        """A text of a node. Raises ValueError where there is none, or it would be too long."""
        self._left -= 1
        if self._left < 0 or self._least(node) == math.inf:
            raise ValueError(f"no text of at most {SAMPLE_CHARS} characters matches")
        match node:
            case Chars():
                return _pick(node) if node.ranges or node.negated else ""
            case Row(parts):
                return "".join([self.text(part, depth) for part in parts])
            case Choice(options):
                said = next((text for option in options if (text := _literal(option)) and text in self._words), None)
                return self.text(min(options, key=self._least), depth + 1) if said is None else said
            case Again(Chars() as chars, least, most) if most:
                return self._run(chars, least, most)
            case Again(part, least):
                return "".join([self.text(part, depth + 1) for _ in range(least)])
            case Rule(name):
                return self.text(self._rules[name], depth + 1)

    def _run(self, chars: Chars, least: int, most: float) -> str:
        """Characters in a row: a run of the words, a whole one if it fits, or made-up ones."""
        if least > self._left:
            raise ValueError(f"no text of at most {SAMPLE_CHARS} characters matches")
        self._left -= least
        runs = [run for run in _runs(self._words, chars) if len(run) >= max(least, 1) and run.strip()]
        whole = [run for run in runs if len(run) <= most]
        if whole or runs:
            return (whole or runs)[0][: int(min(most, SAMPLE_CHARS))]
        return self.text(chars) * least if least else ""

    def _least(self, node: Node) -> float:
        """About how long the shortest text of a node is; infinity where none is known yet."""
        match node:
            case Chars():
                return 1
            case Row(parts):
                return sum(self._least(part) for part in parts)
            case Choice(options):
                return min(self._least(option) for option in options)
            case Again(part, least):
                return least * self._least(part) if least else 0
            case Rule(name):
                return 1 + self._cost.get(name, math.inf)


def _pick(chars: Chars) -> str:
    """One of the characters, a letter or a digit where there is one."""
    picked = next((char for char in _PICKED if char in chars), None)
    if picked is None:
        allowed = outside(chars.ranges) if chars.negated else chars.ranges
        picked = chr(max(allowed[0][0], min(allowed[0][1], 33)))
    return picked


def _literal(node: Node) -> str:
    """The text of a node that has only one; empty for any other."""
    match node:
        case Chars(((low, high),), False) if low == high:
            return chr(low)
        case Row(parts):
            texts = [_literal(part) for part in parts]
            return "".join(texts) if all(texts) else ""
        case _:
            return ""


def _runs(words: str, chars: Chars) -> Iterator[str]:
    """The longest stretches of the words that are of such characters."""
    run = ""
    for char in words:
        if char in chars:
            run += char
        elif run:
            yield run
            run = ""
    if run:
        yield run
