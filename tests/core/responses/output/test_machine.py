"""One response as a machine: a stream that keeps the grammar on any tokens, and an end that fits how sampling ended."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from service.responses.output.machine import Ending, Machine
from service.responses.output.phases import OutOfOrder
from tests.support.lengths import lengths
from tests.support.oracles.event_grammar import check_stream
from tests.support.responses import samples
from tests.support.responses.samples import ANSWER, NOW, as_json, harmony, run, sampled, split

endings = st.sampled_from(Ending)


# --- the stream ---


@pytest.mark.parametrize("streams", lengths(settings().max_examples, 10_000, seconds=600))
def test_any_tokens_give_a_stream_that_keeps_the_grammar(streams: int) -> None:
    @settings(max_examples=streams, derandomize=True)
    @given(ids=samples.streams, ending=endings)
    def one(ids: list[int], ending: Ending) -> None:
        check_stream([as_json(event) for event in run(samples.machine(), [ids], ending)])

    one()


@given(ids=samples.streams, places=samples.cuts, ending=endings)
def test_events_do_not_depend_on_how_the_engine_chunks(ids: list[int], places: list[int], ending: Ending) -> None:
    whole = run(samples.machine(), [ids], ending)

    assert run(samples.machine(), [[token] for token in ids], ending) == whole
    assert run(samples.machine(), split(ids, places), ending) == whole


# --- how it ends ---


def finished(text: str, ending: Ending) -> tuple[str, str | None, str | None]:
    """Status, the reason for an incomplete one, and the last item's status."""
    machine = samples.machine()
    run(machine, [harmony(text)], ending)
    response = machine.result(ending, now=NOW)
    reason = response.incomplete_details and response.incomplete_details.reason
    return response.status, reason, getattr(response.output[-1], "status", None) if response.output else None


@pytest.mark.parametrize(
    ("ending", "expected"),
    [
        (Ending.STOP, ("completed", None, "completed")),
        (Ending.LENGTH, ("incomplete", "max_output_tokens", "incomplete")),
        (Ending.ABORT, ("cancelled", None, "incomplete")),
        (Ending.TIMEOUT, ("failed", None, "incomplete")),
        (Ending.ERROR, ("failed", None, "incomplete")),
    ],
)
def test_the_ending_decides_the_statuses(ending: Ending, expected: tuple[str, str | None, str | None]) -> None:
    assert finished("<|channel|>final<|message|>4", ending) == expected


def test_a_model_that_says_nothing_at_all_is_incomplete() -> None:
    assert finished("", Ending.STOP) == ("incomplete", "no_output", None)
    assert finished("", Ending.LENGTH) == ("incomplete", "max_output_tokens", None)


def test_usage_counts_every_sampled_token_and_those_of_reasoning() -> None:
    thought = "<|channel|>analysis<|message|>Hm.<|end|>"
    answer = f"<|start|>assistant{ANSWER}"
    machine = sampled(thought + answer)
    machine.stretches.note_cached(64)
    usage = machine.result(Ending.STOP, now=NOW).usage

    assert usage is not None
    assert usage.input_tokens == samples.PROMPT_TOKENS
    assert usage.input_tokens_details.cached_tokens == 64
    assert usage.output_tokens == len(harmony(thought + answer))
    assert usage.output_tokens_details.reasoning_tokens == len(harmony(thought))
    assert usage.total_tokens == usage.input_tokens + usage.output_tokens


@pytest.mark.parametrize("machine", [samples.machine(), sampled(ANSWER)], ids=["new", "closed"])
def test_a_move_out_of_order_is_refused_and_changes_nothing(machine: Machine) -> None:
    before = machine.phase, machine.next_number, machine.stretches.sampled, as_json(machine.snapshot())
    for move in (lambda: machine.feed([1]), machine.start, lambda: machine.end(Ending.STOP), machine.give_feedback):
        with pytest.raises(OutOfOrder):
            move()

    assert (machine.phase, machine.next_number, machine.stretches.sampled, as_json(machine.snapshot())) == before
