"""Texts that match a pattern or a grammar, as short as can be.

The grammar room reads the patterns. EBNF, the form in which an engine gets a grammar, becomes patterns, one for each
rule. Nothing is ever matched against a pattern here, so no pattern can be slow.
"""

import json
import re
from collections.abc import Mapping
from functools import lru_cache

from service.grammar.regex import REPEATS, Ranges, Tree, inner_trees, ranges_of, unchecked_tree

MAX_CHARS = 100_000
"""The longest text that is made."""

_ROUNDS = 200
"""How often all rules are gone through: some 200 of them may each need the one behind it."""

_PICKED = "ae0A .-_@/1"
_BRACED = re.compile(r"\\[xu]\{([0-9a-fA-F]{1,6})\}")
_RULE = re.compile(r"^(\w+) ::= ", re.MULTILINE)
_PART = re.compile(r'"(?:[^"\\\n]|\\.)*"|\[(?:[^\]\\]|\\.)*\]|[A-Za-z_]\w*|\(|\s+|#[^\n]*')


@lru_cache(maxsize=64)
def matching(pattern: str) -> str:
    """A text that a regular expression matches as a whole. Raises ValueError for one that can't be read."""
    return _text_of({"root": _read_regex(pattern)})


@lru_cache(maxsize=64)
def derived(grammar: str) -> str:
    """A text that the rule `root` of an EBNF grammar derives. Raises ValueError for one that can't be read.

    Each rule is a regex but for its texts and the names of other rules.
    """
    _, *parts = _RULE.split(grammar)
    groups = _read_regex("".join(f"({_PART.sub(_as_regex, rule)})" for rule in parts[1::2]))
    _name_rules(groups)
    return _text_of({name: inner_trees(*group)[0] for name, group in zip(parts[::2], groups, strict=True)})


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
            tree[place] = ("RULE", "".join(chr(code) for _, code in argument[1]))
        for inner in inner_trees(kind, argument):
            _name_rules(inner)


def _text_of(rules: dict[str, Tree]) -> str:
    """The shortest text of the rule `root`. Raises ValueError where there is none, or it would be too long."""
    texts, before = dict[str, str](), None
    try:
        for _ in range(_ROUNDS):
            if texts == before:
                break
            before = dict(texts)
            for name in reversed(rules):
                if (text := _shortest(rules[name], texts)) is not None:
                    texts[name] = text
        return texts["root"]
    except (LookupError, RecursionError) as error:
        raise ValueError("no text matches") from error


def _shortest(tree: Tree, rules: Mapping[str, str]) -> str | None:
    """The shortest text of a tree by the texts of rules that are known; None where one is missing."""
    texts: list[str] = []
    for kind, argument in tree:
        inner, times = inner_trees(kind, argument), 1
        if kind == "RULE":
            text = rules.get(argument)
        elif kind == "BRANCH":
            found = [each for branch in inner if (each := _shortest(branch, rules)) is not None]
            text = min(found, key=len, default=None)
        elif kind in ("AT", "SUBPATTERN", *REPEATS):
            times = argument[0] if kind in REPEATS else len(inner)
            text = _shortest(inner[0], rules) if times else ""
        elif kind in ("LITERAL", "NOT_LITERAL", "ANY", "IN"):
            text = _pick(ranges_of(kind, argument))
        else:
            raise ValueError("the pattern has something in it that is not regular")
        if text is None:
            return None
        if times * len(text) > MAX_CHARS - sum(map(len, texts)):
            raise ValueError(f"the text would have more than {MAX_CHARS} characters")
        texts.append(text * times)
    return "".join(texts)


def _pick(ranges: Ranges) -> str:
    """One of the characters, a letter or a digit where there is one."""
    if not ranges:
        raise ValueError("a class has no characters")
    low, high = ranges[0]
    within = (char for char in _PICKED if any(low <= ord(char) <= high for low, high in ranges))
    return next(within, chr(max(low, min(high, 33))))
