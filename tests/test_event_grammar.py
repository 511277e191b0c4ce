"""The checker of streams is tripped here, once for each rule: a check that never fails checks nothing."""

from collections.abc import Callable
from copy import deepcopy
from typing import Any

import pytest

from service.protocol.machine import Ending
from tests.event_grammar import Json, check_stream
from tests.protocol import samples
from tests.protocol.samples import as_json, harmony, run

STREAM: list[Json] = [
    as_json(event)
    for event in run(
        samples.machine(),
        [
            harmony(
                "<|channel|>analysis<|message|>Hm.<|end|>"
                "<|start|>assistant<|channel|>commentary to=functions.lookup<|message|>{}<|call|>"
                "<|start|>assistant<|channel|>final<|message|>42<|return|>"
            )
        ],
    )
]
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


def doubled_end(stream: list[Json]) -> None:
    stream.append({**stream[-1], "sequence_number": len(stream)})


def incomplete_in_the_middle(stream: list[Json]) -> None:
    changed("response.output_item.done", item__status="incomplete")(stream)
    stream[-1]["response"]["output"][0]["status"] = "incomplete"


BROKEN: dict[str, Callable[[list[Json]], None]] = {
    "a gap in the numbers": changed("response.output_item.added", sequence_number=7),
    "no beginning": lost("response.created"),
    "no progress": lost("response.in_progress"),
    "no end": lost("response.completed"),
    "two ends": doubled_end,
    "an end that doesn't fit the status": changed("response.completed", response__status="failed"),
    "an item that was never added": lost("response.output_item.added"),
    "an item that was never done": lost("response.output_item.done"),
    "a part that was never added": lost("response.content_part.added"),
    "a part that was never done": lost("response.content_part.done"),
    "a lost delta": lost("response.reasoning_text.delta"),
    "a lost delta of arguments": lost("response.function_call_arguments.delta"),
    "a delta of another item": changed("response.output_text.delta", item_id="msg_0"),
    "a delta at another place": changed("response.output_text.delta", output_index=0),
    "an empty delta": changed("response.output_text.delta", delta=""),
    "a done text that differs": changed("response.output_text.done", text="41"),
    "done arguments that differ": changed("response.function_call_arguments.done", arguments="[]"),
    "a done id that differs": changed("response.output_item.done", item__id="rs_0"),
    "a place that jumps": changed("response.output_item.added", output_index=1),
    "an item added with text": changed("response.output_item.added", item__content=[{}]),
    "an output that lacks an item": changed("response.completed", response__output=[]),
    "an item cut short in the middle": incomplete_in_the_middle,
    "an echo that changes": changed("response.completed", response__temperature=0.5),
    "an id that changes": changed("response.completed", response__id="resp_0"),
    "a completed response without its time": changed("response.completed", response__completed_at=None),
    "usage that doesn't add up": changed("response.completed", response__usage__total_tokens=1),
}


def test_a_stream_of_every_kind_of_item_passes() -> None:
    assert [item["type"] for item in check_stream(STREAM)["output"]] == ["reasoning", "function_call", "message"]


@pytest.mark.parametrize("breaking", BROKEN.values(), ids=BROKEN)
def test_a_broken_stream_is_refused(breaking: Callable[[list[Json]], None]) -> None:
    stream = deepcopy(STREAM)
    breaking(stream)

    with pytest.raises(AssertionError):
        check_stream(stream)


def test_a_background_stream_says_that_it_waited_and_that_it_began() -> None:
    assert [event["type"] for event in WAITED[:3]] == ["response.created", "response.queued", "response.in_progress"]
    assert check_stream(WAITED)["status"] == "cancelled"


@pytest.mark.parametrize("type", ["response.created", "response.queued", "response.in_progress"])
def test_a_beginning_whose_statuses_disagree_is_refused(type: str) -> None:
    stream = deepcopy(WAITED)
    changed(type, response__status="cancelled")(stream)

    with pytest.raises(AssertionError):
        check_stream(stream)


def test_what_waits_must_begin_before_it_says_anything() -> None:
    stream = [as_json(event) for event in run(samples.machine(), [harmony(samples.ANSWER)], background=True)]
    check_stream(stream)
    lost("response.in_progress")(stream)

    with pytest.raises(AssertionError):
        check_stream(stream)


def test_a_failure_without_its_error_event_is_refused() -> None:
    stream = deepcopy(FAILED)
    check_stream(stream)
    lost("error")(stream)

    with pytest.raises(AssertionError):
        check_stream(stream)
