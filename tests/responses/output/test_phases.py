"""The phases of a machine: each call is legal where the table has it, and refused everywhere else, changing nothing."""

from collections.abc import Callable
from typing import Any

import msgspec
import pytest

from service.api.outcome import Outcome
from service.api.response import ResponseStatus
from service.api.tools.callee import Callee, Hosted
from service.harmony import tokens
from service.responses.output.machine import Ending, Machine
from service.responses.output.phases import MOVES, Move, OutOfOrder, Phase
from service.responses.output.rules import Rules
from tests.support.responses import samples
from tests.support.responses.samples import NOW, as_json, harmony

ANSWER = "<|channel|>final<|message|>"
STRANGER = "<|channel|>commentary to=functions.stranger<|message|>{}<|call|>"
HOSTED = Callee("look", namespace="docs", hosted=Hosted("docs", "look"))
RULES = Rules((HOSTED,), answer='{"type":"json_schema","json_schema":{"type":"object"}}', hosted_calls=2)
SAMPLED = {
    Phase.SAMPLING: "<|channel|>analysis<|message|>Hm",
    Phase.CONSTRAINED: ANSWER,
    Phase.FEEDBACK: STRANGER,
    Phase.CALLING: "<|channel|>commentary to=docs.look<|message|>{}<|call|>",
    Phase.FULL: "<|channel|>commentary<|message|>I look.<|call|>",
}
"""What brings a machine with RULES that has begun into a phase."""


def at(phase: Phase) -> Machine:
    machine = samples.machine(RULES)
    if phase is Phase.QUEUED:
        machine.queue()
    elif phase is Phase.DIVERGED:
        machine.queue()
        machine.diverge(7)
    elif phase is not Phase.NEW:
        machine.begin()
        machine.feed(harmony(SAMPLED.get(phase, "")))
    if phase in (Phase.ENDED, Phase.CLOSED):
        machine.end(Ending.ABORT)
    if phase is Phase.CLOSED:
        machine.terminal(machine.result(Ending.ABORT, now=NOW))
    return machine


CANCELLED = msgspec.structs.replace(samples.created(), status=ResponseStatus.CANCELLED)
CALLS: dict[Move, Callable[[Machine], object]] = {
    Move.BEGIN: Machine.begin,
    Move.QUEUED: Machine.queue,
    Move.START: Machine.start,
    Move.FEED: lambda machine: machine.feed(tokens.encode("a")),
    Move.GIVE_FEEDBACK: Machine.give_feedback,
    Move.TAKE_OUTCOME: lambda machine: machine.take_outcome(Outcome("completed", "Found.")),
    Move.DIVERGE: lambda machine: machine.diverge(machine.next_number),
    Move.END: lambda machine: machine.end(Ending.ABORT),
    Move.RESULT: lambda machine: machine.result(Ending.ABORT, now=NOW),
    Move.TERMINAL: lambda machine: machine.terminal(CANCELLED),
}


def state(machine: Machine) -> list[Any]:
    """All that can be seen of a machine."""
    usage, messages = machine.stretches.usage(by_stretch=True), list(machine.messages)
    seen = (
        machine.phase,
        machine.next_number,
        machine.calls,
        machine.fault,
        machine.feedback,
        machine.open_item,
        machine.pending,
    )
    return [seen, usage, messages, list(machine.stretches.tail), as_json(machine.snapshot())]


@pytest.mark.parametrize("phase", Phase)
def test_a_call_out_of_order_is_refused_and_changes_nothing(phase: Phase) -> None:
    for move in CALLS.keys() - MOVES[phase].keys():
        machine = at(phase)
        before = state(machine)
        with pytest.raises(OutOfOrder) as refused:
            CALLS[move](machine)

        assert (refused.value.phase, refused.value.move) == (phase, move)
        assert str(refused.value) == f"'{move}' is not legal for a machine that is {phase}"
        assert state(machine) == before
