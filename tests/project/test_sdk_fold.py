"""The SDK's fold is tripped here, and the memory that spares it streams of one form is shown to spare no others."""

from copy import deepcopy
from typing import Any

import pytest
from openai._models import construct_type

from tests.project.test_event_grammar import BROWSED, COMPACTED, FAILED, STREAM, SUMMED_UP, WAITED, Json, place_of
from tests.support.oracles import sdk_fold
from tests.support.oracles.event_grammar import check_stream
from tests.support.oracles.sdk_fold import check_fold


@pytest.fixture(autouse=True)
def _nothing_seen(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sdk_fold, "_seen", set())


@pytest.mark.parametrize("stream", [STREAM, SUMMED_UP, BROWSED, COMPACTED, WAITED, FAILED])
def test_the_sdk_reads_a_stream_of_every_kind(stream: list[Json]) -> None:
    check_fold(stream)


def renamed(stream: list[Json]) -> None:
    stream[-1]["response"]["id"] = "resp_" + 48 * "0"


def done_as_another(stream: list[Json]) -> None:
    stream[place_of(stream, "response.output_item.done")]["item"]["id"] = "rs_0"


def never_added(stream: list[Json]) -> None:
    del stream[place_of(stream, "response.output_item.added")]


def queued_first(stream: list[Json]) -> None:
    del stream[0]


def part_never_added(stream: list[Json]) -> None:
    place = place_of(stream, "response.output_text.delta")
    del stream[place - 1]


def text_lost(stream: list[Json]) -> None:
    del stream[place_of(stream, "response.output_text.delta")]


def end_without_items(stream: list[Json]) -> None:
    stream[-1]["response"]["output"] = None


BROKEN = [renamed, done_as_another, never_added, queued_first, part_never_added, text_lost, end_without_items]


@pytest.mark.parametrize("breaking", BROKEN, ids=lambda breaking: breaking.__name__)
def test_a_stream_that_the_sdk_trips_over_is_refused(breaking: Any) -> None:
    check_fold(STREAM)
    stream = deepcopy(STREAM)
    breaking(stream)

    with pytest.raises((AssertionError, AttributeError, IndexError, KeyError, RuntimeError, TypeError)):
        check_fold(stream)


def test_every_checked_stream_is_read_by_the_sdk_and_what_it_knows_once(monkeypatch: pytest.MonkeyPatch) -> None:
    read: list[Json] = []
    monkeypatch.setattr(sdk_fold, "construct_type", lambda type_, value: read.append(value) or construct(type_, value))
    for stream in (STREAM, STREAM, BROWSED, STREAM, BROWSED):
        check_stream(stream)

    assert read == [*STREAM, *BROWSED]


def construct(type_: Any, value: Json) -> Any:
    return construct_type(type_=type_, value=value)
