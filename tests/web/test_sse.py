"""Events on the wire: each in one piece, whatever its kind, and padded where that is wanted."""

import json
from typing import Any

import msgspec
import pytest
from hypothesis import given

from service.api import events
from service.api.events import Event
from service.web.sse import OBFUSCATION_STEP, Encoder
from tests.support.responses import event_samples


def placed(batch: list[Event]) -> list[Event]:
    """The events with an item of its own for each place in the output: the deltas of one item have one place."""
    ids: dict[tuple[int, ...], str] = {}
    for event in batch:
        if isinstance(event, events.Delta):
            place = tuple(getattr(event, name, 0) for name in ("output_index", "content_index", "summary_index"))
            event.item_id = ids.setdefault(place, f"item_{place}%b")
    return batch


batches = event_samples.batches.map(placed)


def written(batch: list[Event], *, obfuscate: bool) -> list[dict[str, Any]]:
    """The events as a client reads them."""
    buffer = bytearray()
    Encoder(obfuscate=obfuscate).append(batch, buffer)
    pieces = buffer.decode().split("\n\n")
    assert pieces.pop() == ""
    read = [dict(line.split(": ", 1) for line in piece.split("\n")) for piece in pieces]
    decoded = [json.loads(each["data"]) for each in read]
    assert [each["event"] for each in read] == [each["type"] for each in decoded]
    return decoded


def encoded(batch: list[Event]) -> list[dict[str, Any]]:
    return [json.loads(msgspec.json.encode(event)) for event in batch]


@given(batch=batches)
def test_any_event_is_written_as_it_is(batch: list[Event]) -> None:
    assert written(batch, obfuscate=False) == encoded(batch)


@given(batch=batches)
def test_deltas_of_every_kind_are_padded_and_nothing_else_is(batch: list[Event]) -> None:
    padded = written(batch, obfuscate=True)
    for event, read in zip(batch, padded, strict=True):
        noise = read.pop("obfuscation", "")
        if isinstance(event, events.Delta):
            assert (len(event.delta) + len(noise)) % OBFUSCATION_STEP == 0
        else:  # a shell's command too, which comes whole
            assert not noise

    assert padded == encoded(batch)


@pytest.mark.parametrize("obfuscate", [True, False])
def test_a_delta_has_its_own_log_probabilities(obfuscate: bool) -> None:
    plain, probable = (), (events.Logprob("a", -0.5, (events.TopLogprob("b", -1.5),)),)
    batch: list[Event] = [
        events.OutputTextDelta("msg_1", 0, 0, "a", each, sequence_number=number)
        for number, each in enumerate([plain, probable, plain])
    ]

    assert [len(read["logprobs"]) for read in written(batch, obfuscate=obfuscate)] == [0, 1, 0]
