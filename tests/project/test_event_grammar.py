"""The checkers of streams, ours and the SDK's fold, are tripped here: a check that never fails checks nothing."""

from collections.abc import Callable
from copy import deepcopy
from typing import Any

import msgspec
import pytest
from openai._models import construct_type

from service.responses.output.machine import Ending
from tests.support.oracles import sdk_fold
from tests.support.oracles.event_grammar import Json, check_stream
from tests.support.oracles.sdk_fold import check_fold
from tests.support.responses import samples
from tests.support.responses.samples import as_json, harmony, run

EVERYTHING = (
    "<|channel|>analysis<|message|>Hm.<|end|>"
    "<|start|>assistant<|channel|>final<|message|>42<|end|>"
    "<|start|>assistant<|channel|>commentary to={stranger}<|message|>{{}}<|call|>"
    "<|start|>assistant<|channel|>commentary to=functions.lookup<|message|>{{}}<|call|>"
    '<|start|>assistant<|channel|>commentary to=functions.note<|message|>{{"input":"x"}}<|call|>'
)


def streamed(text: str, **rules: Any) -> list[Json]:
    """The events of a generation, decoded."""
    machine = samples.machine(msgspec.structs.replace(samples.RULES, **rules))
    return [as_json(event) for event in run(machine, [harmony(text)])]


STREAM = streamed(EVERYTHING.format(stranger="docs.search"))
SUMMED_UP = streamed(EVERYTHING.format(stranger="python"), summary="auto", sealed=True)
BROWSED = streamed(EVERYTHING.format(stranger="browser.search"), sealed=True)
SHOWN = streamed(EVERYTHING.format(stranger="python"), harmony=True)
COMPACTED = streamed(samples.ANSWER, compacting=True)
WAITED: list[Json] = [as_json(event) for event in run(samples.machine(), [], Ending.ABORT, background=True)]
FAILED: list[Json] = [as_json(event) for event in run(samples.machine(), [], Ending.ERROR)]


ANSWERED = [as_json(event) for event in run(samples.machine(), [harmony(samples.ANSWER)], background=True)]


def place_of(stream: list[Json], type: str) -> int:
    return next(place for place, event in enumerate(stream) if event["type"] == type)


def changed(type: str, **members: Any) -> Callable[[list[Json]], None]:
    """Change members of the first event of a type; `a__b` is b in a."""

    def change(stream: list[Json]) -> None:
        event = stream[place_of(stream, type)]
        for path, value in members.items():
            *within, last = path.split("__")
            target = event
            for key in within:
                target = target[key]
            target[last] = value

    return change


def lost(type: str) -> Callable[[list[Json]], None]:
    """Lose the first event of a type, and close the gap in the numbers."""

    def lose(stream: list[Json]) -> None:
        del stream[place_of(stream, type)]
        for number, event in enumerate(stream):
            event["sequence_number"] = number

    return lose


END, DONE = "response.completed", "response.output_item.done"
TOLD = {"token": "4", "logprob": -1.0, "top_logprobs": []}
BROKEN: dict[str, tuple[list[Json], Callable[[list[Json]], None]]] = {
    "no beginning": (STREAM, lost("response.created")),
    "no end": (STREAM, lost(END)),
    "an item that was never added": (STREAM, lost("response.output_item.added")),
    "a part that was never added": (STREAM, lost("response.content_part.added")),
    "a lost delta": (STREAM, lost("response.reasoning_text.delta")),
    "an empty delta": (STREAM, changed("response.output_text.delta", delta="")),
    "a done text that differs": (STREAM, changed("response.output_text.done", text="41")),
    "an output that lacks an item": (STREAM, changed(END, response__output=[])),
    "a completed response without its time": (STREAM, changed(END, response__completed_at=None)),
    "usage that doesn't add up": (STREAM, changed(END, response__usage__total_tokens=1)),
    "a call of a server's tool that never began": (STREAM, lost("response.mcp_call.in_progress")),
    "log probabilities that were never told": (STREAM, changed("response.output_text.done", logprobs=[TOLD])),
    "turns that don't add up": (
        SHOWN,
        changed(END, response__usage__output_tokens_details__output_tokens_per_turn=[1, 1]),
    ),
    "a lost delta of a summary": (SUMMED_UP, lost("response.reasoning_summary_text.delta")),
    "raw reasoning that isn't the summary": (SUMMED_UP, changed(DONE, item__content=[])),
    "a summary without the reasoning": (SUMMED_UP, lost("response.content_part.added")),
    "a seal of nothing": (BROWSED, changed(DONE, item__encrypted_content=None)),
    "a status that disagrees": (WAITED, changed("response.queued", response__status="cancelled")),
    "an answer before it began": (ANSWERED, lost("response.in_progress")),
    "a failure without its error": (FAILED, lost("error")),
}


def test_a_stream_of_every_kind_of_item_passes() -> None:
    calls = {"mcp_call": STREAM, "code_interpreter_call": SUMMED_UP, "web_search_call": BROWSED}
    for call, stream in calls.items():
        kinds = ["reasoning", "message", call, "function_call", "custom_tool_call"]
        assert [item["type"] for item in check_stream(stream)["output"]] == kinds
    assert [item["type"] for item in check_stream(COMPACTED)["output"]] == ["compaction"]
    assert check_stream(WAITED)["status"] == "cancelled"


@pytest.mark.parametrize(("stream", "breaking"), BROKEN.values(), ids=BROKEN)
def test_a_broken_stream_is_refused(stream: list[Json], breaking: Callable[[list[Json]], None]) -> None:
    check_stream(stream)
    broken = deepcopy(stream)
    breaking(broken)
    with pytest.raises(AssertionError):
        check_stream(broken)


# --- the SDK's fold, and the memory that spares it streams of one form ---

TRIPPING: dict[str, Callable[[list[Json]], object]] = {
    "renamed": lambda stream: stream[-1]["response"].update(id="resp_" + 48 * "0"),
    "never added": lambda stream: stream.pop(place_of(stream, "response.output_item.added")),
    "a text that is lost": lambda stream: stream.pop(place_of(stream, "response.output_text.delta")),
}


@pytest.mark.parametrize("breaking", TRIPPING.values(), ids=TRIPPING)
def test_a_stream_that_the_sdk_trips_over_is_refused(
    breaking: Callable[[list[Json]], object], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sdk_fold, "_seen", set())
    for stream in (STREAM, SUMMED_UP, BROWSED, COMPACTED, WAITED, FAILED):
        check_fold(stream)
    broken = deepcopy(STREAM)
    breaking(broken)
    with pytest.raises((AssertionError, AttributeError, IndexError, KeyError, RuntimeError, TypeError)):
        check_fold(broken)


def test_every_checked_stream_is_read_by_the_sdk_and_what_it_knows_once(monkeypatch: pytest.MonkeyPatch) -> None:
    read: list[Json] = []

    def noted(type_: type, value: Json) -> object:
        read.append(value)
        return construct_type(type_=type_, value=value)

    monkeypatch.setattr(sdk_fold, "_seen", set())
    monkeypatch.setattr(sdk_fold, "construct_type", noted)
    for stream in (STREAM, STREAM, BROWSED, STREAM, BROWSED):
        check_stream(stream)
    assert read == [*STREAM, *BROWSED]
