"""The Agents SDKs' own traces, sent by their own exporters to the service, and from there on to a receiver of OTLP."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.support.clients.clients import CASES as FOLDER
from tests.support.clients.clients import ClientProcess, cases
from tests.support.service.process import ServiceProcess
from tests.support.tracing.receiver import Receiver, receiving

SCRIPTS = [FOLDER / "traced_agents.py", FOLDER / "traced_agents_node.mjs"]
CANARY = "marmalade"

TRIP = """\
Trip
  task
    invoke_agent Triage
      turn
        response
        handoff
    invoke_agent Weather agent
      turn
        response
        execute_tool get_weather
      turn
        response
  task
    invoke_agent Poet
      turn
        response"""

pytestmark = [pytest.mark.clients, pytest.mark.parametrize("script", SCRIPTS, ids=lambda path: path.stem)]


@pytest.fixture(scope="module")
def told(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Receiver]:
    """The spans that were received of all cases of all scripts, once the service has sent its last ones."""
    folder = tmp_path_factory.mktemp("told")
    with receiving() as receiver:
        service = ServiceProcess(folder / "service", traces_url=receiver.url)
        try:
            for script in SCRIPTS:
                run(script, folder / script.stem, service.url)
        finally:
            service.stop()
        yield receiver


def run(script: Path, home: Path, url: str) -> None:
    """Run all cases of a script, which sends its traces to the service."""
    home.mkdir()
    told = {"TRACES_URLS": f"{url}/v1/traces/ingest", "GROUP": script.stem}
    process = ClientProcess(home, script, url, OPENAI_AGENTS_DISABLE_TRACING="0", **told)
    try:
        wrong = [process.run(case) for case in cases(script)]
    finally:
        process.stop()
    assert not any(wrong), wrong
    assert "[non-fatal]" not in (home / "stderr").read_text(), "an exporter got no 204"


def test_a_workflow_is_a_tree_of_spans_of_one_session_with_nothing_that_was_written(
    script: Path, told: Receiver
) -> None:
    (trip,) = [span for span in told.named("Trip") if span.facts["session.id"].startswith(f"{script.stem}-")]
    spans = [span for span in told.spans if span.trace == trip.trace]
    assert trip.parent == ""
    assert "\n".join(told.outline(trip)) == TRIP
    assert {span.facts["session.id"] for span in spans} == {f"{script.stem}-7"}
    made = {span.facts["gen_ai.response.id"] for span in told.named("POST /v1/responses")}
    assert {span.facts["gen_ai.response.id"] for span in spans if span.name == "response"} <= made
    assert CANARY not in told.text.decode(errors="replace")
