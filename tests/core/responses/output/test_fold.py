"""Folding events: equal to the terminal event's response, and to what the openai SDK accumulates of the same stream."""

from typing import Any, cast

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st
from openai.types.responses import ResponseStreamEvent
from pydantic import TypeAdapter

from service.api import events
from service.api.events import Event
from service.api.outcome import Outcome
from service.api.response import ResponseStatus, decode_response
from service.api.tools.callee import Callee, Hosted
from service.responses.output.calls import (
    ApplyPatchCallEmitter,
    LocalShellCallEmitter,
    ShellCallEmitter,
    ToolSearchCallEmitter,
)
from service.responses.output.emitter import Emitter
from service.responses.output.fold import Fold, unfold
from service.responses.output.hosted import HOSTED, ApprovalRequestEmitter, HostedCallEmitter, listing_events
from service.responses.output.machine import Ending
from service.responses.output.rules import Rules, ServerTools
from tests.support.responses import samples
from tests.support.responses.samples import as_json, run

endings = st.sampled_from(Ending)
PATCH = "*** Begin Patch\n*** Add File: a.txt\n+a\n*** End Patch"
sdk_event = TypeAdapter[Any](ResponseStreamEvent)


def terminal(stream: list[Event]) -> Any:
    """The response of a stream's terminal event."""
    return cast(events.Terminal, stream[-1]).response


# --- our own fold ---


@given(ids=samples.streams, ending=endings, rules=samples.all_rules)
def test_the_fold_of_a_stream_is_its_terminal_response(ids: list[int], ending: Ending, rules: Rules) -> None:
    stream = run(samples.machine(rules), [ids], ending)
    whole, but_last = Fold(), Fold()
    whole.add(stream)
    but_last.add(stream[:-1])

    assert as_json(whole.response) == as_json(terminal(stream))
    assert but_last.response.output == terminal(stream).output


@given(ids=samples.streams, places=samples.cuts, rules=samples.all_rules)
def test_a_machine_s_snapshot_is_the_fold_of_its_events(ids: list[int], places: list[int], rules: Rules) -> None:
    machine, fold = samples.machine(rules), Fold()
    fold.add(machine.begin())
    for chunk in samples.split(ids, places):
        fold.add(samples.fed(machine, chunk))

        assert fold.response == machine.snapshot()


@given(ids=samples.streams, ending=endings, background=st.booleans(), rules=samples.all_rules)
def test_a_fold_goes_on_from_what_was_written_down_at_any_event(
    ids: list[int], ending: Ending, background: bool, rules: Rules
) -> None:
    whole, begun = Fold(), list[Fold]()
    for event in run(samples.machine(rules), [ids], ending, background=background):
        for fold in (whole, *begun):
            fold.add([event])
        begun.append(Fold.resume(decode_response(msgspec.json.encode(whole.response)), whole.number))

        assert all(fold.response == whole.response and fold.number == whole.number for fold in begun)


# --- and back ---


@given(ids=samples.streams, ending=endings, rules=samples.all_rules)
def test_the_events_of_a_stored_response_are_those_of_its_stream_with_each_text_as_one_delta(
    ids: list[int], ending: Ending, rules: Rules
) -> None:
    stream = run(samples.machine(rules), [ids], ending)
    again = [event for batch in unfold(stored(terminal(stream)), -1) for event in batch]

    assert in_one_delta(again) == in_one_delta(stream)
    assert [event.sequence_number for event in again] == list(range(len(again)))


def called(emitter: HostedCallEmitter) -> list[Event]:
    """The events of a call that the service makes."""
    outcome = Outcome("completed", "Found.")
    return [*emitter.open(), *emitter.text("{}"), *emitter.call(), *emitter.end(outcome)[1]]


def shown(emitter: Emitter, text: str) -> list[Event]:
    """The events of another item with this text."""
    return [*emitter.open(), *emitter.text(text), *emitter.close("completed")[1]]


CALLS: list[list[Event]] = [
    *(called(emitter(samples.RESPONSE_ID, 0, Hosted("docs", "search", kind=kind))) for kind, emitter in HOSTED.items()),
    shown(ApprovalRequestEmitter(samples.RESPONSE_ID, 0, Hosted("docs", "search", approval=True), None), "{}"),
    listing_events(samples.RESPONSE_ID, 0, ServerTools("docs", b'[{"name":"search"}]'))[1],
    shown(ShellCallEmitter(samples.RESPONSE_ID, 0, Callee("shell", "shell")), '{"cmd":["ls","-l"]}'),
    shown(ToolSearchCallEmitter(samples.RESPONSE_ID, 0, Callee("t", "tool_search")), '{"query":"maps"}'),
    shown(LocalShellCallEmitter(samples.RESPONSE_ID, 0, Callee("sh", "local_shell")), '{"cmd":["ls"]}'),
    shown(ApplyPatchCallEmitter(samples.RESPONSE_ID, 0, Callee("p", "apply_patch")), PATCH),
]


@pytest.mark.parametrize("made", CALLS, ids=lambda made: type(made[-1].item).__name__)
def test_calls_come_again_with_all_that_became_of_them(made: list[Event]) -> None:
    done = cast(events.OutputItemDone, made[-1]).item
    base = msgspec.structs.replace(samples.created(), output=[done], status=ResponseStatus.COMPLETED)
    again = [event for batch in unfold(stored(base), -1) for event in batch]

    assert in_one_delta(again[2:-1]) == in_one_delta(made)


def stored(response: Any) -> Any:
    return decode_response(msgspec.json.encode(response))


def in_one_delta(stream: list[Event]) -> list[Any]:
    """The events without their numbers, and with each text as one delta."""
    out: list[Any] = []
    for event in map(as_json, stream):
        del event["sequence_number"]
        before = out[-1] if out else {}
        if "delta" in event and before.get("type") == event["type"]:
            before["delta"] += event["delta"]
            before |= {"logprobs": before["logprobs"] + event["logprobs"]} if "logprobs" in event else {}
        else:
            out.append(event)
    return out


@given(ids=samples.streams, ending=endings, background=st.booleans(), rules=samples.all_rules)
def test_every_event_is_one_that_the_sdk_types(ids: list[int], ending: Ending, background: bool, rules: Rules) -> None:
    for event in run(samples.machine(rules), [ids], ending, background=background):
        sdk_event.validate_python(in_sdk_terms(as_json(event)), strict=True)


def in_sdk_terms(event: dict[str, Any]) -> dict[str, Any]:
    """The event without what OpenAI's differ in from their types too, and the one reason that is ours alone."""
    details = (event.get("response") or {}).get("incomplete_details") or {}
    if details.get("reason") == "no_output":
        details["reason"] = "max_output_tokens"
    if event["type"] == "response.output_item.added" and event["item"]["type"] == "web_search_call":
        event["item"]["action"] = {"type": "search", "query": "not known yet"}
    return event
