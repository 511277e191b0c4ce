"""Whatever archivers, readers, users and crashes do at once: no turn is lost, and none that was deleted comes back."""

import pytest

from tests.support.lengths import lengths
from tests.support.store.model_archive import run_archive


@pytest.mark.parametrize("part_bytes", [0, 1], ids=["few parts", "many parts"])
@pytest.mark.parametrize("examples", lengths(20, 4_000, seconds=3600, short_seconds=600))  # to shrink what fails
def test_no_turn_is_lost_and_none_comes_back(server_url: str, examples: int, part_bytes: int) -> None:
    run_archive(server_url, examples=examples, part_bytes=part_bytes)
