"""Whether a text matches a grammar: Earley's recognizer, which takes the text piece by piece, with a bound on its work.

It never backtracks, so no grammar and no text can make it run for ever; what is too much is said to be so. What can't
be reached any more is forgotten, so that a long text takes no more memory than a short one where its grammar's lists
grow on the left, as those of `*` and `+` do.
"""

from bisect import bisect_right

from service.protocol.earley_rules import Grammar

STEPS_AT_ONCE = 50_000
STEPS_A_CHARACTER = 1_000
"""How many steps of all rules a text may take: so many at once, and for each character; some 0.15 µs each."""

PASSED_A_STEP = 8
"""How many rules that end together are as good as a step."""

MAX_KEPT = 100_000
"""How many rules may wait for others to end: 20 MB."""

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
        self._kept, self._sweep_at = 0, 4_096
        self.exhausted = False
        """Whether it has given up, as the text took too many steps for its length."""
        self._current = [(state, 0) for state in grammar.starts[0]]
        self._scanning = self._complete()

    @property
    def matched(self) -> bool:
        """Whether the text so far matches as a whole."""
        symbols, heads = self._grammar.symbols, self._grammar.heads
        return not self.exhausted and any(
            began == 0 and symbols[state] is None and heads[state] == 0 for state, began in self._current
        )

    @property
    def kept(self) -> int:
        """How many rules wait for others to end."""
        return self._kept

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
                found = self._ended(heads[state], began)
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
        self.exhausted = self._left <= 0 or self._kept > MAX_KEPT
        return scanning

    def _ended(self, rule: int, place: int) -> list[Item]:
        """What follows when a rule ends that began there."""
        top = self._top(rule, place)
        return [top] if top is not None else [(state + 1, began) for state, began in self._waiting[place].get(rule, ())]

    def _top(self, rule: int, place: int) -> Item | None:
        """What ends at last when a rule ends that began there, as long as only one waits and ends with it (Leo 1991).

        So lists that grow on the right cost no more than others. None where that isn't so.
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
        self._kept += sum(map(len, here.values())) + 1
        if self._kept > self._sweep_at:
            self._sweep()
            self._sweep_at = 2 * self._kept + 4_096

    def _sweep(self) -> None:
        """Forget the places where no rule that is still open began."""
        agenda = {began for _, began in self._current} | {self._place}
        needed: set[int] = set()
        while agenda:
            place = agenda.pop()
            needed.add(place)
            agenda |= {began for items in self._waiting[place].values() for _, began in items} - needed
        self._waiting = {place: self._waiting[place] for place in needed}
        self._tops = {each: top for each, top in self._tops.items() if each[1] in needed}
        self._kept = sum(sum(map(len, here.values())) + 1 for here in self._waiting.values())
