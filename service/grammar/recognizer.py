"""Matches a text against a grammar: Earley's recognizer, which takes the text piece by piece, with a bound on its work.

It never backtracks, so no grammar and no text can make it run for ever; it gives up on a text that takes too much. It
forgets rules that can't be reached any more. So a long text takes no more memory than a short one where the grammar's
lists grow on the left, as those of `*` and `+` do. A grammar is made ready first: its trees become rules, with each
count in a few rules of its own.
"""

from bisect import bisect_right
from collections import deque
from collections.abc import Mapping, Sequence
from graphlib import CycleError, TopologicalSorter

import msgspec

from service.grammar.regex import MOST, REPEATS, Tree, inner_trees, ranges_of

MAX_SYMBOLS = 16_384
"""The most symbols of a grammar once its counts are rules."""

Symbol = int | tuple[int, ...]
"""A rule's number, or the characters of one place: the bounds between those that match and those that don't."""


class Grammar(msgspec.Struct, frozen=True):
    """Rules made ready. A state is a place in one of the choices of a rule; the next state is one symbol further.

    `symbols` has the symbol that each state expects, None at the end of a choice; `heads` its rule; `starts` the first
    states of each rule; `nullable` the rules that match nothing at all.
    """

    symbols: Sequence[Symbol | None]
    heads: Sequence[int]
    starts: Sequence[Sequence[int]]
    nullable: frozenset[int]
    productive: bool
    """Whether any text matches rule 0."""


def compile_rules(trees: Mapping[str, Tree]) -> Grammar:
    """The trees of some rules, of which a whole text has to match the first. Raises ValueError for too large ones."""
    return _Compiler(trees).grammar()


class _Compiler:
    def __init__(self, trees: Mapping[str, Tree]) -> None:
        self._numbers: dict[object, int] = {name: number for number, name in enumerate(trees)}
        self._rules: list[list[list[Symbol]]] = [[] for _ in self._numbers]
        self._size = 0
        for name, tree in trees.items():
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
                symbols += self._repeat(one, argument[0], argument[1])
            else:
                symbols.append(tuple(bound for low, high in ranges_of(kind, argument) for bound in (low, high + 1)))
        return symbols

    def _repeat(self, one: Symbol, least: int, most: int) -> list[Symbol]:
        """The symbols that repeat one symbol; even large counts take only a few rules."""
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
        """The symbols for at most `count` repetitions: up to half of them, or more than half and up to the rest."""
        if count == 0:
            return []
        key = (one, 0, count)
        if key not in self._numbers:
            half = (count - 1) // 2
            more = self._exactly(one, half + 1) + self._up_to(one, count - half - 1)
            self._numbers[key] = self._rule([self._up_to(one, half), more])
        return [self._numbers[key]]

    def grammar(self) -> Grammar:
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
        """Check that no rule can be itself and nothing besides. Else any text could be read in endlessly many ways, and
        an engine would take longer for each token than for the one before.
        """
        below: dict[int, set[int]] = {}
        for number, choices in enumerate(self._rules):
            below[number] = set()
            for choice in choices:
                filled = [symbol for symbol in choice if not (isinstance(symbol, int) and symbol in nullable)]
                if not filled:
                    below[number].update(symbol for symbol in choice if isinstance(symbol, int))
                elif len(filled) == 1 and isinstance(filled[0], int):
                    below[number].add(filled[0])
        try:
            TopologicalSorter(below).prepare()
        except CycleError:
            raise ValueError(
                "a rule of it can be itself and nothing else, or repeats an empty text: check its ? and *"
            ) from None

    def _closure(self, *, characters: bool) -> frozenset[int]:
        """The rules that can end: a choice has nothing but such rules and, if `characters` count, characters."""
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


STEPS_AT_ONCE = 50_000
STEPS_A_CHARACTER = 1_000
"""The most steps of all rules for a text: so many at once, and for each character; some 0.15 µs each."""

PASSED_A_STEP = 8
"""The number of rules that end together and count as one step."""

MAX_KEPT = 100_000
"""The most rules that may wait for others to end: 20 MB."""

Item = tuple[int, int]
"""A state, and the place in the text where its rule began."""


