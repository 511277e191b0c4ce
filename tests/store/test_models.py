"""The store behaves like plain Python, its turns (model.py), conversations and jobs, on every kind of server; and
whatever becomes of a store and its archive, no turn is lost and none that was deleted comes back.
"""

import pytest

from store.backup import ownership
from tests.support.lengths import lengths
from tests.support.store.model import CAPS, Model, run_model
from tests.support.store.model_archive import ArchiveMachine
from tests.support.store.model_conversations import ConversationModel
from tests.support.store.model_jobs import Jobbing
from tests.support.store.model_truth import TruthMachine

KINDS: dict[type[Model], int] = {Model: 4, ConversationModel: 2, Jobbing: 2}
"""The models, and how many walks are taken of each in the short form."""

LONG_TIMES = 40
"""How many times as many are taken in the long form."""

LONG = [pytest.mark.full, pytest.mark.timeout(1800)]

SHORT = [(kind, "both", walks) for kind, walks in KINDS.items()]
ALL_CAPS = [pytest.param(kind, caps, LONG_TIMES * walks, marks=LONG) for kind, walks in KINDS.items() for caps in CAPS]

pytestmark = pytest.mark.timeout(600)  # they pass in seconds; the rest is for shrinking what fails


@pytest.mark.parametrize(
    ("kind", "caps", "walks"), [*((kind, "no caps", walks) for kind, walks in KINDS.items()), *SHORT, *ALL_CAPS]
)
def test_the_store_behaves_like_plain_python(server_url: str, kind: type[Model], caps: str, walks: int) -> None:
    run_model(kind, walks, url=server_url, caps=CAPS[caps])


@pytest.mark.parametrize(("kind", "caps", "walks"), [*SHORT, *ALL_CAPS])
def test_it_behaves_the_same_on_a_cluster(cluster_url: str, kind: type[Model], caps: str, walks: int) -> None:
    run_model(kind, walks // 2, url=cluster_url, caps=CAPS[caps])


@pytest.mark.parametrize(
    ("kind", "caps", "walks"), [*SHORT, pytest.param(Jobbing, "both", LONG_TIMES * KINDS[Jobbing], marks=LONG)]
)
@pytest.mark.usefixtures("lost_replies")
def test_it_behaves_the_same_where_every_command_is_sent_twice(
    server_url: str, kind: type[Model], caps: str, walks: int
) -> None:
    run_model(kind, walks // 2, url=server_url, caps=CAPS[caps])


@pytest.mark.full
@pytest.mark.timeout(1800)
@pytest.mark.parametrize("kind", KINDS)
def test_it_behaves_the_same_on_fakeredis(fake_url: str, kind: type[Model]) -> None:
    """Each walk takes fifty times as long, so there is no short run."""
    run_model(kind, 3 * KINDS[kind], url=fake_url, caps=CAPS["both"])


@pytest.mark.parametrize("part_bytes", [0, 1], ids=["few parts", "many parts"])
@pytest.mark.parametrize("examples", lengths(10, 500, seconds=1800, short_seconds=600))  # to shrink what fails
def test_no_turn_is_lost_and_none_comes_back(server_url: str, examples: int, part_bytes: int) -> None:
    run_model(ArchiveMachine, examples, 120, url=server_url, part_bytes=part_bytes)


@pytest.mark.parametrize("examples", lengths(15, 500, seconds=1800, short_seconds=600))
def test_copies_of_either_side_lose_nothing_and_bring_nothing_back(
    server_url: str, examples: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(ownership, "LOOK_SECONDS", 0.01)
    run_model(TruthMachine, examples, 60, url=server_url)
