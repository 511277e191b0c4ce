"""Prompts of chat templates keep the beginning that the engine has read: how much of it, and by which key.

Which prompts come out is held by a comparison of all ids, in test_known_ids.py.
"""

from array import array

from hypothesis import given
from hypothesis import strategies as st

from service.markup.prompts import Known, Templated, common, with_known

END, OPEN, CALL = range(3)
"""The mark that ends a turn, the one that opens the next; and another mark."""

KEY = b"key"

Ids = list[int]
ids = st.lists(st.integers(10, 99), max_size=12)


def known_to(ids: Ids, *turns: tuple[int, int]) -> Known:
    return Known(Templated(array("I", ids), turns).sampled_turns(KEY), KEY)


def test_what_a_prompt_keeps_is_counted_to_the_turn_that_is_written_otherwise_and_into_it() -> None:
    known = known_to([5, OPEN, 30, END, 6, OPEN, 31, 32, CALL, END], (2, 4), (6, 10))
    assert known.length == 10

    def kept(*written: int) -> int:
        return with_known(array("I", written), known, {END}, {CALL}).kept

    assert kept(5, OPEN, 30, END, 6, OPEN, 31, 32, CALL, END, 7) == 10
    assert kept(5, OPEN, 30, END, 6, OPEN, 31, 33, END, 7) == 7
    assert kept(5, OPEN, 30, END, 8, OPEN, 31, 32, CALL, END) == 4
    assert kept(4, OPEN) == 0


@given(ids, ids, ids)
def test_what_two_lists_have_in_common(same: Ids, one: Ids, other: Ids) -> None:
    left, right = array("I", [*same, *one]), array("I", [*same, *other])
    found = common(left, right)
    assert left[:found] == right[:found]
    assert found in (len(left), len(right)) or left[found] != right[found]
