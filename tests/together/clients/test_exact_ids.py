"""Others' agents and SDKs over a service that is killed: each prompt goes on from the one before, and others' validators
take the trajectories.
"""

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from tests.features.trajectories.test_trajectories import check, metrics
from tests.support.chaos.inside import counted
from tests.support.chaos.storm import QUICK
from tests.support.clients.agents import KINDS, Agent
from tests.support.service.process import MODEL, ServiceProcess
from tests.support.waiting import wait_until

pytestmark = pytest.mark.clients

JUDGES = Path(__file__).parent / "judges.py"
KILLS = 3


def judged(form: str, lines: str) -> int:
    """How many of these lines the validator of a form takes. Raises CalledProcessError for one that it doesn't take."""
    done = subprocess.run([sys.executable, JUDGES, form], input=lines, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return int(done.stdout)


def test_ids_of_others_clients_are_exact_across_kills_and_others_take_them(tmp_path: Path) -> None:
    service = ServiceProcess(
        tmp_path / "service", trajectories=True, chats="remembered", demo_tokens_per_second=300, **QUICK
    )
    agents = [Agent(KINDS[name], service.url, tmp_path / name) for name in ("codex", "anthropic")]
    parent: Any = None
    try:
        for kill in range(KILLS):
            for agent in agents:
                agent.turn(f"Count to {kill + 3}.")
            ask: Any = service.client().responses.create
            asked = {"model": MODEL, "input": f"Count to {100 + kill}.", "previous_response_id": parent}
            parent = ask(**asked, background=True).id
            wait_until(lambda id=parent: says(service, id), 60, "it says nothing")
            service.kill()
            service.start()
            wait_until(lambda id=parent: retrieve(service, id).status == "completed", 60, "no end")
            assert retrieve(service, parent).output_text == counted(100 + kill)
        for agent in agents:
            agent.turn("Count to 2.")
        texts = [
            service.http().get("/v1/trajectories", params={"limit": 100, "format": form}).text
            for form in ("atif", "gym")
        ]
    finally:
        service.stop()
    found = [json.loads(line) for line in texts[0].splitlines()]
    print([(len(each["steps"]), [(len(m.get("prompt_token_ids", ())), m.get("extra")) for m in metrics(each)]) for each in found])
    assert [judged(form, text) for form, text in zip(("atif", "gym"), texts, strict=True)] == [len(found)] * 2
    for each in found:
        check(each)
    assert 0


def retrieve(service: ServiceProcess, id: str) -> Any:
    return service.client().responses.retrieve(id)


def says(service: ServiceProcess, id: str) -> bool:
    """Whether some of an answer is there."""
    return any(item.type == "message" and item.to_dict()["content"] for item in retrieve(service, id).output)
