"""`harmonium bench`: many conversations at once, what it says of them, and that none of them is left."""

import json
from pathlib import Path

import pytest

from service.commands.client import bench
from service.commands.client.bench import Outcome, figures_of
from tests.support.service.commands import run, said
from tests.support.service.process import ServiceProcess
from tests.support.service.terminal import CTRL_C, at_a_terminal

MADE = ("ls", "--metadata", "harmonium=bench")


def test_figures_are_of_what_was_made_alone() -> None:
    made = [Outcome(milliseconds / 1000, 10) for milliseconds in range(100, 0, -1)]
    found = figures_of([*made, Outcome(error="503"), Outcome(0.5, 7, error="failed"), Outcome(error="503")], 4.0)
    assert (found.first_token_ms_p50, found.first_token_ms_p99) == (50.0, 99.0)
    assert (found.responses, found.responses_per_second, found.tokens_per_second) == (100, 25.0, 250.0)
    assert found.errors == {"503": 2, "failed": 1}
    assert found.lines()[-1] == "errors       503: 2, failed: 1"


@pytest.mark.usefixtures("service")
def test_every_turn_is_measured_and_nothing_is_left(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(bench, "PROGRESS_SECONDS", 0.01)
    result = run("bench", "--concurrency", "3", "--turns", "2", "--input", "Count to 3.", "--json")
    found = json.loads(result.stdout)
    assert result.stderr == "", "a pipe is not told how far it is"
    assert (found["responses"], found["errors"], found["interrupted"]) == (6, {}, False)
    assert 0 < found["first_token_ms_p50"] <= found["first_token_ms_p99"] <= found["seconds"] * 1000
    assert found["responses_per_second"] == pytest.approx(6 / found["seconds"], rel=0.01)
    assert found["tokens_per_second"] > found["responses_per_second"]
    assert said(*MADE) == ""


def test_ctrl_c_ends_it_tells_what_was_measured_and_leaves_nothing(service: ServiceProcess, tmp_path: Path) -> None:
    command = ("bench", "-n", "4", "--turns", "1000", "--json", "--input", "Count to 5.")
    with at_a_terminal(tmp_path, *command, url=service.url) as measuring:
        measuring.shows(" of 4000 responses, 0 errors\n")
        measuring.press(CTRL_C)
        status, _ = measuring.end(60)
    found = json.loads(measuring.text[measuring.text.index("{") :])
    assert (status, found["interrupted"]) == (130, True)
    assert found["responses"] > 0
    assert said(*MADE) == ""
