"""A steered response ends where its next message ends, in an answer at once, and never within a call."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from service.api.response import FunctionCall, Message, Reasoning
from service.responses.output.machine import Ending, Machine
from service.responses.output.phases import Phase
from service.responses.output.rules import Rules
from tests.support.oracles.event_grammar import check_stream
from tests.support.responses import samples
from tests.support.responses.samples import NOW, as_json, harmony

THOUGHT = "<|channel|>analysis<|message|>Hm."
PREAMBLE = "<|channel|>commentary<|message|>I look."
CALL = "<|channel|>commentary to=functions.lookup<|message|>{}"
UNDECLARED = "<|channel|>commentary to=functions.stranger<|message|>{}"
ANSWER = "<|channel|>final<|message|>Four"
NEXT = "<|start|>assistant"
MORE = f"{NEXT}<|channel|>final<|message|>unheard"
TYPED = Rules(answer='{"type":"json_schema","json_schema":{"type":"object"}}')


def begun(text: str = "", rules: Rules = samples.RULES) -> Machine:
    """A machine that was fed this much and is then steered."""
    machine = samples.machine(rules)
    machine.begin()
    machine.feed(harmony(text))
    machine.steered = True
    return machine


@pytest.mark.parametrize(
    ("text", "rules"),
    [
        ("", samples.RULES),
        ("<|channel|>ana", samples.RULES),
        (f"{THOUGHT}<|end|>", samples.RULES),
        (f"{THOUGHT}<|end|>{NEXT}", samples.RULES),
        (ANSWER, samples.RULES),
        (f"{THOUGHT}<|end|>{NEXT}{ANSWER}", samples.RULES),
        (f"{UNDECLARED}<|call|>", samples.RULES),
        ("<|channel|>final<|message|>", TYPED),
    ],
)
def test_between_messages_and_in_an_answer_it_ends_at_once(text: str, rules: Rules) -> None:
    assert begun(text, rules).boundary is Ending.STEERED


@pytest.mark.parametrize(
    ("text", "mark", "ending"),
    [
        (THOUGHT, "<|end|>", Ending.STEERED),
        (PREAMBLE, "<|end|>", Ending.STEERED),
        (PREAMBLE, f"<|end|>{NEXT}{THOUGHT}<|end|>", Ending.STEERED),
        ("<|channel|>musing<|message|>Hm.", "<|end|>", Ending.STEERED),
        (UNDECLARED, "<|call|>", Ending.STEERED),
        (CALL, "<|call|>", Ending.STOP),
        (f"{CALL}<|call|>{NEXT}{CALL}", "<|call|>", Ending.STOP),
    ],
)
def test_every_other_message_is_heard_to_its_end(text: str, mark: str, ending: Ending) -> None:
    machine = begun(text)
    assert machine.boundary is None
    before = len(harmony(text))
    machine.feed(harmony(f"{mark}{MORE}"))
    assert machine.boundary is ending
    first = mark.index("|>") + 2
    assert machine.stretches.sampled == before + len(harmony(mark[:first])), "more was taken than up to the first mark"
    machine.end(ending)
    assert all(getattr(item, "status", "completed") != "incomplete" for item in machine.output)


@pytest.mark.parametrize(
    ("text", "kind", "status"), [(ANSWER, Message, "incomplete"), (f"{THOUGHT}<|end|>", Reasoning, "completed")]
)
def test_it_is_incomplete_because_it_was_steered(text: str, kind: type, status: str) -> None:
    machine = begun(text)
    machine.end(Ending.STEERED)
    response = machine.result(Ending.STEERED, now=NOW)
    assert response.incomplete_details is not None
    assert (response.status, response.incomplete_details.reason) == ("incomplete", "steered")
    assert isinstance(response.output[-1], kind)
    assert (getattr(response.output[-1], "status", None) or "completed") == status


def steered_run(ids: list[int], place: int, size: int) -> Machine:
    """A whole response that is steered at a place, and whose engine samples chunks of a size from there on."""
    machine = samples.machine()
    events = machine.begin() + samples.fed(machine, ids[:place])
    machine.steered = True
    while machine.boundary is None and machine.stretches.sampled < len(ids):
        if machine.phase is Phase.FEEDBACK:
            machine.give_feedback()
        events += machine.feed(ids[machine.stretches.sampled : machine.stretches.sampled + size])
    ending = machine.boundary or Ending.LENGTH
    events += machine.end(ending)
    events += machine.terminal(machine.result(ending, now=NOW))
    check_stream([as_json(event) for event in events])
    return machine


@given(ids=samples.streams, place=st.integers(0, 60))
def test_where_it_ends_does_not_depend_on_how_the_engine_chunks(ids: list[int], place: int) -> None:
    place = min(place, len(ids))
    one, many = steered_run(ids, place, 1), steered_run(ids, place, 1_000_000)
    assert one.output == many.output
    assert one.messages == many.messages
    calls = [item for item in one.output if isinstance(item, FunctionCall) and item.status == "incomplete"]
    assert not calls or one.stretches.sampled == len(ids)
