"""Workers that die amid what is held to a format: what comes of it matches the format all the same.

Whoever takes over can't go on with a constraint in the middle, so the model goes on by itself and is checked at the
end.
"""

import json
from typing import Any

import jsonschema_rs

from service.api.events import FunctionCallArgumentsDelta, OutputTextDelta
from service.api.request import read_create
from service.api.response import FunctionCall, Message, ResponseStatus
from tests.support.chaos.aftermath import Aftermath
from tests.support.chaos.deaths import TOKENS_PER_SECOND, Scenario, Stage
from tests.support.chaos.inside import CALLER, WatchedEngine, opened, working
from tests.support.service.making import queue_response
from tests.support.service.process import MODEL
from tests.support.waiting import until

SECONDS = 60.0
AMID = 40
"""The entry of its log that a worker writes last: each has a token."""

NAMES = [f"field_{place}" for place in range(12)]
SCHEMA: dict[str, Any] = {
    "type": "object",
    "properties": {name: {"type": "string"} for name in NAMES},
    "required": NAMES,
    "additionalProperties": False,
}
FUNCTION = {"type": "function", "name": "file_report", "parameters": SCHEMA, "strict": True}
FORMAT = {"type": "json_schema", "name": "report", "schema": SCHEMA, "strict": True}

REQUESTS: dict[str, dict[str, Any]] = {
    "a JSON schema": {"input": "Report.", "text": {"format": FORMAT}},
    "strict arguments": {"input": "Use the file_report tool.", "tools": [FUNCTION]},
    "a forced tool choice": {
        "input": "Hello.",
        "tools": [FUNCTION],
        "tool_choice": {"type": "function", "name": "file_report"},
    },
}


async def die(stage: Stage, name: str) -> None:
    """A response whose worker dies amid held content, as another one ends it."""
    settings = stage.settings()
    request = {"model": MODEL, "background": True, "stream": True, **REQUESTS[name]}
    async with Aftermath(settings) as aftermath:
        async with opened(settings) as service:
            id = await queue_response(service, CALLER, read_create(json.dumps(request).encode(), store=True))
        await stage.program.die(settings, "written", times=AMID)
        assert sum(
            isinstance(each, OutputTextDelta | FunctionCallArgumentsDelta) for each in await aftermath.events(id)
        )
        async with working(settings, WatchedEngine(TOKENS_PER_SECOND)):
            await until(lambda: aftermath.ended(id), SECONDS, "the job is stuck")
        await aftermath.check([id])
        response = await aftermath.response(id)
    assert response.status is ResponseStatus.COMPLETED, response.error
    last = response.output[-1]
    if name == "a JSON schema":
        assert isinstance(last, Message)
        text = last.content[0].text
    else:
        assert isinstance(last, FunctionCall)
        text = last.arguments
    jsonschema_rs.validate(SCHEMA, json.loads(text))


SCENARIO = Scenario(die, tuple(REQUESTS), pushed="a JSON schema")
