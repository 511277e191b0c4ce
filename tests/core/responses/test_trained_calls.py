"""Calls of tools that the model was trained with, where the service runs them: Python, and a browser.

As in test_hosted_calls.py the engine goes by a script, and the tools answer at once.
"""

import pytest

from service.api.outcome import Outcome
from service.api.tools.builtin import callees
from service.api.tools.callee import Callee
from service.harmony import tokens
from service.responses.output.rules import Rules
from tests.core.responses.test_hosted_calls import WHOLE, Tools, kinds
from tests.support.responses import samples
from tests.support.responses.samples import harmony
from tests.support.responses.sampling import made

OWN = Callee("own")
(PYTHON,) = callees("python", "{}")
RULES = Rules((PYTHON, *callees("browser", "{}"), OWN), parallel=4, hosted_calls=64)
CODE = "<|channel|>analysis to=python code<|message|>print(2)<|call|>"
FINAL = "<|channel|>final<|message|>It is 2.<|return|>"
TWO = Outcome("completed", "2\n", shown={"container_id": "cntr_1", "outputs": [{"type": "logs", "logs": "2\n"}]})
FOUND = Outcome("completed", "[0] tides", shown={"action": {"type": "search", "query": "tides", "sources": []}})


@pytest.mark.parametrize(
    ("header", "asked"),
    [
        ("analysis to=python code", "python"),
        ("analysis to=python", "python"),
        ("commentary to=python code", "python"),
        ("analysis to=pythoncode", "python"),
        ("analysis to=functions.python code", "python"),
        ("commentary to=functions.python <|constrain|>json", "python"),
        ("analysis to=browser.search code", "search"),
        ("commentary to=browser.search <|constrain|>json", "search"),
        ("analysis to=browser.searchcode", "search"),
        ("commentary to=functions.browser.open json", "open"),
        ("analysis to=browser.findjson", "find"),
    ],
)
async def test_they_are_found_however_the_model_writes_their_header(header: str, asked: str) -> None:
    tools = Tools(TWO if asked == "python" else FOUND)
    call = f"<|channel|>{header}<|message|>{{}}<|call|>"
    _, response, generations = await made(samples.machine(RULES), WHOLE, call, FINAL, tools=tools)

    assert [call.tool.tool for call in tools.calls] == [asked]
    assert response.status == "completed"
    channel = header.split(" ")[0]
    assert f"to=assistant{channel}" in tokens.decode(generations[1].prompt[4:])


async def test_a_call_whose_header_was_malformed_stands_in_later_prompts_as_the_model_was_trained() -> None:
    call = "<|channel|>analysis to=functions.python json<|message|>print(2)<|call|>"
    machine, _, _ = await made(samples.machine(RULES), WHOLE, call, FINAL, tools=Tools(TWO))

    openai = "<|start|>assistant to=python<|channel|>analysis code<|message|>print(2)<|call|>"
    assert machine.messages[0].tokens == tokens.pack(harmony(openai))


async def test_a_function_that_the_caller_declared_by_the_same_name_is_the_callers() -> None:
    rules = Rules((PYTHON, Callee("python")), parallel=4, hosted_calls=64)
    mine = "<|channel|>commentary to=functions.python <|constrain|>json<|message|>{}<|call|>"
    _, response, _ = await made(samples.machine(rules), WHOLE, mine, tools=Tools())
    _, ours, _ = await made(samples.machine(rules), WHOLE, CODE, FINAL, tools=Tools(TWO))

    assert kinds(response) == ["function_call completed"]
    assert kinds(ours) == ["code_interpreter_call completed", "message completed"]
