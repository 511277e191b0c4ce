"""Whether a text matches a grammar: Earley's recognizer, character by character, with a bound on its work.

It never backtracks, so no grammar and no text can make it run for ever; what is too much is said to be so.
"""

from collections.abc import Callable, Mapping, Sequence

from service.protocol.regexes import MOST, REPEATS, Ranges, Tree, ranges_of

MAX_STEPS = 500_000
"""How many steps of all rules at all characters are looked at: about half a second."""

Symbol = str | tuple[tuple[int, int], ...]
"""A rule's name, or the characters that one place may have, as ranges of code points."""

Rules = dict[str, list[tuple[Symbol, ...]]]


class TooMuchWork(Exception):
    """The text is too long for how ambiguous its grammar is."""


def add_pattern(rules: Rules, name: str, tree: Tree) -> None:
    """Add a rule that matches what a pattern does."""
    symbols: list[Symbol] = []
    for place, (kind, argument) in enumerate(tree):
        inner = f"{name}.{place}"
        if kind == "AT":
            continue
        if kind in REPEATS:
            add_pattern(rules, inner, argument[2])
            symbols += _repeated(rules, inner, argument[0], argument[1])
        elif kind == "SUBPATTERN":
            add_pattern(rules, inner, argument[3])
            symbols.append(inner)
        elif kind == "BRANCH":
            for number, branch in enumerate(argument[1]):
                add_pattern(rules, f"{inner}|{number}", branch)
            rules[inner] = [(f"{inner}|{number}",) for number in range(len(argument[1]))]
            symbols.append(inner)
        else:
            symbols.append(_one(ranges_of(kind, argument)))
    rules[name] = [tuple(symbols)]


def _one(ranges: Ranges) -> Symbol:
    return tuple(ranges)


def _repeated(rules: Rules, name: str, least: int, most: int) -> list[Symbol]:
    required: list[Symbol] = [name] * least
    if most >= MOST:
        rules[f"{name}*"] = [(), (f"{name}*", name)]
        return [*required, f"{name}*"]
    for left in range(1, most - least + 1):
        rules[f"{name}?{left}"] = [(), (name, f"{name}?{left - 1}") if left > 1 else (name,)]
    return [*required, f"{name}?{most - least}"] if most > least else required


def matches(rules: Mapping[str, Sequence[tuple[Symbol, ...]]], start: str, text: str) -> bool:
    """Whether the rule `start` matches a text as a whole. Raises TooMuchWork."""
    return _Recognizer(rules).run(start, text)


Item = tuple[str, int, int, int]
"""A rule's name, which of its choices, how much of that has matched, and where it began."""


class _Recognizer:
    def __init__(self, rules: Mapping[str, Sequence[tuple[Symbol, ...]]]) -> None:
        self._rules = rules
        self._nullable = _nullable(rules)
        self._left = MAX_STEPS

    def run(self, start: str, text: str) -> bool:
        current: dict[Item, None] = {(start, choice, 0, 0): None for choice in range(len(self._rules[start]))}
        waiting: list[dict[str, list[Item]]] = []
        for place in range(len(text) + 1):
            waiting.append({})
            code = ord(text[place]) if place < len(text) else -1
            following = self._step(current, waiting, code)
            if place < len(text) and not following:
                return False
            if place < len(text):
                current = following
        return any(
            name == start and began == 0 and done == len(self._rules[name][choice])
            for name, choice, done, began in current
        )

    def _step(self, current: dict[Item, None], waiting: list[dict[str, list[Item]]], code: int) -> dict[Item, None]:
        """Complete the items of a place, and return those of the next."""
        here, place = waiting[-1], len(waiting) - 1
        following: dict[Item, None] = {}
        agenda = list(current)
        for item in agenda:  # which grows meanwhile
            name, choice, done, began = item
            symbols = self._rules[name][choice]
            found: list[Item] = []
            if done == len(symbols):
                if began != place:
                    found = [(each[0], each[1], each[2] + 1, each[3]) for each in waiting[began].get(name, ())]
            elif isinstance(symbol := symbols[done], str):
                if symbol not in here:
                    here[symbol] = []
                    found = [(symbol, number, 0, place) for number in range(len(self._rules[symbol]))]
                here[symbol].append(item)
                if symbol in self._nullable:
                    found.append((name, choice, done + 1, began))
            elif any(low <= code <= high for low, high in symbol):
                following[(name, choice, done + 1, began)] = None
            self._left -= 1 + len(found)
            if self._left < 0:
                raise TooMuchWork
            for each in found:
                if each not in current:
                    current[each] = None
                    agenda.append(each)
        return following


def productive(rules: Mapping[str, Sequence[tuple[Symbol, ...]]], start: str) -> bool:
    """Whether any text matches the rule `start`."""
    return start in _closure(rules, lambda symbol: bool(symbol))


def _nullable(rules: Mapping[str, Sequence[tuple[Symbol, ...]]]) -> set[str]:
    """The rules that match nothing at all."""
    return _closure(rules, lambda _: False)


def _closure(rules: Mapping[str, Sequence[tuple[Symbol, ...]]], good: Callable[[Symbol], bool]) -> set[str]:
    """The rules that have a choice of symbols that are all good: such rules themselves, or characters that are."""
    closed: set[str] = set()
    grown = True
    while grown:
        found = {
            name
            for name, choices in rules.items()
            if name not in closed
            and any(
                all(each in closed if isinstance(each, str) else good(each) for each in choice) for choice in choices
            )
        }
        grown = bool(found)
        closed |= found
    return closed
