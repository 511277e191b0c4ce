"""A service that is killed amid its answers: the ids of each are still those that were read and sampled, each once."""

import json
from pathlib import Path
from typing import Any

import pytest

from tests.features.trajectories.test_trajectories import check, metrics
from tests.support.chaos.inside import counted
from tests.support.chaos.storm import QUICK
from tests.support.lengths import lengths
from tests.support.service.process import MODEL, ServiceProcess
from tests.support.waiting import wait_until

TOOL: Any = {"type": "function", "name": "get_weather", "parameters": {"type": "object", "properties": {}}}
ENDED = ("completed", "failed", "incomplete", "cancelled")


@pytest.mark.parametrize("kills", lengths(1, 3))
def test_ids_stay_exact_across_kills_in_the_middle_of_answers(tmp_path: Path, kills: int) -> None:
    service = ServiceProcess(tmp_path, trajectories=True, demo_tokens_per_second=300, **QUICK)
    try:
        ask: Any = service.client().responses.create
        first = ask(model=MODEL, input="How is the weather in Rome?", tools=[TOOL], tool_choice="required")
        call = next(item for item in first.output if item.type == "function_call")
        told = [{"type": "function_call_output", "call_id": call.call_id, "output": "9 °C"}]
        parent = ask(model=MODEL, input=told, previous_response_id=first.id, tools=[TOOL]).id
        for kill in range(kills):
            begun = service.client().responses.create(
                model=MODEL, input=f"Count to {100 + kill}.", previous_response_id=parent, background=True
            )
            wait_until(lambda id=begun.id: begins(service, id), 60, "it says nothing")
            service.kill()
            service.start()
            wait_until(lambda id=begun.id: service.client().responses.retrieve(id).status in ENDED, 60, "no end")
            ended = service.client().responses.retrieve(begun.id)
            assert (ended.status, ended.output_text) == ("completed", counted(100 + kill))
            parent = begun.id
        last = service.client().responses.create(model=MODEL, input="Thanks!", previous_response_id=parent)
        (found,) = map(json.loads, service.http().get("/v1/trajectories", params={"id": last.id}).text.splitlines())
    finally:
        service.stop()
    made = metrics(found)
    assert len(made) == kills + 3
    assert all(each["prompt_token_ids"] and each["completion_token_ids"] for each in made)
    assert all(len(each["logprobs"]) == len(each["completion_token_ids"]) for each in made)
    check(found)


def begins(service: ServiceProcess, id: str) -> bool:
    """Whether some of an answer is there."""
    output = service.client().responses.retrieve(id).output
    return any(item.type == "message" and item.to_dict()["content"] for item in output)
