"""The dictionaries that were shipped are what they were, and this release's is what its program makes."""

from hashlib import sha256

import pytest
import zstandard

from bench._dictionary.train import BYTES, trained
from store.codec import NEWEST, SHIPPED, dictionary, file_of
from store.errors import NewerFormat, UnknownDictionary

DIGESTS = {32_769: "79e29b31af19bffdb5a7f045c3bba3c3c5f37a6f7fa7867dd7be1507caf49a2a"}
"""What each file is, for ever. Only ever add one."""


def test_every_dictionary_that_was_ever_shipped_is_there_as_it_was() -> None:
    assert DIGESTS.keys() == SHIPPED
    assert {path.name for path in file_of(NEWEST).parent.glob("*.zdict")} == {f"{number}.zdict" for number in SHIPPED}
    assert {number: sha256(file_of(number).read_bytes()).hexdigest() for number in SHIPPED} == DIGESTS


def test_a_dictionary_says_its_own_number() -> None:
    assert {number: dictionary(number).dict_id() for number in SHIPPED} == {number: number for number in SHIPPED}


@pytest.mark.full
def test_the_newest_is_what_its_program_makes() -> None:
    """By the zstandard of the lock files, which has this zstd."""
    assert zstandard.ZSTD_VERSION == (1, 5, 7)
    made = trained()
    assert made == file_of(NEWEST).read_bytes()
    assert len(made) == BYTES


def test_one_that_was_never_shipped_is_a_later_release_s() -> None:
    with pytest.raises(UnknownDictionary, match="needs dictionary 40000") as caught:
        dictionary(40_000)
    assert isinstance(caught.value, NewerFormat)
