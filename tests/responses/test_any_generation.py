"""Whatever a model says, and whatever was asked: a whole stream, the same response when it is read again, and a
conversation that goes on.
"""

from random import Random
from typing import Any

import pytest

from service.background.timing import Timing
from service.backoff import Backoff
from service.engine.port import Finish, Generation
from service.settings.settings import Settings
from tests.support.engine.scripted import EndWithoutFinish, FinishWith, Script, Step
from tests.support.responses.samples import harmony
from tests.support.service.background import changed, retrieved
from tests.support.service.inside import scripted, serving
from tests.support.service.seen import made

IMPATIENT = Timing(engine_away=Backoff(0.01, 0.02))
REQUESTS = 120
"""Some two seconds."""

CITY: Any = {"type": "object", "properties": {"city": {"type": "string"}}, "additionalProperties": False}
LOOK: Any = {"type": "function", "name": "look", "parameters": CITY, "strict": True}
NOTE: Any = {"type": "custom", "name": "note"}
CODE: Any = {
    "type": "custom",
    "name": "code",
    "format": {"type": "grammar", "syntax": "regex", "definition": "[a-z]{2,5}"},
}
CRM: Any = {"type": "namespace", "name": "crm", "description": "Customers.", "tools": [LOOK]}
FORM: Any = {"type": "json_schema", "name": "n", "schema": {"type": "object", "properties": {"n": {"type": "integer"}}}}

TOOLS = [[], [LOOK, NOTE, CODE], [CRM, NOTE]]
OPTIONS: list[dict[str, Any]] = [
    {},
    {"text": {"format": FORM}},
    {"include": ["message.output_text.logprobs"], "top_logprobs": 2},
    {"include": ["reasoning.encrypted_content"], "reasoning": {"summary": "auto"}, "enable_response_messages": True},
    {"max_output_tokens": 20, "stop": ["o"]},
    {"background": True},
    {"background": True, "include": ["message.output_text.logprobs"], "text": {"format": FORM}},
]
MESSAGES = [
    "<|channel|>analysis<|message|>Hm.<|end|><|start|>assistant",
    "<|channel|>commentary<|message|>Wait.<|end|><|start|>assistant",
    '<|channel|>commentary to=functions.look <|constrain|>json<|message|>{"city":"Paris"}<|call|>',
    '<|start|>assistant<|channel|>commentary to=functions.note <|constrain|>json<|message|>{"input":"x"}<|call|>',
    "<|channel|>commentary to=functions.code<|message|>abc<|call|>",
    "<|channel|>commentary to=crm.look<|message|>{}<|call|>",
    "<|channel|>commentary to=functions.moon<|message|>{}<|call|>",
    "<|channel|>analysis to=python<|message|>1+1<|call|>",
    '<|channel|>final<|message|>{"n":1}<|return|>',
    "<|channel|>final<|message|>Hello 🏗️<|return|>",
]
PIECES = [
    *("<|channel|>", "<|message|>", "<|end|>", "<|start|>assistant", "<|call|>", "<|return|>", "<|constrain|>"),
    *("analysis", "commentary", "final", " to=functions.look", " to=python", " to=", "json", '{"n":', "abc", " ", "é"),
]


def any_script(random: Random) -> list[Step]:
    """What a model may say, in chunks of any size, and how its engine may end."""
    said = [random.choice(MESSAGES if random.random() < 0.5 else PIECES) for _ in range(random.randrange(9))]
    ids = [*harmony("".join(said)), *random.choices([200000, 201087, 250000], k=random.random() < 0.2)]
    steps: list[Step] = []
    while ids:
        size = random.randrange(1, 9)
        steps.append(ids[:size])
        ids = ids[size:]
    endings: list[Step] = [*map(FinishWith, Finish), EndWithoutFinish()]
    return [*steps, *([random.choice(endings)] if random.random() < 0.2 else [])]


@pytest.mark.parametrize("seed", [0, 1])
async def test_whatever_a_model_says_its_stream_is_whole_and_goes_on(settings: Settings, seed: int) -> None:
    random = Random(seed)

    def play(generation: Generation) -> Script:
        return any_script(random)

    ends = set[str]()
    async with serving(changed(settings, max_attempts=2), scripted(play), IMPATIENT) as inside:
        before: dict[str, Any] | None = None
        for _ in range(REQUESTS // 2):
            body = {"tools": random.choice(TOOLS), "parallel_tool_calls": random.random() < 0.6, **asked_after(before)}
            response = await made(inside, **body, **random.choice(OPTIONS))
            assert (await retrieved(inside, response["id"])).json() == response
            assert body["parallel_tool_calls"] or len(calls_of(response)) <= 1
            ends.add(response["status"])
            goes_on = response["status"] in ("completed", "incomplete") and random.random() < 0.6
            before = response if goes_on else None
    assert ends >= {"completed", "incomplete", "failed"}


def calls_of(response: dict[str, Any]) -> list[dict[str, Any]]:
    """The calls of the caller's tools."""
    return [item for item in response["output"] if item["type"] in ("function_call", "custom_tool_call")]


def asked_after(before: dict[str, Any] | None) -> dict[str, Any]:
    """The next input: the outputs of all calls, and a word."""
    go: Any = [{"role": "user", "content": "Go on."}]
    if before is None:
        return {"input": go}
    answered = [call for call in calls_of(before) if call["status"] == "completed"]
    outputs = [{"type": f"{call['type']}_output", "call_id": call["call_id"], "output": "so"} for call in answered]
    return {"input": outputs + go, "previous_response_id": before["id"]}
