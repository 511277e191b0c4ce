"""What a terminal gets of a hostile text, and how responses and items are put in words."""

import unicodedata

from hypothesis import given
from hypothesis import strategies as st

from service.commands.client.printing import excerpt, harmless


@given(st.text())
def test_nothing_that_a_terminal_obeys_is_left(text: str) -> None:
    shown = harmless(text)
    assert not [sign for sign in shown if unicodedata.category(sign) in ("Cc", "Cs") and sign not in "\n\t"]
    assert not set(shown) & set("\u202a\u202b\u202c\u202d\u202e\u2066\u2067\u2068\u2069\u200e\u200f\u2028\u2029")
    assert harmless(shown) == shown


@given(st.text(st.characters(categories=["L", "N", "P", "S", "M"])))
def test_words_of_any_language_stay_as_they_are(text: str) -> None:
    assert harmless(text) == text


def test_signs_have_names_and_an_excerpt_says_that_there_is_more() -> None:
    for text, shown in (("a\x1b[2Jb\n\t", "a<U+001B>[2Jb\n\t"), ("👩\u200d💻", "👩\u200d💻"), ("\ud800", "<U+D800>")):
        assert harmless(text) == shown
    assert excerpt("x" * 100_000).endswith("…")
    assert excerpt("a\n b") == "a b"
