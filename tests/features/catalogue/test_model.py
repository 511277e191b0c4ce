"""A catalogue as a plain dict whose rows are put by version, listed by their last use, and found by facts and words."""

import asyncio
from itertools import repeat

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule, run_state_machine_as_test

from store.catalogue.rows import CatalogueRow
from store.history.elsewhere import KeptQuery
from tests.support.archive.catalogues import catalogue_at, emptied, put, row_of
from tests.support.archive.opened import Place
from tests.support.lengths import lengths

TENANTS, TREES = st.sampled_from(["a", "a-b"]), st.sampled_from(["00a", "00b", "01a"])
WORDS, FACTS = st.lists(st.sampled_from(["one", "two", "three"]), max_size=3), st.sets(st.sampled_from(["f1", "f2"]))
USES = st.integers(0, 3)


def matches(word: str, begun: str) -> bool:
    """Whether a word is found by its beginning: a single letter is a whole word."""
    return word == begun or (len(begun) > 1 and word.startswith(begun))


class Model(RuleBasedStateMachine):
    """The rows by tenant and tree, None for bare ones."""

    place: Place

    def __init__(self) -> None:
        super().__init__()
        self.runner = asyncio.Runner()
        self.run = self.runner.run
        self.both = [catalogue_at(self.place) for _ in range(2)]
        self.one, self.other = self.both
        self.run(emptied(self.one))
        self.rows: dict[tuple[str, str], CatalogueRow | None] = {}

    def teardown(self) -> None:
        for each in self.both:
            self.run(each.close())
        self.runner.close()

    @rule(tenant=TENANTS, tree=TREES, words=WORDS, facts=FACTS, used=USES, bare=st.booleans())
    def put(self, tenant: str, tree: str, words: list[str], facts: set[str], used: int, bare: bool) -> None:
        row = None if bare else row_of(" ".join(words), *facts, used=used)
        version, _ = self.run(self.other.row(tenant, tree))
        assert bool(version) == ((tenant, tree) in self.rows)
        assert self.run(put(self.one, tree, row, version, tenant))
        assert not self.run(put(self.other, tree, row_of("late"), version, tenant))
        self.rows[tenant, tree] = row

    @rule(tenant=TENANTS, tree=TREES)
    def remove(self, tenant: str, tree: str) -> None:
        version, _ = self.run(self.other.row(tenant, tree))
        assert not self.run(self.one.put(tenant, tree, None, "", "stale"))
        assert self.run(self.one.put(tenant, tree, None, "", version)) == bool(version)
        self.rows.pop((tenant, tree), None)

    @rule(tenant=TENANTS, until=USES)
    def erase(self, tenant: str, until: int) -> None:
        self.run(self.one.erase(tenant, until))
        self.rows = {at: row for at, row in self.rows.items() if at[0] != tenant or row is None or row.used > until}

    @rule()
    def tidy(self) -> None:
        self.run(self.one.tidy())

    @rule(tenant=TENANTS, words=WORDS, chars=st.integers(1, 5), facts=FACTS, since=USES, limit=st.integers(0, 4))
    def find(self, tenant: str, words: list[str], chars: int, facts: set[str], since: int, limit: int) -> None:
        begun = [word[:chars] for word in words]
        self.check(tenant, KeptQuery(limit, since=since, facts=list(facts), words=begun))

    @invariant()
    def all_is_there(self) -> None:
        for tenant in ("a", "a-b"):
            self.check(tenant, KeptQuery(100))

    def check(self, tenant: str, query: KeptQuery) -> None:
        told = [each.place for each in self.run(self.other.find(tenant, query))]
        there = [
            (row.used, tree)
            for (owner, tree), row in self.rows.items()
            if row is not None and owner == tenant and row.used >= query.since and set(query.facts) <= set(row.facts)
            if all(any(map(matches, row.words.split(), repeat(begun))) for begun in query.words)
        ]
        assert told == sorted(there, reverse=True)[: query.limit]


@pytest.mark.parametrize("examples", lengths(10, 200))
def test_a_catalogue_is_a_dict(place: Place, examples: int) -> None:
    machine = type("Machine", (Model,), {"place": place})
    run_state_machine_as_test(machine, settings=settings(max_examples=examples, stateful_step_count=30))
