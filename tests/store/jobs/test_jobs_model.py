"""Jobs behave like plain Python (model_jobs.py), on every kind of server, and where every command is sent twice."""

import pytest

from store.history.caps import Caps
from tests.support.store.model import CAPS, run_model
from tests.support.store.model_jobs import Jobbing


@pytest.mark.timeout(600)  # passes in seconds; the rest is for shrinking what fails
@pytest.mark.parametrize("caps", [CAPS["no caps"], CAPS["both"]], ids=["no caps", "both"])
def test_jobs_behave_like_plain_python(server_url: str, caps: Caps) -> None:
    run_model(server_url, caps, examples=4, kind=Jobbing)


@pytest.mark.timeout(600)
def test_jobs_behave_the_same_on_a_cluster(cluster_url: str) -> None:
    run_model(cluster_url, CAPS["both"], examples=2, kind=Jobbing)


@pytest.mark.timeout(600)
@pytest.mark.usefixtures("lost_replies")
def test_jobs_behave_the_same_where_every_command_is_sent_twice(server_url: str) -> None:
    run_model(server_url, CAPS["both"], examples=2, kind=Jobbing)


@pytest.mark.full
@pytest.mark.timeout(1800)
@pytest.mark.parametrize("caps", CAPS.values(), ids=CAPS)
def test_jobs_behave_like_plain_python_for_long(server_url: str, caps: Caps) -> None:
    run_model(server_url, caps, examples=300, kind=Jobbing)


@pytest.mark.full
@pytest.mark.timeout(1800)
@pytest.mark.parametrize("caps", CAPS.values(), ids=CAPS)
def test_jobs_behave_the_same_on_a_cluster_for_long(cluster_url: str, caps: Caps) -> None:
    run_model(cluster_url, caps, examples=200, kind=Jobbing)


@pytest.mark.full
@pytest.mark.timeout(1800)
@pytest.mark.usefixtures("lost_replies")
def test_jobs_behave_the_same_where_every_command_is_sent_twice_for_long(server_url: str) -> None:
    run_model(server_url, CAPS["both"], examples=200, kind=Jobbing)


@pytest.mark.full
@pytest.mark.timeout(1800)
def test_jobs_behave_the_same_on_fakeredis(fake_url: str) -> None:
    run_model(fake_url, CAPS["both"], examples=20, kind=Jobbing)  # a second each, so never a short run
