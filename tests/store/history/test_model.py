"""The store behaves like a plain dict of turns (model.py), on every kind of server."""

import pytest

from store.history.caps import Caps
from tests.support.store.model import CAPS, run_model


@pytest.mark.timeout(600)  # passes in seconds; the rest is for shrinking what fails
@pytest.mark.parametrize("caps", [CAPS["no caps"], CAPS["both"]], ids=["no caps", "both"])
def test_the_store_behaves_like_a_plain_dict_of_turns(server_url: str, caps: Caps) -> None:
    run_model(server_url, caps, examples=6)


@pytest.mark.timeout(600)
def test_the_store_behaves_the_same_on_a_cluster(cluster_url: str) -> None:
    run_model(cluster_url, CAPS["both"], examples=3)


@pytest.mark.timeout(600)
@pytest.mark.usefixtures("lost_replies")
def test_the_store_behaves_the_same_where_every_command_is_sent_twice(server_url: str) -> None:
    run_model(server_url, CAPS["both"], examples=3)


@pytest.mark.full
@pytest.mark.timeout(1800)
@pytest.mark.parametrize("caps", CAPS.values(), ids=CAPS)
def test_the_store_behaves_like_a_plain_dict_of_turns_for_long(server_url: str, caps: Caps) -> None:
    run_model(server_url, caps, examples=200)


@pytest.mark.full
@pytest.mark.timeout(1800)
@pytest.mark.parametrize("caps", CAPS.values(), ids=CAPS)
def test_the_store_behaves_the_same_on_a_cluster_for_long(cluster_url: str, caps: Caps) -> None:
    run_model(cluster_url, caps, examples=200)


@pytest.mark.full
@pytest.mark.timeout(1800)
def test_the_store_behaves_the_same_on_fakeredis(fake_url: str) -> None:
    run_model(fake_url, CAPS["both"], examples=40)  # each takes fifty times as long, so never a short run
