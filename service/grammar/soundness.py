"""Whether an engine can work with a grammar: some text matches it, and none in endlessly many ways.

Nothing is matched here: the engine that holds a model to a grammar does that. The trees of its rules become lists of
choices, as long as the trees, and one pass over these answers each question.
"""

from collections import deque
from collections.abc import Mapping
from graphlib import CycleError, TopologicalSorter

from service.grammar.regex import MOST, REPEATS, Tree, inner_trees

MAX_SYMBOLS = 16_384
"""The most symbols of a grammar's rules."""

Symbol = int | None
"""A rule's number, None for a character."""


def check_rules(trees: Mapping[str, Tree]) -> None:
    """Raise ValueError for the trees of rules that are too large, of which the first matches no text, or of which one
    can be itself.
    """
    rules = _Choices(trees).rules
    _check_cycles(rules, _closure(rules, characters=False))
    if 0 not in _closure(rules, characters=True):
        raise ValueError("no text matches it, as its rules never come to an end")


class _Choices:
    """The choices of each rule, the first rule's first. A part of a tree that has choices is a rule of its own."""

    def __init__(self, trees: Mapping[str, Tree]) -> None:
        self._numbers = {name: number for number, name in enumerate(trees)}
        self.rules: list[list[list[Symbol]]] = [[] for _ in trees]
        self._size = 0
        for name, tree in trees.items():
            branches: list[Tree] = tree[0][1][1] if len(tree) == 1 and tree[0][0] == "BRANCH" else [tree]
            self._add(self._numbers[name], [self._read(each) for each in branches])

    def _add(self, number: int, choices: list[list[Symbol]]) -> None:
        self.rules[number] = choices
        self._size += sum(len(choice) + 1 for choice in choices)
        if self._size > MAX_SYMBOLS:
            raise ValueError(f"it comes to more than {MAX_SYMBOLS} symbols")

    def _rule(self, choices: list[list[Symbol]]) -> int:
        self.rules.append([])
        self._add(len(self.rules) - 1, choices)
        return len(self.rules) - 1

    def _read(self, tree: Tree) -> list[Symbol]:
        symbols: list[Symbol] = []
        for kind, argument in tree:
            inner = [self._read(each) for each in inner_trees(kind, argument)]
            if kind == "RULE":
                symbols.append(self._numbers[argument])
            elif kind == "SUBPATTERN":
                symbols += inner[0]
            elif kind == "BRANCH":
                symbols.append(self._rule(inner))
            elif kind in REPEATS:
                one = inner[0][0] if len(inner[0]) == 1 else self._rule([inner[0]])
                symbols += self._repeat(one, argument[0], argument[1])
            else:
                symbols.append(None)
        return symbols

    def _repeat(self, one: Symbol, least: int, most: int) -> list[Symbol]:
        """The symbols that repeat one symbol. More than two in a row answer no question otherwise than two do."""
        symbols = [one] * min(least, 2)
        if most == MOST:
            loop = self._rule([[]])
            self._add(loop, [[], [loop, one]])
            return [*symbols, loop]
        return [*symbols, self._rule([[], [one]])] if most > least else symbols


def _check_cycles(rules: list[list[list[Symbol]]], nullable: frozenset[int]) -> None:
    """Check that no rule can be itself and nothing besides. Else any text could be read in endlessly many ways, and an
    engine would take longer for each token than for the one before.
    """
    below: dict[int, set[int]] = {}
    for number, choices in enumerate(rules):
        below[number] = set()
        for choice in choices:
            filled = [symbol for symbol in choice if symbol not in nullable]
            if not filled:
                below[number].update(symbol for symbol in choice if symbol is not None)
            elif len(filled) == 1 and filled[0] is not None:
                below[number].add(filled[0])
    try:
        TopologicalSorter(below).prepare()
    except CycleError:
        raise ValueError(
            "a rule of it can be itself and nothing else, or repeats an empty text: check its ? and *"
        ) from None


def _closure(rules: list[list[list[Symbol]]], *, characters: bool) -> frozenset[int]:
    """The rules that can end: a choice has nothing but such rules and, if `characters` count, characters."""
    missing: list[int] = []
    users: dict[int, list[tuple[int, int]]] = {}
    agenda: deque[int] = deque()
    for number, choices in enumerate(rules):
        for choice in choices:
            if not characters and None in choice:
                continue
            needed = {symbol for symbol in choice if symbol is not None}
            for each in needed:
                users.setdefault(each, []).append((number, len(missing)))
            missing.append(len(needed))
            if not needed:
                agenda.append(number)
    closed: set[int] = set()
    while agenda:
        if (number := agenda.popleft()) in closed:
            continue
        closed.add(number)
        for user, choice in users.get(number, ()):
            missing[choice] -= 1
            if missing[choice] == 0:
                agenda.append(user)
    return frozenset(closed)
