"""Conversations behave like names in plain Python (model_conversations.py), on every kind of server."""

import pytest

from store.history.caps import Caps
from tests.support.store.model import CAPS, run_model
from tests.support.store.model_conversations import ConversationModel


@pytest.mark.timeout(600)  # passes in seconds; the rest is for shrinking what fails
@pytest.mark.parametrize("caps", [CAPS["no caps"], CAPS["both"]], ids=["no caps", "both"])
def test_conversations_behave_like_names_in_plain_python(server_url: str, caps: Caps) -> None:
    run_model(server_url, caps, examples=4, kind=ConversationModel)


@pytest.mark.timeout(600)
def test_conversations_behave_the_same_on_a_cluster(cluster_url: str) -> None:
    run_model(cluster_url, CAPS["both"], examples=2, kind=ConversationModel)


@pytest.mark.timeout(600)
@pytest.mark.usefixtures("lost_replies")
def test_conversations_behave_the_same_where_every_command_is_sent_twice(server_url: str) -> None:
    run_model(server_url, CAPS["both"], examples=2, kind=ConversationModel)


@pytest.mark.full
@pytest.mark.timeout(1800)
@pytest.mark.parametrize("caps", CAPS.values(), ids=CAPS)
def test_conversations_behave_like_names_in_plain_python_for_long(server_url: str, caps: Caps) -> None:
    run_model(server_url, caps, examples=200, kind=ConversationModel)


@pytest.mark.full
@pytest.mark.timeout(1800)
def test_conversations_behave_the_same_on_a_cluster_for_long(cluster_url: str) -> None:
    run_model(cluster_url, CAPS["both"], examples=200, kind=ConversationModel)


@pytest.mark.full
@pytest.mark.timeout(1800)
def test_conversations_behave_the_same_on_fakeredis(fake_url: str) -> None:
    run_model(fake_url, CAPS["both"], examples=20, kind=ConversationModel)  # each takes fifty times as long
