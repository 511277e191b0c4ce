"""A background response's machine: it waits and begins, and one that replays goes on as the one before would have."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from service.api.events import Event
from service.responses.output.journal import batch_of
from service.responses.output.machine import Ending, Machine
from service.responses.output.next_step import ending_of
from service.steps import in_one_go
from tests.support.oracles.event_grammar import check_stream
from tests.support.responses import samples
from tests.support.responses.samples import ANSWER, NOW, as_json, harmony, run

endings = st.sampled_from(Ending)

CALL = "<|channel|>commentary to=functions.lookup<|message|>{}<|call|>"
"""Another one may follow it."""


def restarted(*sampled: list[int]) -> Machine:
    """Another machine for the same response, after a replay of what was sampled."""
    machine = samples.machine()
    machine.queue()
    machine.start()
    in_one_go(machine.replay(b"".join(map(batch_of, sampled))))
    return machine


def rest(machine: Machine, ids: list[int], ending: Ending) -> list[Event]:
    """The events from here to the terminal one."""
    events = samples.fed(machine, ids) + machine.end(ending)
    return events + machine.terminal(machine.result(ending, now=NOW))


# --- it waits, it begins ---


@given(ids=samples.streams, ending=endings)
def test_but_for_its_beginning_it_is_the_stream_of_any_response(ids: list[int], ending: Ending) -> None:
    stream = [as_json(event) for event in run(samples.machine(), [ids], ending, background=True)]
    foreground = [as_json(event) for event in run(samples.machine(), [ids], ending)]

    assert check_stream(stream) == check_stream(foreground)
    assert [event["type"] for event in stream[3:]] == [event["type"] for event in foreground[2:]]


# --- replays ---


@given(ids=samples.streams, places=samples.cuts, ending=endings)
def test_a_machine_goes_on_where_another_stopped(ids: list[int], places: list[int], ending: Ending) -> None:
    whole = run(samples.machine(), [ids], ending, background=True)
    if ending in (Ending.ERROR, Ending.TIMEOUT):
        return  # `run` gives these an error of its own
    for place in (place for place in (0, *places, len(ids)) if place <= len(ids)):
        machine = restarted(ids[:place])
        number = machine.next_number

        assert machine.stretches.sampled == place
        assert rest(machine, ids[place:], ending) == whole[number:]


@pytest.mark.parametrize(
    ("sampled", "max_tokens", "ending"),
    [
        ("", 9, None),
        ("<|channel|>final<|message|>4", 9, None),
        (ANSWER, 9, Ending.STOP),
        (ANSWER, 5, Ending.STOP),
        ("<|channel|>final<|message|>42", 4, Ending.LENGTH),
        ("<|channel|>final<|message|>42<|end|>", 9, None),
        (CALL, 99, None),
        (f"{CALL}<|start|>assistant<|channel|>final<|message|>", 99, Ending.STOP),
        ("<|channel|>commentary<|message|>Hm.<|call|>", 99, Ending.STOP),
    ],
)
def test_a_generation_is_over_where_the_engine_would_have_ended_it(
    sampled: str, max_tokens: int, ending: Ending | None
) -> None:
    ids = harmony(sampled)

    assert ending_of(restarted(ids), max_tokens) is ending
