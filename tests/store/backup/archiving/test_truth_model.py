"""Whichever side is put back from a copy, or lost: nothing is lost while its newest copy is there, nothing that was
deleted is readable before somebody accepts that, and one archive is of one Redis.
"""

import pytest

from tests.support.lengths import lengths
from tests.support.store.model_truth import run_truth


@pytest.mark.parametrize("examples", lengths(40, 2_000, seconds=3600, short_seconds=600))
def test_copies_of_either_side_lose_nothing_and_bring_nothing_back(server_url: str, examples: int) -> None:
    run_truth(server_url, examples=examples)