class Recognizer:
    """One text, as it comes, against rule 0 of a grammar."""

    def __init__(self, grammar: Grammar) -> None:
        self._grammar = grammar
        self._left = STEPS_AT_ONCE
        self._place = 0
        self._waiting: dict[int, dict[int, list[Item]]] = {}
        """By place, the items that wait for a rule that began there to end."""
        self._tops: dict[tuple[int, int], Item | None] = {}
        self._sweep_at = 4_096
        self.kept = 0
        """The number of rules that wait for others to end."""
        self.exhausted = False
        """Whether the recognizer has given up, as the text took too many steps for its length."""
        self._current = [(state, 0) for state in grammar.starts[0]]
        self._scanning = self._complete()

    @property
    def matched(self) -> bool:
        """Whether the text so far matches as a whole."""
        symbols, heads = self._grammar.symbols, self._grammar.heads
        return not self.exhausted and any(
            began == 0 and symbols[state] is None and heads[state] == 0 for state, began in self._current
        )

    def feed(self, text: str) -> None:
        """Take more of the text."""
        symbols = self._grammar.symbols
        for letter in text:
            if not self._scanning or self.exhausted:
                self._current = []
                return
            code = ord(letter)
            self._current = [
                (state + 1, began)
                for state, began in self._scanning
                if bisect_right(symbols[state], code) & 1  # pyright: ignore
            ]
            self._left = min(self._left + STEPS_A_CHARACTER, max(self._left, STEPS_AT_ONCE))
            self._place += 1
            self._scanning = self._complete()

    def _complete(self) -> list[Item]:
        """Add to the items of a place all that follow from them; returns those that expect a character."""
        grammar, place, current = self._grammar, self._place, self._current
        symbols, heads, starts, nullable = grammar.symbols, grammar.heads, grammar.starts, grammar.nullable
        here: dict[int, list[Item]] = {}
        known = set(current)
        scanning: list[Item] = []
        steps = 0
        for item in current:  # which grows meanwhile
            state, began = item
            symbol = symbols[state]
            if symbol is None:
                if began == place:
                    continue
                found = self._after_rule(heads[state], began)
            elif isinstance(symbol, tuple):
                scanning.append(item)
                continue
            else:
                found: list[Item] = []
                if symbol not in here:
                    here[symbol] = []
                    found = [(each, place) for each in starts[symbol]]
                here[symbol].append(item)
                if symbol in nullable:
                    found.append((state + 1, began))
            steps += 1 + len(found)
            if steps > self._left:
                break
            for each in found:
                if each not in known:
                    known.add(each)
                    current.append(each)
        self._left -= steps
        self._keep(here)
        self.exhausted = self._left <= 0 or self.kept > MAX_KEPT
        return scanning

    def _after_rule(self, rule: int, place: int) -> list[Item]:
        """The items that follow when a rule that began at `place` ends."""
        top = self._top(rule, place)
        return [top] if top is not None else [(state + 1, began) for state, began in self._waiting[place].get(rule, ())]

    def _top(self, rule: int, place: int) -> Item | None:
        """The last item of a chain in which each ending rule has only one waiter, which ends with it (Leo 1991).

        So lists that grow on the right cost no more than others. None where there is no such chain.
        """
        symbols, heads = self._grammar.symbols, self._grammar.heads
        passed: dict[tuple[int, int], None] = {}
        top: Item | None = None
        while (rule, place) not in self._tops:
            waiting = self._waiting[place].get(rule, ())
            if len(waiting) != 1 or symbols[waiting[0][0] + 1] is not None or (rule, place) in passed:
                break
            passed[rule, place] = None
            state, began = waiting[0]
            top = (state + 1, began)
            rule, place = heads[state], began
        self._left -= len(passed) // PASSED_A_STEP
        top = self._tops.get((rule, place)) or top
        for each in passed:
            self._tops[each] = top
        return top

    def _keep(self, here: dict[int, list[Item]]) -> None:
        self._waiting[self._place] = here
        self.kept += sum(map(len, here.values())) + 1
        if self.kept > self._sweep_at:
            self._sweep()
            self._sweep_at = 2 * self.kept + 4_096

    def _sweep(self) -> None:
        """Forget the items that wait for rules of which none is open any more."""
        heads, waiting = self._grammar.heads, self._waiting
        open_ones = {(began, heads[state]) for state, began in self._current}
        agenda = list(open_ones)
        for place, rule in agenda:  # which grows meanwhile
            for state, began in waiting[place].get(rule, ()):
                if (above := (began, heads[state])) not in open_ones:
                    open_ones.add(above)
                    agenda.append(above)
        self._waiting = {self._place: {}}
        for place, rule in agenda:
            self._waiting.setdefault(place, {})[rule] = waiting[place].get(rule, [])
        self._tops = {each: top for each, top in self._tops.items() if each[::-1] in open_ones}
        self.kept = sum(sum(map(len, here.values())) + 1 for here in self._waiting.values())
