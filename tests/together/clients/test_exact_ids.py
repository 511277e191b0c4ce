"""An agent and the SDK over a service that is killed: each prompt goes on from the one before, and harbor's and NeMo
Gym's validators take the trajectories. `scripts/setup judges` installs these into .venv-judges. Codex has none: it asks
for `store: false`.
"""

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from tests.features.trajectories.test_trajectories import check, metrics
from tests.features.trajectories.test_trajectory_kills import begins
from tests.support.chaos.inside import counted
from tests.support.chaos.storm import QUICK
from tests.support.clients.agents import KINDS, Agent
from tests.support.service.process import MODEL, ServiceProcess
from tests.support.waiting import wait_until

pytestmark = [pytest.mark.clients, pytest.mark.timeout(300)]

JUDGES = Path(__file__).parent / "judges.py"
KILLS = 3


def judged(form: str, lines: str) -> int:
    """How many of these lines the validator of a form takes. Raises CalledProcessError for one that it doesn't take."""
    done = subprocess.run([sys.executable, JUDGES, form], input=lines, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return int(done.stdout)


def test_ids_of_others_clients_are_exact_across_kills_and_others_take_them(tmp_path: Path) -> None:
    service = ServiceProcess(
        tmp_path / "service", trajectories=True, chats="remember", demo_tokens_per_second=300, **QUICK
    )
    agent, parent = Agent(KINDS["anthropic"], service.url, tmp_path / "home"), None
    try:
        for kill in range(KILLS):
            agent.turn(f"Count to {kill + 3}.")
            ask: Any = service.client().responses.create
            asked = {"model": MODEL, "input": f"Count to {100 + kill}.", "previous_response_id": parent}
            parent = ask(**asked, background=True).id
            wait_until(lambda id=parent: begins(service, id), 60, "it says nothing")
            service.kill()
            service.start()
            wait_until(lambda id=parent: service.client().responses.retrieve(id).status == "completed", 60, "no end")
            assert service.client().responses.retrieve(parent).output_text == counted(100 + kill)
        agent.turn("Count to 2.")
        queries = [{"limit": 100, "format": form} for form in ("atif", "gym")]
        atif, gym = [service.http().get("/v1/trajectories", params=query).text for query in queries]
    finally:
        service.stop()
    found = [json.loads(line) for line in atif.splitlines()]
    assert sorted(len(metrics(each)) for each in found) == [KILLS, KILLS + 1]
    for each in found:
        assert all(made["prompt_token_ids"] and made["completion_token_ids"] for made in metrics(each))
        check(each)
    assert (judged("atif", atif), judged("gym", gym)) == (2, 2)
