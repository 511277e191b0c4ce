"""Workers that are killed amid what is held to a format: what comes of it matches the format all the same.

Whoever takes over can't go on with a constraint in the middle, so the model goes on by itself and is checked at the
end.
"""

import asyncio
import json
from pathlib import Path
from typing import Any

import jsonschema_rs
import pytest

from tests.support.chaos.fleet import Fleet, running
from tests.support.chaos.follower import Follower
from tests.support.chaos.storm import QUICK
from tests.support.waiting import until

pytestmark = pytest.mark.timeout(300)

SECONDS = 90.0
HELD_DELTAS = ("response.output_text.delta", "response.function_call_arguments.delta")
AMID = 3
"""After how many deltas of what is held the workers are killed."""

NAMES = [f"field_{place}" for place in range(12)]
SCHEMA: dict[str, Any] = {
    "type": "object",
    "properties": {name: {"type": "string"} for name in NAMES},
    "required": NAMES,
    "additionalProperties": False,
}
FUNCTION = {"type": "function", "name": "file_report", "parameters": SCHEMA, "strict": True}

REQUESTS: dict[str, dict[str, Any]] = {
    "a JSON schema": {
        "input": "Report.",
        "text": {"format": {"type": "json_schema", "name": "report", "schema": SCHEMA, "strict": True}},
    },
    "strict arguments": {"input": "Use the file_report tool.", "tools": [FUNCTION]},
    "a forced tool choice": {
        "input": "Hello.",
        "tools": [FUNCTION],
        "tool_choice": {"type": "function", "name": "file_report"},
    },
}


def held(follower: Follower) -> int:
    """How much of what is held to a format has been told."""
    return sum(event["type"] in HELD_DELTAS for event in follower.events)


async def killed_amid(fleet: Fleet, followers: list[Follower]) -> None:
    """Kill all workers once each response is amid its held content, and start them again."""
    await until(lambda: all(held(each) > AMID for each in followers), SECONDS, "nothing held is told")
    assert not any(each.over for each in followers), fleet.history
    for worker in fleet.workers:
        fleet.kill(worker)
    for worker in fleet.workers:
        fleet.launch(worker)


async def test_a_worker_killed_amid_what_is_held_leaves_what_matches(tmp_path: Path) -> None:
    async with running(tmp_path, seed=7, apis=1, demo_tokens_per_second=20, **QUICK) as fleet:
        followers = {name: Follower(lambda: [fleet.apis[0].url], fleet.chance) for name in REQUESTS}
        tasks = [asyncio.create_task(followers[name].create(**request)) for name, request in REQUESTS.items()]
        await killed_amid(fleet, list(followers.values()))
        async with asyncio.timeout(SECONDS):
            await asyncio.gather(*tasks)
    for name, follower in followers.items():
        response = follower.response
        assert response["status"] == "completed", (name, response["error"])
        last = response["output"][-1]
        text = last["arguments"] if last["type"] == "function_call" else last["content"][0]["text"]
        jsonschema_rs.validate(SCHEMA, json.loads(text))
        assert (last["type"] == "function_call") == (name != "a JSON schema")
