"""The values of keys: what is one, what isn't, and what is shown of it."""

import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from service.features.tenants.records import (
    ADMIN_PREFIX,
    ALPHABET,
    PREFIX,
    digest_of,
    is_whole,
    new_value,
    redact,
)

WHOLE = "sk-hm-aZ09aZ09aZ09aZ09aZ09aZ09aZ09aZ09aZ09aZ09xyz0LjpNE"
"""A key that ends with its CRC-32 in base 62, as keys do for ever."""


@pytest.mark.parametrize("prefix", [PREFIX, ADMIN_PREFIX])
def test_a_new_key_is_whole_and_says_whose_it_is(prefix: str) -> None:
    value = new_value(prefix)
    assert is_whole(value.encode())
    assert value.startswith(ADMIN_PREFIX) == (prefix == ADMIN_PREFIX)
    assert re.fullmatch(r"[A-Za-z0-9-]+", value)
    assert new_value(prefix) != value


@given(place=st.integers(0, 48), other=st.sampled_from(ALPHABET))
def test_a_typing_error_is_found_without_asking_anybody(place: int, other: str) -> None:
    at = len(PREFIX) + place
    wrong = WHOLE[:at] + other + WHOLE[at + 1 :]
    assert is_whole(wrong.encode()) == (wrong == WHOLE)


@given(st.binary(max_size=80))
def test_what_nobody_made_is_none(value: bytes) -> None:
    assert not is_whole(value)


def test_what_is_shown_of_a_key_is_too_little_to_guess_it_by() -> None:
    value = new_value()
    shown = redact(value)
    assert len(shown.replace(".", "").removeprefix(PREFIX)) == 7
    assert value.startswith(shown.partition("...")[0])
    assert value.endswith(shown.rpartition("...")[2])


def test_the_digest_is_what_everybody_gets() -> None:
    assert digest_of(b"abc") == "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad"  # FIPS 180-4
