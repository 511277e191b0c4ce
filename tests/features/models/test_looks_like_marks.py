"""What looks like a mark is found in a text of any length, and no search of it takes long."""

import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from service.features.models.markup.marks import LONGEST_MARK, LOOKS_LIKE_A_MARK, SEARCHED_CHARS, like_marks

SIGNS = st.text(st.sampled_from("[]<>~/_ !aAgMSK"), max_size=300)


@given(SIGNS, st.integers(1, 80))
def test_every_place_is_found_where_a_mark_may_begin(text: str, most: int) -> None:
    for pattern in LOOKS_LIKE_A_MARK:
        found = [(each.start(), each[0]) for each in like_marks(pattern, text, most)]
        assert found == [(at, mark[0]) for at in range(len(text)) if (mark := pattern.match(text, at))]


@pytest.mark.parametrize("mark", ["<" + "a" * 62 + ">", "[/" + "A" * 32 + "]", "[gMASK]", "[ab~ab[", "]ab~ab]"])
def test_no_mark_is_longer_than_is_looked_ahead_for(mark: str) -> None:
    assert len(mark) <= LONGEST_MARK
    for before in range(SEARCHED_CHARS - LONGEST_MARK - 1, SEARCHED_CHARS + 1):
        text = " " * before + mark
        assert [each[0] for pattern in LOOKS_LIKE_A_MARK for each in like_marks(pattern, text)] == [mark]


class _Noted:
    """A pattern that notes how much of a text it is given at once."""

    def __init__(self, pattern: re.Pattern[str]) -> None:
        self._pattern = pattern
        self.most = 0

    def search(self, text: str, at: int, end: int) -> re.Match[str] | None:
        self.most = max(self.most, min(end, len(text)) - at)
        return self._pattern.search(text, at, end)


def test_a_text_in_which_anything_may_begin_a_mark_is_searched_in_small_parts() -> None:
    for pattern in LOOKS_LIKE_A_MARK:
        noted = _Noted(pattern)
        assert not [*like_marks(noted, "[" * (3 * SEARCHED_CHARS))]  # type: ignore[arg-type]
        assert noted.most <= SEARCHED_CHARS + LONGEST_MARK
