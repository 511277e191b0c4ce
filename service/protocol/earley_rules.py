"""Grammars made ready for the recognizer (earley.py): trees as rules, with each count in a few rules of its own."""

from collections import deque
from collections.abc import Generator, Mapping, Sequence

import msgspec

from service.protocol.patterns import MOST, REPEATS, Tree, inner_trees, ranges_of

MAX_SYMBOLS = 16_384
"""How large a grammar may be once its counts are rules."""

RULES_AT_ONCE = 100
"""How many rules are made ready in one step."""

Symbol = int | tuple[int, ...]
"""A rule's number, or the characters that one place may have: the bounds between those that may and that may not."""


class Grammar(msgspec.Struct, frozen=True):
    """Rules made ready. A state is a place in one of the choices of a rule; the next state is one symbol further.

    `symbols` has what each state expects, None at the end of a choice; `heads` its rule; `starts` the first states of
    each rule; `nullable` the rules that match nothing at all.
    """

    symbols: Sequence[Symbol | None]
    heads: Sequence[int]
    starts: Sequence[Sequence[int]]
    nullable: frozenset[int]
    productive: bool
    """Whether any text matches rule 0."""


def compiled(trees: Mapping[str, Tree]) -> Generator[None, None, Grammar]:
    """The trees of some rules, of which a whole text has to match the first; in steps.

    Raises ValueError for too large ones.
    """
    compiler = _Compiler(trees)
    for count, (name, tree) in enumerate(trees.items()):
        compiler.add(name, tree)
        if count % RULES_AT_ONCE == 0:
            yield
    return compiler.done()


class _Compiler:
    def __init__(self, trees: Mapping[str, Tree]) -> None:
        self._numbers: dict[object, int] = {name: number for number, name in enumerate(trees)}
        self._rules: list[list[list[Symbol]]] = [[] for _ in self._numbers]
        self._size = 0

    def add(self, name: str, tree: Tree) -> None:
        """Add a rule of the grammar."""
        branches: list[Tree] = tree[0][1][1] if len(tree) == 1 and tree[0][0] == "BRANCH" else [tree]
        self._add(self._numbers[name], [self._read(each) for each in branches])

    def _add(self, number: int, choices: list[list[Symbol]]) -> None:
        self._rules[number] = choices
        self._size += sum(len(choice) + 1 for choice in choices)
        if self._size > MAX_SYMBOLS:
            raise ValueError(f"with its counts written out it has more than {MAX_SYMBOLS} symbols")

    def _rule(self, choices: list[list[Symbol]]) -> int:
        self._rules.append([])
        self._add(len(self._rules) - 1, choices)
        return len(self._rules) - 1

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
                symbols += self._repeated(one, argument[0], argument[1])
            else:
                symbols.append(tuple(bound for low, high in ranges_of(kind, argument) for bound in (low, high + 1)))
        return symbols

    def _repeated(self, one: Symbol, least: int, most: int) -> list[Symbol]:
        """What repeats a symbol, in rules that are few however large the counts."""
        exact = self._exactly(one, least)
        if most < MOST:
            return exact + self._up_to(one, most - least)
        loop = self._rule([[]])
        self._add(loop, [[], [loop, one]])
        return [*exact, loop]

    def _exactly(self, one: Symbol, count: int) -> list[Symbol]:
        if count < 4:
            return [one] * count
        key = (one, count)
        if key not in self._numbers:
            half = self._exactly(one, count // 2)
            self._numbers[key] = self._rule([half * 2 + [one] * (count % 2)])
        return [self._numbers[key]]

    def _up_to(self, one: Symbol, count: int) -> list[Symbol]:
        """At most so many: either not more than half of them, or more than half and at most the rest."""
        if count == 0:
            return []
        key = (one, 0, count)
        if key not in self._numbers:
            half = (count - 1) // 2
            more = self._exactly(one, half + 1) + self._up_to(one, count - half - 1)
            self._numbers[key] = self._rule([self._up_to(one, half), more])
        return [self._numbers[key]]

    def done(self) -> Grammar:
        symbols: list[Symbol | None] = []
        heads: list[int] = []
        starts: list[list[int]] = []
        for number, choices in enumerate(self._rules):
            starts.append([])
            for choice in choices:
                starts[-1].append(len(symbols))
                symbols += [*choice, None]
                heads += [number] * (len(choice) + 1)
        nullable = self._closure(characters=False)
        self._check_cycles(nullable)
        return Grammar(symbols, heads, starts, nullable, 0 in self._closure(characters=True))

    def _check_cycles(self, nullable: frozenset[int]) -> None:
        """Check that no rule can be itself and nothing besides: any text would then be read in endlessly many ways,
        and an engine takes longer for each token than for the one before.
        """
        below: list[set[int]] = []
        above = [0] * len(self._rules)
        for choices in self._rules:
            below.append(set())
            for choice in choices:
                filled = [symbol for symbol in choice if not (isinstance(symbol, int) and symbol in nullable)]
                if not filled:
                    below[-1].update(symbol for symbol in choice if isinstance(symbol, int))
                elif len(filled) == 1 and isinstance(filled[0], int):
                    below[-1].add(filled[0])
            for each in below[-1]:
                above[each] += 1
        agenda = [number for number, count in enumerate(above) if count == 0]
        for number in agenda:  # which grows meanwhile
            for each in below[number]:
                above[each] -= 1
                if above[each] == 0:
                    agenda.append(each)
        if len(agenda) < len(self._rules):
            raise ValueError(
                "something in it may be itself and nothing else, or nothing, over and over: see its ? and *"
            )

    def _closure(self, *, characters: bool) -> frozenset[int]:
        """The rules that come to an end, by a choice of nothing but such rules and, where they count, characters."""
        missing: list[int] = []
        users: dict[int, list[tuple[int, int]]] = {}
        agenda: deque[int] = deque()
        for number, choices in enumerate(self._rules):
            for choice in choices:
                if not characters and any(isinstance(symbol, tuple) for symbol in choice):
                    continue
                rules = {symbol for symbol in choice if isinstance(symbol, int)}
                for each in rules:
                    users.setdefault(each, []).append((number, len(missing)))
                missing.append(len(rules))
                if not rules:
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
