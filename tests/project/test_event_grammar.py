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


def incomplete_in_the_middle(stream: list[Json]) -> None:
    changed("response.output_item.done", item__status="incomplete")(stream)
    stream[-1]["response"]["output"][0]["status"] = "incomplete"


BROKEN: dict[str, Callable[[list[Json]], None]] = {
    "no beginning": lost("response.created"),
    "a part that was never added": lost("response.content_part.added"),
    "an empty delta": changed("response.output_text.delta", delta=""),
    "a done text that differs": changed("response.output_text.done", text="41"),
    "an item cut short in the middle": incomplete_in_the_middle,
    "a completed response without its time": changed("response.completed", response__completed_at=None),
    "usage that doesn't add up": changed("response.completed", response__usage__total_tokens=1),
    "figures of turns for which nobody asked": changed(
        "response.completed", response__usage__input_tokens_details__cached_tokens_per_turn=[0]
    ),
    "a call of a server's tool that never began": lost("response.mcp_call.in_progress"),
    "log probabilities that were never told": changed(
        "response.output_text.done", logprobs=[{"token": "4", "logprob": -1.0, "top_logprobs": []}]
    ),
}
BROKEN_TURNS: dict[str, Callable[[list[Json]], None]] = {
    "turns that don't add up": changed(
        "response.completed", response__usage__output_tokens_details__output_tokens_per_turn=[1, 1]
    )
}
BROKEN_SUMMARIES: dict[str, Callable[[list[Json]], None]] = {
    "a lost delta of a summary": lost("response.reasoning_summary_text.delta"),
    "raw reasoning that isn't the summary": changed("response.output_item.done", item__content=[]),
    "a summary without the reasoning": lost("response.content_part.added"),
}


def test_a_stream_of_every_kind_of_item_passes() -> None:
    calls = {"mcp_call": STREAM, "code_interpreter_call": SUMMED_UP, "web_search_call": BROWSED}
    for call, stream in calls.items():
        kinds = ["reasoning", "message", call, "function_call", "custom_tool_call"]
        assert [item["type"] for item in check_stream(stream)["output"]] == kinds
    assert [item["type"] for item in check_stream(COMPACTED)["output"]] == ["compaction"]
    assert check_stream(WAITED)["status"] == "cancelled"


ANSWERED = [as_json(event) for event in run(samples.machine(), [harmony(samples.ANSWER)], background=True)]
TABLES: list[tuple[list[Json], dict[str, Callable[[list[Json]], None]]]] = [
    *((STREAM, BROKEN), (SHOWN, BROKEN_TURNS), (SUMMED_UP, BROKEN_SUMMARIES)),
    (WAITED, {"a status that disagrees": changed("response.queued", response__status="cancelled")}),
    (ANSWERED, {"an answer before it began": lost("response.in_progress")}),
    (FAILED, {"a failure without its error": lost("error")}),
]
ROWS = {name: (stream, breaking) for stream, table in TABLES for name, breaking in table.items()}


@pytest.mark.parametrize(("stream", "breaking"), ROWS.values(), ids=ROWS)
def test_a_broken_stream_is_refused(stream: list[Json], breaking: Callable[[list[Json]], None]) -> None:
    check_stream(stream)
    broken = deepcopy(stream)
    breaking(broken)
    with pytest.raises(AssertionError):
        check_stream(broken)


def test_a_seal_of_nothing_is_refused() -> None:
    for stream in map(deepcopy, (BROWSED, COMPACTED)):
        changed("response.output_item.done", item__encrypted_content=None)(stream)
        stream[-1]["response"]["output"][0]["encrypted_content"] = None

        with pytest.raises(AssertionError):
            check_stream(stream)


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
