"""`harmonium replay`: the user's turns of a conversation asked again, with the recorded outcomes of calls."""

import json
from collections.abc import Callable
from typing import Any
from unittest.mock import Mock

import pytest

from service.commands.arguments import EXIT_INTERRUPTED
from service.features.trajectories import replay
from tests.features.trajectories.test_trajectories import call
from tests.support.engine.scripted import ScriptedEngine, Stall
from tests.support.service.beside import ServiceBeside
from tests.support.service.commands import run
from tests.support.service.inside import answer, scripted, then, thought
from tests.support.service.process import MODEL

TOOLS: Any = [
    {"type": "function", "name": name, "parameters": {"type": "object", "properties": {"city": {"type": "string"}}}}
    for name in ("weather", "news")
]


@pytest.fixture
def served(
    beside: Callable[..., ServiceBeside], monkeypatch: pytest.MonkeyPatch
) -> Callable[..., tuple[ServiceBeside, ScriptedEngine]]:
    def serve(*replayed: list[list[int]]) -> tuple[ServiceBeside, ScriptedEngine]:
        first = [thought("They want weather."), then(call('{"city": "Rome"}'))], [answer("Rain.")], [answer("Bye.")]
        engine = scripted(*first, *replayed)
        service = beside(engine=engine)
        monkeypatch.setenv("HARMONIUM_URL", service.url)
        return service, engine

    return serve


def converse(service: ServiceBeside) -> str:
    """Have a conversation with a call; the id of its last response."""

    def ask(told: Any, before: str | None = None) -> Any:
        return service.client().responses.create(
            model=MODEL,
            input=told,
            previous_response_id=before,
            instructions="Be brief.",
            tools=TOOLS,
            parallel_tool_calls=False,
        )

    first = ask("How is the weather in Rome?")
    made = next(item for item in first.output if item.type == "function_call")
    second = ask([{"type": "function_call_output", "call_id": made.call_id, "output": "rain, 9 °C"}], first.id)
    return ask("Thanks!", second.id).id


def test_a_replay_asks_the_user_s_turns_again_and_gives_back_recorded_outcomes(served: Callable[..., Any]) -> None:
    service, engine = served([call('{ "city":"Rome" }')], [answer("Wet.")], [answer("Ciao.")])
    id = converse(service)
    told = run("replay", id, "--instructions", "Be Italian.", "--json")
    assert told.exit_code == 0, told.output
    assert told.stderr == "1 recorded\n"
    shown = json.loads(told.stdout)
    assert (shown["id"], shown["calls"]) == (id, {"recorded": 1})
    assert shown["compare"] == f"{service.url}/console#/compare/{id}/{shown['replay']}"
    assert [[item["type"] for item in turn["then"]] for turn in shown["turns"]] == [
        ["reasoning", "function_call", "function_call_output", "message"],
        ["message"],
    ]
    assert [[item["type"] for item in turn["now"]] for turn in shown["turns"]] == [
        ["function_call", "function_call_output", "message"],
        ["message"],
    ]
    assert shown["turns"][0]["now"][1]["output"] == "rain, 9 °C"
    made = service.client().responses.retrieve(shown["replay"])
    assert (made.instructions, made.metadata, made.background) == ("Be Italian.", {"replay_of": id}, True)
    assert engine.generations[-1].priority == 2, "it waits for everything else"
    assert service.client().responses.retrieve(id).output_text == "Bye.", "the first one stays"


def test_both_are_shown_beside_each_other(served: Callable[..., Any]) -> None:
    service, _ = served([answer("Look out of the window.")], [answer("Ciao.")])
    told = run("replay", converse(service), "--model", MODEL)
    assert told.exit_code == 0, told.output
    lines = told.stdout.splitlines()
    assert lines[0] == "user: How is the weather in Rome?"
    assert any("reasoning: They want weather." in line and "│ assistant: Look out of" in line for line in lines), lines
    assert any(line.startswith("assistant: Bye.") and line.endswith("│ assistant: Ciao.") for line in lines), lines
    assert "/console#/compare/resp_" in lines[-1]
    assert told.stderr == "no calls\n"


def test_what_was_not_recorded_is_said(served: Callable[..., Any]) -> None:
    other = call('{"city": "Oslo"}')
    service, _ = served([other], [other], [answer("Wet.")], [answer("Ciao.")])
    told = run("replay", converse(service), "--model", MODEL, "--json")
    assert told.exit_code == 0, told.output
    shown = json.loads(told.stdout)
    assert shown["calls"] == {"of other arguments": 1, "not recorded": 1}
    outputs = [item["output"] for item in shown["turns"][0]["now"] if item["type"] == "function_call_output"]
    assert outputs == ["rain, 9 °C", "No outcome of this call was recorded. Go on without it."]


def test_ctrl_c_cancels_the_response_under_way(served: Callable[..., Any], monkeypatch: pytest.MonkeyPatch) -> None:
    service, _ = served([Stall()])
    id = converse(service)
    waited = Mock(side_effect=KeyboardInterrupt)
    monkeypatch.setattr(replay, "waited_for", waited)
    assert run("replay", id, "--model", MODEL).exit_code == EXIT_INTERRUPTED
    assert service.client().responses.retrieve(waited.call_args.args[1]).status == "cancelled"


def test_a_replay_changes_something(served: Callable[..., Any]) -> None:
    service, _ = served()
    told = run("replay", converse(service))
    assert (told.exit_code, told.stderr) == (2, "harmonium: give --model, --instructions or both\n")
