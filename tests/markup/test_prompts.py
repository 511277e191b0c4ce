"""Prompts of chat templates: they begin with what the engine has read and sampled, where the template says the same."""

from array import array

from hypothesis import given
from hypothesis import strategies as st

from service.markup.prompts import Known, common, with_known

END, OPEN, LINE, THINK, CALL = range(5)
"""What ends a turn, what opens the next one, what the template writes between two; and two other marks."""

Ids = list[int]
ids = st.lists(st.integers(10, 99), max_size=12)


def known_to(ids: Ids, *turns: tuple[int, int]) -> Known:
    return Known(array("I", ids), turns)


def prompt(written: Ids, known: Ids, read: int) -> Ids:
    return with_known(array("I", written), known_to(known, (read, len(known))), {END}, {THINK, CALL}).ids.tolist()


@given(ids, ids, ids)
def test_a_template_that_writes_the_same_otherwise_keeps_what_was_sampled(asked: Ids, said: Ids, sampled: Ids) -> None:
    read = [*asked, OPEN]
    known = [*read, CALL, *sampled, END]
    assert prompt([*read, CALL, *said, END, LINE, 50, OPEN], known, len(read)) == [*known, LINE, 50, OPEN]


@given(ids, ids)
def test_what_is_written_as_it_was_sampled_stays(asked: Ids, sampled: Ids) -> None:
    known = [*asked, OPEN, *sampled, END]
    written = [*known, LINE, 50, OPEN]
    assert prompt(written, known, len(asked) + 1) == written


def test_a_template_that_drops_reasoning_has_its_way() -> None:
    written = [5, OPEN, 21, END, LINE, 6, OPEN]
    assert prompt(written, [5, OPEN, THINK, 20, 21, END], 2) == written


def test_where_the_beginning_is_another_nothing_is_kept() -> None:
    written = [7, OPEN, 30, END, LINE, 6, OPEN]
    assert prompt(written, [5, OPEN, 31, END], 2) == written


def test_a_turn_that_was_broken_off_is_written_by_the_template() -> None:
    written = [5, OPEN, 30, END, LINE, 6, OPEN]
    assert prompt(written, [5, OPEN, 31], 2) == written


def test_where_the_turn_is_gone_the_prompt_is_what_was_written() -> None:
    assert prompt([5, OPEN, 30], [5, OPEN, THINK, 31, END], 2) == [5, OPEN, 30]


def test_turns_of_long_ago_stand_as_they_were_sampled_too() -> None:
    written = [5, OPEN, 30, 31, END, LINE, 6, OPEN]
    first = with_known(array("I", written), known_to([5, OPEN, 29, END], (2, 4)), {END}, {CALL})
    assert first == known_to([5, OPEN, 29, END, LINE, 6, OPEN], (2, 4))
    read = known_to([*first.ids, CALL, 40, END], *first.turns, (7, 10))
    again = with_known(array("I", [*written, CALL, 41, 42, END, LINE, 7, OPEN]), read, {END}, {CALL})
    assert again == known_to([*read.ids, LINE, 7, OPEN], *read.turns)


def test_a_turn_of_which_nothing_was_sampled_breaks_nothing() -> None:
    written = array("I", [5, OPEN, 30, END, OPEN])
    assert with_known(written, known_to([5, OPEN], (2, 2)), {END}, {CALL}).ids == written


@given(ids, ids, ids)
def test_what_two_lists_have_in_common(same: Ids, one: Ids, other: Ids) -> None:
    left, right = array("I", [*same, *one]), array("I", [*same, *other])
    found = common(left, right)
    assert left[:found] == right[:found]
    assert found in (len(left), len(right)) or left[found] != right[found]
