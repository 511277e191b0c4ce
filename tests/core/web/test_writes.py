"""Events as they are written: each in one piece, and deltas padded."""

import json
from typing import Any

import msgspec
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
