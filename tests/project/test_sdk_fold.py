"""The SDK's fold is tripped here, and the memory that spares it streams of one form is shown to spare no others."""

from collections.abc import Callable
from copy import deepcopy

import pytest
from openai._models import construct_type

from tests.project.test_event_grammar import BROWSED, COMPACTED, FAILED, STREAM, SUMMED_UP, WAITED, Json, place_of
from tests.support.oracles import sdk_fold
from tests.support.oracles.event_grammar import check_stream
from tests.support.oracles.sdk_fold import check_fold

BROKEN: dict[str, Callable[[list[Json]], object]] = {
    "renamed": lambda stream: stream[-1]["response"].update(id="resp_" + 48 * "0"),
    "done as another": lambda stream: stream[place_of(stream, "response.output_item.done")]["item"].update(id="rs_0"),
    "never added": lambda stream: stream.pop(place_of(stream, "response.output_item.added")),
    "not created": lambda stream: stream.pop(0),
    "a text that is lost": lambda stream: stream.pop(place_of(stream, "response.output_text.delta")),
}


@pytest.fixture(autouse=True)
def _nothing_seen(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sdk_fold, "_seen", set())


@pytest.mark.parametrize("breaking", BROKEN.values(), ids=BROKEN)
def test_a_stream_that_the_sdk_trips_over_is_refused(breaking: Callable[[list[Json]], object]) -> None:
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

    monkeypatch.setattr(sdk_fold, "construct_type", noted)
    for stream in (STREAM, STREAM, BROWSED, STREAM, BROWSED):
        check_stream(stream)
    assert read == [*STREAM, *BROWSED]
