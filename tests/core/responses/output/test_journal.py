"""Batches of events as bytes: equal when they come back, small, and made to be read by every later release."""

from itertools import pairwise

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from service.api import events
from service.api.events import Event
from service.api.outcome import Outcome, failed_outcome
from service.api.response import CustomToolCall
from service.engine.port import TokenLogprobs
from service.harmony import tokens
from service.responses.output import journal
from service.responses.output.journal import Batch, batch_of, decode_batch, decode_sampled, encode_batch
from service.responses.output.reading import Piece
from store.codec import squeeze
from store.errors import NewerFormat
from tests.support.responses import event_samples, samples
from tests.support.responses.samples import RESPONSE_ID

MESSAGE_ID = f"msg_{RESPONSE_ID[5:]}0000"


def deltas(*texts: str, first: int = 0) -> list[Event]:
    return event_samples.numbered([events.OutputTextDelta(MESSAGE_ID, 0, 0, text) for text in texts], first)


# --- what goes in comes out ---


@given(batch=event_samples.batches, packed=st.binary(max_size=40), cached=st.none() | st.integers(0, 2**30))
def test_any_events_come_back_as_they_went(batch: list[Event], packed: bytes, cached: int | None) -> None:
    whole = Batch(batch, packed, cached)

    assert decode_batch(encode_batch(whole), batch[-1].sequence_number) == whole


def test_events_and_tokens_of_every_kind_come_back() -> None:
    summary = events.SummaryTextDelta("rs_" + MESSAGE_ID[4:], 0, 0, "b", sequence_number=0)
    custom = events.OutputItemAdded(0, CustomToolCall("ctc_1", "call_1", "note", "", "in_progress"), sequence_number=0)
    chosen = msgspec.structs.replace(samples.created(), tool_choice={"type": "function", "name": "f"})
    batches = [
        Batch(deltas("a")),
        Batch([events.ResponseCreated(samples.created(), sequence_number=0)]),
        Batch([summary]),
        Batch([custom]),
        Batch([events.ResponseCreated(chosen, sequence_number=0)]),
        Batch(deltas("a"), tokens.pack([1, 2]), None, (TokenLogprobs(-0.5, ((1, -0.5), (7, -1.5))), TokenLogprobs(0))),
        Batch(deltas("a"), tokens.pack([1]), [64, None]),
        Batch(
            deltas("a"), tokens.pack([1]), 64, (), (Outcome("completed", "3", output="3"), failed_outcome("no city"))
        ),
        Batch(deltas("a"), tokens.pack([1]), 64, pieces=(Piece(1, "Hm."), Piece(0, "", 64, thinking=True))),
    ]

    assert [decode_batch(encode_batch(batch), 0) for batch in batches] == batches
    for batch in batches:
        sampled = decode_sampled(encode_batch(batch))
        assert (sampled.tokens, sampled.cached_tokens) == (batch.tokens, batch.cached_tokens)
        assert [*sampled.logprobs, *sampled.outcomes, *sampled.pieces] == [
            *batch.logprobs,
            *batch.outcomes,
            *batch.pieces,
        ]


@given(st.lists(st.integers(-(2**40), 2**40)))
def test_any_ids_can_be_journaled(ids: list[int]) -> None:
    back = tokens.unpack(batch_of(ids)).tolist()

    assert len(back) == len(ids)
    assert all(was == now or not 0 <= now <= tokens.LAST_LEGAL for was, now in zip(ids, back, strict=True))


# --- how small ---


def test_a_delta_takes_two_bytes_beyond_its_text_and_token() -> None:
    texts = [" word", " another", " the", "é", " " * 40]
    sizes = [len(encode_batch(Batch(deltas(*texts[:n]), bytes(4 * n)))) for n in range(1, len(texts) + 1)]
    grown = [after - before for before, after in pairwise(sizes)]

    assert all(added <= len(text.encode()) + 4 + 2 for added, text in zip(grown, texts[1:], strict=True))


# --- what is refused ---


def test_a_newer_format_is_refused_by_its_version() -> None:
    blob = bytes([journal.FORMAT + 1]) + encode_batch(Batch(deltas("a")))[1:]
    for decode in (lambda: decode_batch(blob, 0), lambda: decode_sampled(blob)):
        with pytest.raises(NewerFormat) as caught:
            decode()
        assert caught.value.version == journal.FORMAT + 1


@pytest.mark.parametrize(
    "run", [b'{"type":"response.later","sequence_number":0}', [len(journal._KINDS), b"", 0, ["a"]]]
)
def test_an_event_or_a_kind_of_a_later_release_is_refused_as_one(run: object) -> None:
    written = msgspec.msgpack.encode((b"", None, [run], [], [], []))
    with pytest.raises(NewerFormat):
        decode_batch(bytes([journal.FORMAT]) + squeeze(written), 0)


@pytest.mark.parametrize("blob", [b"", b"\0abc"])
def test_bytes_that_no_release_wrote_are_refused(blob: bytes) -> None:
    with pytest.raises(ValueError, match="was not written by this store"):
        decode_batch(blob, 0)


def test_events_with_a_gap_are_refused() -> None:
    with pytest.raises(ValueError, match="number 5"):
        encode_batch(Batch([*deltas("a", first=2), *deltas("b", first=5)]))
