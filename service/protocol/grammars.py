"""The grammars of custom tools: which regexes and Lark grammars can be held, and how an engine is told of them.

A Lark grammar is read by lark itself and written again in xgrammar's EBNF: rules as they are, each terminal as a rule
of characters, with what is ignored behind it. The two agree on which texts match; lark's rules of which terminal wins
where several would do have no part in that.
"""

import re
from collections.abc import Iterable, Sequence
from functools import lru_cache
from importlib import import_module
from typing import Any

import msgspec
from lark.exceptions import LarkError
from lark.lexer import PatternStr

from service.protocol.earley import Rules, add_pattern, productive
from service.protocol.errors import InvalidRequest, shown
from service.protocol.regexes import Tree, ebnf, read_pattern, whole

MAX_GRAMMAR_CHARS = 32_768
MAX_RULES = 1024
"""How many rules a grammar may come to, once each choice and repetition is one of its own."""

GRAMMARS_CACHED = 32

_loader: Any = import_module("lark.load_grammar")

_STATEMENT = re.compile(r"^\s*%(\w+)\s*(.*)$", re.MULTILINE)
_COMMON = re.compile(r"common\s*(\.\s*\w+|\()")
_MOST_EXPANDED = re.compile(r"~\s*(\d+)(?:\s*\.\.\s*(\d+))?")
MAX_EXPANDED = 256
"""The largest count of `~`: lark writes each one out."""


def check_regex(pattern: str, where: str) -> str:
    """The regex, which stands at the parameter `where`, as it is held: as one that the whole text matches.

    Raises InvalidRequest.
    """
    return whole(pattern, where)


def ebnf_of(lark: str, where: str) -> str:
    """A Lark grammar, which stands at the parameter `where`, in xgrammar's EBNF. Raises InvalidRequest."""
    if len(lark) > MAX_GRAMMAR_CHARS:
        raise _refusal(lark, where, f"It has {len(lark)} characters, at most {MAX_GRAMMAR_CHARS} are allowed")
    for name, rest in _STATEMENT.findall(lark):
        if name != "ignore" and not (name == "import" and _COMMON.match(rest)):
            raise _refusal(f"%{name} {rest}", where, "Of statements, only %ignore and %import of 'common' can be held")
    if any(int(least) > MAX_EXPANDED or int(most or 0) > MAX_EXPANDED for least, most in _MOST_EXPANDED.findall(lark)):
        raise _refusal(lark, where, f"It repeats something more than {MAX_EXPANDED} times")
    try:
        written = _ebnf_of(lark)
        if not productive(rules_of(lark), "root"):
            raise ValueError("no text matches it, as its rules never come to an end")
        return written
    except InvalidRequest as refused:  # a terminal's pattern, which has no place of its own
        raise _refusal(lark, where, refused.message) from None
    except (LarkError, re.error, ValueError, AssertionError, RecursionError) as error:
        reason = " ".join(str(error).split()) or type(error).__name__
        raise _refusal(lark, where, f"It can't be read: {shown(reason)}") from None


class _Grammar(msgspec.Struct, frozen=True):
    """What lark makes of a grammar: its rules, its terminals, and the names of those that are ignored."""

    rules: Sequence[Any]
    terminals: Sequence[Any]
    ignored: Sequence[str]


def _read(lark: str) -> _Grammar:
    """Raises LarkError, ValueError and what Python raises for a malformed pattern."""
    grammar, _ = _loader.load_grammar(lark, "the grammar", [], global_keep_all_tokens=True)
    terminals, rules, ignored = grammar.compile(["start"], "*")
    if not any(rule.origin.name == "start" for rule in rules):
        raise ValueError("it has no rule 'start'")
    if len(rules) > MAX_RULES:
        raise ValueError(f"it comes to {len(rules)} rules, at most {MAX_RULES} are allowed")
    used = {symbol.name for rule in rules for symbol in rule.expansion if symbol.is_term} | set(ignored)
    return _Grammar(rules, [each for each in terminals if each.name in used], ignored)


@lru_cache(maxsize=GRAMMARS_CACHED)
def _ebnf_of(lark: str) -> str:
    grammar = _read(lark)
    ignored = [_terminal(name) for name in grammar.ignored]
    names: dict[str, str] = {}
    rules: dict[str, list[str]] = {}
    for rule in grammar.rules:
        symbols = [_named(symbol, names) for symbol in rule.expansion]
        rules.setdefault(_named(rule.origin, names), []).append(" ".join(symbols) or '""')
    lines = [f"root ::= {'skipped ' if ignored else ''}{names['start']}"]
    lines += [f"{name} ::= {' | '.join(choices)}" for name, choices in rules.items()]
    behind = " skipped" if ignored else ""
    for terminal in grammar.terminals:
        lines.append(f"{_terminal(terminal.name)} ::= {ebnf(_tree(terminal.pattern))}")
        lines.append(f"{_terminal(terminal.name)}_ ::= {_terminal(terminal.name)}{behind}")
    if ignored:
        lines.append(f"skipped ::= ({' | '.join(ignored)})*")
    return "\n".join(lines) + "\n"


@lru_cache(maxsize=GRAMMARS_CACHED)
def rules_of(lark: str) -> Rules:
    """A grammar that can be held, for the recognizer; its rule "root" matches what the engine lets through."""
    grammar = _read(lark)
    names: dict[str, str] = {}
    rules: Rules = {"skipped": [()]}
    for rule in grammar.rules:
        symbols = tuple(_named(symbol, names) for symbol in rule.expansion)
        rules.setdefault(_named(rule.origin, names), []).append(symbols)
    for terminal in grammar.terminals:
        add_pattern(rules, _terminal(terminal.name), _tree(terminal.pattern))
        rules[f"{_terminal(terminal.name)}_"] = [(_terminal(terminal.name), "skipped")]
    rules["skipped"] += [("skipped", _terminal(name)) for name in grammar.ignored]
    rules["root"] = [("skipped", names["start"])]
    return rules


def _named(symbol: Any, names: dict[str, str]) -> str:
    """A symbol's name in the EBNF: a rule's is a number, as lark's own have signs in them."""
    if symbol.is_term:
        return f"{_terminal(symbol.name)}_"
    return names.setdefault(str(symbol.name), f"r{len(names)}")


def _terminal(name: str) -> str:
    return f"t{''.join(letter if letter.isalnum() and letter.isascii() else f'_{ord(letter):x}_' for letter in name)}"


def _tree(pattern: Any) -> Tree:
    """A terminal's pattern. Raises InvalidRequest and ValueError."""
    flags: Iterable[str] = pattern.flags
    if isinstance(pattern, PatternStr):
        return [("IN", [("LITERAL", ord(each)) for each in _cases(letter, flags)]) for letter in pattern.value]
    if set(flags) - {"s", "u"}:
        raise ValueError(f"flags {''.join(sorted(flags))} of a terminal; write classes such as [aA]")
    return read_pattern(pattern.to_regexp(), "", flags=re.DOTALL if "s" in flags else 0)


def _cases(letter: str, flags: Iterable[str]) -> set[str]:
    return {each for each in (letter.lower(), letter.upper()) if len(each) == 1} if "i" in flags else {letter}


def _refusal(value: str, where: str, reason: str) -> InvalidRequest:
    return InvalidRequest(
        f"The grammar can't be held: '{where}' = {shown(value)}. {reason}.", code="invalid_grammar", param=where
    )
