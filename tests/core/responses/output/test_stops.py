"""Texts that end an answer: which of several does, wherever the text was cut on its way."""

from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from service.responses.output.open_message import Stopper

texts = st.text("ab", min_size=1, max_size=12)


def ended(stops: list[str], pieces: list[str]) -> tuple[str, str]:
    """The shown text, and the stop that ended it."""
    stopper, shown = Stopper(stops), ""
    for piece in pieces:
        shown += "".join(text for text, _ in stopper.take(piece))
        if stopper.hit:
            return shown, stopper.hit
    return shown + "".join(text for text, _ in stopper.rest()), ""


@pytest.mark.parametrize(
    ("stops", "shown", "hit"),
    [(["bcd", "c"], "ab", "c"), (["bcd", "bc"], "a", "bc"), (["c", "bc"], "a", "bc"), (["x", "dex"], "abcde", "")],
)
def test_the_stop_that_is_whole_first_ends_it(stops: list[str], shown: str, hit: str) -> None:
    assert ended(stops, ["abcde"]) == ended(stops, list("abcde")) == (shown, hit)


@given(stops=st.lists(texts, min_size=1, max_size=4), text=texts, places=st.sets(st.integers(1, 11)))
def test_it_ends_alike_wherever_the_text_is_cut(stops: list[str], text: str, places: set[int]) -> None:
    cuts = [0, *sorted(places), len(text)]
    pieces = [text[begin:end] for begin, end in pairwise(cuts) if begin < end]

    assert ended(stops, pieces) == ended(stops, list(text)) == ended(stops, [text])
