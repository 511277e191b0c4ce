"""The Agents SDKs' own traces, sent by their own exporters to the service, and from there on to a receiver of OTLP."""

from collections.abc import Iterator
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path

import pytest

from tests.support.clients.clients import CASES as FOLDER
from tests.support.clients.clients import ClientProcess, cases
from tests.support.service.process import ServiceProcess
from tests.support.tracing.receiver import Received, Receiver, receiving

SCRIPTS = [FOLDER / "traced_agents.py", FOLDER / "traced_agents_node.mjs"]
CANARY = "marmalade"
CONTENTS = (False, True)

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


@dataclass(frozen=True)
class Told:
    """What came of two services that both SDKs told the same: one silent about contents, one that shows them."""

    silent: Receiver
    shown: Receiver


@pytest.fixture(scope="module")
def told(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Told]:
    """All cases of all scripts have run, and the services, which sent their last spans, are gone."""
    folder = tmp_path_factory.mktemp("told")
    with ExitStack() as stack:
        receivers = [stack.enter_context(receiving()) for _ in CONTENTS]
        services: list[ServiceProcess] = []
        for receiver, contents in zip(receivers, CONTENTS, strict=True):
            named = folder / f"contents-{contents}"
            services.append(ServiceProcess(named, traces_url=receiver.url, traces_contents=contents))
            stack.callback(services[-1].stop)
        urls = ",".join(f"{service.url}/v1/traces/ingest" for service in services)
        for script in SCRIPTS:
            run(script, folder / script.stem, services[0].url, urls)
        for service in services:
            service.stop()
        yield Told(*receivers)


def run(script: Path, home: Path, url: str, urls: str) -> None:
    """Run all cases of a script, which sends its traces to these."""
    home.mkdir()
    process = ClientProcess(home, script, url, OPENAI_AGENTS_DISABLE_TRACING="0", TRACES_URLS=urls, GROUP=script.stem)
    try:
        wrong = [process.run(case) for case in cases(script)]
    finally:
        process.stop()
    assert not any(wrong), wrong
    assert "[non-fatal]" not in (home / "stderr").read_text(), "an exporter got no 204"


def trace(receiver: Receiver, script: Path, name: str) -> tuple[Received, list[Received]]:
    """The span above all others of a workflow that a script ran, and all of that trace."""
    (whole,) = [span for span in receiver.named(name) if span.facts["session.id"].startswith(f"{script.stem}-")]
    return whole, [span for span in receiver.spans if span.trace == whole.trace]


def test_a_workflow_is_a_tree_of_spans_of_one_session_with_nothing_that_was_written(script: Path, told: Told) -> None:
    trip, spans = trace(told.silent, script, "Trip")
    assert trip.parent == ""
    assert "\n".join(told.silent.outline(trip)) == TRIP
    assert {span.facts["session.id"] for span in spans} == {f"{script.stem}-7"}
    made = {span.facts["gen_ai.response.id"] for span in told.silent.named("POST /v1/responses")}
    assert {span.facts["gen_ai.response.id"] for span in spans if span.name == "response"} <= made
    assert CANARY not in told.silent.text.decode(errors="replace")


def test_a_tool_that_fails_is_an_error_without_words(script: Path, told: Told) -> None:
    _, spans = trace(told.silent, script, "Search")
    assert [(span.name, span.words) for span in spans if span.failed] == [("execute_tool look_up", "")]


def test_a_setting_shows_what_tools_were_given_and_answered(script: Path, told: Told) -> None:
    _, spans = trace(told.shown, script, "Trip")
    (tool,) = [span for span in spans if span.name == "execute_tool get_weather"]
    assert "city" in tool.facts["input.value"]
    assert CANARY in tool.facts["output.value"]
