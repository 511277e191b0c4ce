"""Prompts of chat templates keep the beginning that the engine has read: how much of it, and by which key.

Which prompts come out is held by a comparison of all ids, in test_known_ids.py.
"""

from array import array

import msgspec
from hypothesis import given
from hypothesis import strategies as st

from service.markup.prompts import Known, Templated, common, with_known

END, OPEN, LINE, THINK, CALL = range(5)
"""What ends a turn, what opens the next one, what the template writes between two; and two other marks."""

KEY = b"key"

Ids = list[int]
ids = st.lists(st.integers(10, 99), max_size=12)


def known_to(ids: Ids, *turns: tuple[int, int]) -> Known:
    return Known(Templated(array("I", ids), turns).sampled_turns(KEY), KEY)


def test_turns_of_long_ago_stand_as_they_were_sampled_too() -> None:
    written = [5, OPEN, 30, 31, END, LINE, 6, OPEN]
    first = with_known(array("I", written), known_to([5, OPEN, 29, END], (2, 4)), {END}, {CALL})
    assert first == Templated(array("I", [5, OPEN, 29, END, LINE, 6, OPEN]), ((2, 4),), kept=4)
    read = first.with_turn(array("I", [CALL, 40, END]))
    known = Known(read.sampled_turns(KEY), KEY)
    again = with_known(array("I", [*written, CALL, 41, 42, END, LINE, 7, OPEN]), known, {END}, {CALL})
    assert again == Templated(array("I", [*read.ids, LINE, 7, OPEN]), read.turns, kept=10)


def test_what_a_prompt_keeps_is_counted_to_the_turn_that_is_written_otherwise_and_into_it() -> None:
    known = known_to([5, OPEN, 30, END, 6, OPEN, 31, 32, CALL, END], (2, 4), (6, 10))
    assert known.length == 10

    def kept(*written: int) -> int:
        return with_known(array("I", written), known, {END}, {CALL}).kept

    assert kept(5, OPEN, 30, END, 6, OPEN, 31, 32, CALL, END, 7) == 10
    assert kept(5, OPEN, 30, END, 6, OPEN, 31, 33, END, 7) == 7
    assert kept(5, OPEN, 30, END, 8, OPEN, 31, 32, CALL, END) == 4
    assert kept(4, OPEN) == 0


def test_what_other_keys_digest_is_not_known() -> None:
    ids = array("I", [5, OPEN, 30, END])
    (turn,) = Templated(ids, ((2, 4),)).sampled_turns(KEY)
    for key, kept in ((KEY, 4), (b"another", 0)):
        known = Known((msgspec.structs.replace(turn, key=key),))
        assert with_known(ids, known, {END}, {CALL}).kept == kept


def test_a_turn_of_which_nothing_was_sampled_breaks_nothing() -> None:
    written = array("I", [5, OPEN, 30, END, OPEN])
    assert with_known(written, known_to([5, OPEN], (2, 2)), {END}, {CALL}).ids == written


@given(ids, ids, ids)
def test_what_two_lists_have_in_common(same: Ids, one: Ids, other: Ids) -> None:
    left, right = array("I", [*same, *one]), array("I", [*same, *other])
    found = common(left, right)
    assert left[:found] == right[:found]
    assert found in (len(left), len(right)) or left[found] != right[found]
