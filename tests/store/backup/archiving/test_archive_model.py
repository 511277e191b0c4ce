"""Whatever archivers, readers, users and crashes do at once: no turn is lost, and none that was deleted comes back."""

import pytest

from tests.support.store.model_archive import run_archive


@pytest.mark.timeout(600)  # passes in seconds; the rest is for shrinking what fails
def test_no_turn_is_lost_and_none_comes_back(server_url: str) -> None:
    run_archive(server_url, examples=20)


@pytest.mark.timeout(600)
def test_no_turn_is_lost_and_none_comes_back_where_trees_have_many_parts(server_url: str) -> None:
    run_archive(server_url, examples=20, part_bytes=1)


@pytest.mark.full
@pytest.mark.timeout(3600)
def test_no_turn_is_lost_and_none_comes_back_for_long(server_url: str) -> None:
    run_archive(server_url, examples=4_000)
