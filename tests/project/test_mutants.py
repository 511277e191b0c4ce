"""The guards that scripts/test --mutants breaks: each is still where the table says, and can be broken so."""

import ast

import pytest

from tests.support import ROOT
from tests.support.mutants import MUTANTS, Mutant

GUARDS = "fence pin lease tenant tombstone seal limit budget header address"


@pytest.mark.parametrize("mutant", MUTANTS, ids=lambda mutant: mutant.guard)
def test_the_text_of_a_guard_is_in_its_file_once(mutant: Mutant) -> None:
    text = (ROOT / mutant.file).read_text()
    assert text.count(mutant.before) == 1, f"put the guard's new text into the table of {Mutant.__module__}"
    if mutant.file.endswith(".py"):
        ast.parse(text.replace(mutant.before, mutant.after))
    assert (ROOT / mutant.tests).is_file()


def test_ten_guards_are_broken_and_the_page_names_the_tests_that_hold_them() -> None:
    assert sorted(each.guard for each in MUTANTS) == sorted(GUARDS.split())
    page = (ROOT / "docs" / "reliability.md").read_text()
    assert "scripts/test --mutants" in page
    assert [each.guard for each in MUTANTS if each.tests not in page] == []
