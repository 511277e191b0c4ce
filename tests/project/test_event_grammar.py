"""The checker of streams is tripped here, once for each rule: a check that never fails checks nothing."""

from collections.abc import Callable
from copy import deepcopy
from typing import Any

import msgspec
import pytest

from service.responses.output.machine import Ending
from tests.support.oracles.event_grammar import Json, check_stream
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


def doubled_end(stream: list[Json]) -> None:
    stream.append({**stream[-1], "sequence_number": len(stream)})


def incomplete_in_the_middle(stream: list[Json]) -> None:
    changed("response.output_item.done", item__status="incomplete")(stream)
    stream[-1]["response"]["output"][0]["status"] = "incomplete"


def twice(type: str) -> Callable[[list[Json]], None]:
    """Have the first event of a type come again at once."""

    def repeat(stream: list[Json]) -> None:
        place = place_of(stream, type)
        stream.insert(place, deepcopy(stream[place]))
        for number, event in enumerate(stream):
            event["sequence_number"] = number

    return repeat


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
    "figures of turns for which nobody asked": changed(
        "response.completed", response__usage__input_tokens_details__cached_tokens_per_turn=[0]
    ),
    "a custom tool's input that differs": changed("response.custom_tool_call_input.done", input="y"),
    "a lost delta of an input": lost("response.custom_tool_call_input.delta"),
    "a call of a server's tool that never began": lost("response.mcp_call.in_progress"),
    "a call of a server's tool that never failed": lost("response.mcp_call.failed"),
    "a call that failed twice": twice("response.mcp_call.failed"),
    "arguments of a server's tool that differ": changed("response.mcp_call_arguments.done", arguments="[]"),
    "log probabilities that were never told": changed(
        "response.output_text.done", logprobs=[{"token": "4", "logprob": -1.0, "top_logprobs": []}]
    ),
}
BROKEN_TURNS: dict[str, Callable[[list[Json]], None]] = {
    "turns that don't add up": changed(
        "response.completed", response__usage__output_tokens_details__output_tokens_per_turn=[1, 1]
    ),
    "figures of other turns": changed(
        "response.completed", response__usage__input_tokens_details__cached_tokens_per_turn=[]
    ),
}
BROKEN_SUMMARIES: dict[str, Callable[[list[Json]], None]] = {
    "a summary that was never added": lost("response.reasoning_summary_part.added"),
    "a summary that was never done": lost("response.reasoning_summary_part.done"),
    "a lost delta of a summary": lost("response.reasoning_summary_text.delta"),
    "a delta of another summary": changed("response.reasoning_summary_text.delta", summary_index=1),
    "a summary's text that differs": changed("response.reasoning_summary_text.done", text="Ha."),
    "a summary's part that differs": changed("response.reasoning_summary_part.done", part__text="Ha."),
    "raw reasoning that isn't the summary": changed("response.output_item.done", item__content=[]),
    "raw reasoning that a delta says again": changed("response.reasoning_text.delta", delta="Hm."),
    "a summary without the reasoning": lost("response.content_part.added"),
    "code that never began": lost("response.code_interpreter_call.in_progress"),
    "code that differs": changed("response.code_interpreter_call_code.done", code="1"),
}


@pytest.mark.parametrize(
    ("stream", "kinds"),
    [
        (STREAM, ["reasoning", "message", "mcp_call", "function_call", "custom_tool_call"]),
        (SUMMED_UP, ["reasoning", "message", "code_interpreter_call", "function_call", "custom_tool_call"]),
        (BROWSED, ["reasoning", "message", "web_search_call", "function_call", "custom_tool_call"]),
        (SHOWN, ["reasoning", "message", "code_interpreter_call", "function_call", "custom_tool_call"]),
        (COMPACTED, ["compaction"]),
    ],
)
def test_a_stream_of_every_kind_of_item_passes(stream: list[Json], kinds: list[str]) -> None:
    assert [item["type"] for item in check_stream(stream)["output"]] == kinds


BROKEN_BEGINNINGS = {
    f"a status of {type} that disagrees": changed(type, response__status="cancelled")
    for type in ("response.created", "response.queued", "response.in_progress")
}
ANSWERED = [as_json(event) for event in run(samples.machine(), [harmony(samples.ANSWER)], background=True)]
TABLES: list[tuple[list[Json], dict[str, Callable[[list[Json]], None]]]] = [
    *((STREAM, BROKEN), (SHOWN, BROKEN_TURNS), (SUMMED_UP, BROKEN_SUMMARIES), (WAITED, BROKEN_BEGINNINGS)),
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


@pytest.mark.parametrize("content", [None, ""])
def test_a_seal_of_nothing_is_refused(content: str | None) -> None:
    for stream in map(deepcopy, (BROWSED, COMPACTED)):
        changed("response.output_item.done", item__encrypted_content=content)(stream)
        stream[-1]["response"]["output"][0]["encrypted_content"] = content

        with pytest.raises(AssertionError):
            check_stream(stream)


def test_an_action_that_there_is_none_of_is_refused() -> None:
    stream = deepcopy(BROWSED)
    stream[-1]["response"]["output"][2]["action"] = {"type": "find", "pattern": ""}
    place = next(i for i, event in enumerate(stream) if event.get("item", {}).get("action"))
    stream[place]["item"]["action"] = {"type": "find", "pattern": ""}

    with pytest.raises((AssertionError, KeyError)):
        check_stream(stream)


def test_a_background_stream_says_that_it_waited_and_that_it_began() -> None:
    assert [event["type"] for event in WAITED[:3]] == ["response.created", "response.queued", "response.in_progress"]
    assert check_stream(WAITED)["status"] == "cancelled"
