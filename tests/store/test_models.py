"""The store behaves like plain Python, its turns (model.py), conversations and jobs, on every kind of server."""

import pytest

from tests.support.store.model import CAPS, Model, run_model
from tests.support.store.model_conversations import ConversationModel
from tests.support.store.model_jobs import Jobbing

KINDS: dict[type[Model], int] = {Model: 6, ConversationModel: 4, Jobbing: 4}
"""The models, and how many walks are taken of each in the short form."""

LONG_TIMES = 50
"""How many times as many are taken in the long form."""

LONG = [pytest.mark.full, pytest.mark.timeout(1800)]

SHORT = [(kind, "both", walks) for kind, walks in KINDS.items()]
ALL_CAPS = [pytest.param(kind, caps, LONG_TIMES * walks, marks=LONG) for kind, walks in KINDS.items() for caps in CAPS]

pytestmark = pytest.mark.timeout(600)  # they pass in seconds; the rest is for shrinking what fails


@pytest.mark.parametrize(
    ("kind", "caps", "walks"), [*((kind, "no caps", walks) for kind, walks in KINDS.items()), *SHORT, *ALL_CAPS]
)
def test_the_store_behaves_like_plain_python(server_url: str, kind: type[Model], caps: str, walks: int) -> None:
    run_model(server_url, CAPS[caps], walks, kind)


@pytest.mark.parametrize(("kind", "caps", "walks"), [*SHORT, *ALL_CAPS])
def test_it_behaves_the_same_on_a_cluster(cluster_url: str, kind: type[Model], caps: str, walks: int) -> None:
    run_model(cluster_url, CAPS[caps], walks // 2, kind)


@pytest.mark.parametrize(
    ("kind", "caps", "walks"), [*SHORT, pytest.param(Jobbing, "both", LONG_TIMES * KINDS[Jobbing], marks=LONG)]
)
@pytest.mark.usefixtures("lost_replies")
def test_it_behaves_the_same_where_every_command_is_sent_twice(
    server_url: str, kind: type[Model], caps: str, walks: int
) -> None:
    run_model(server_url, CAPS[caps], walks // 2, kind)


@pytest.mark.full
@pytest.mark.timeout(1800)
@pytest.mark.parametrize("kind", KINDS)
def test_it_behaves_the_same_on_fakeredis(fake_url: str, kind: type[Model]) -> None:
    run_model(fake_url, CAPS["both"], 5 * KINDS[kind], kind)  # each takes fifty times as long, so never a short run
