"""The segmenter: equal to openai-harmony's parser where tokens are well-formed, and at ease with all others."""

import re
import time
from collections.abc import Sequence

import pytest
from hypothesis import given
from openai_harmony import Role, StreamableParser, TextContent

from service.harmony import tokens
from service.harmony.segments import MAX_HEADER_TOKENS, TEXTS, Closed, Opened, Segment, Segmenter, SegmenterState
from service.harmony.tokens import END, encode
from tests.support.oracles.harmony import Oracle
from tests.support.responses import samples
from tests.support.responses.samples import byte_by_byte, generation, harmony, split


def segments(*chunks: Sequence[int]) -> list[Segment]:
    """What the segmenter makes of a whole generation."""
    segmenter = Segmenter()
    out: list[Segment] = []
    for chunk in chunks:
        out += segmenter.feed(chunk)
    return out + segmenter.end()


Read = tuple[str | None, str | None, str | None, str]
"""Channel, recipient, content type and text of a message."""


def read(segments: list[Segment]) -> list[Read]:
    """The messages that the segments spell; each is Opened, text, Closed."""
    messages: list[Read] = []
    for segment in segments:
        if isinstance(segment, Opened):
            header = segment.header
            messages.append((header.channel, header.recipient, header.content_type, ""))
        elif isinstance(segment, str):
            messages[-1] = (*messages[-1][:3], messages[-1][3] + segment)
    return messages


def parsed(oracle: Oracle, ids: Sequence[int]) -> list[Read]:
    parser = StreamableParser(oracle.encoding, role=Role.ASSISTANT)
    for token in ids:
        parser.process(token)
    parser.process_eos()
    return [
        (
            each.channel,
            each.recipient,
            each.content_type,
            "".join(part.text for part in each.content if isinstance(part, TextContent)),
        )
        for each in parser.messages
    ]


# --- well-formed ---


@given(messages=samples.conversations)
def test_well_formed_tokens_read_as_openai_harmony_reads_them(oracle: Oracle, messages: list[samples.Sampled]) -> None:
    ids = generation(messages)

    assert read(segments(ids)) == parsed(oracle, ids)


@given(messages=samples.conversations)
def test_well_formed_messages_are_clean_and_keep_every_token(messages: list[samples.Sampled]) -> None:
    ids = generation(messages)
    closed = [segment for segment in segments(ids) if isinstance(segment, Closed)]

    assert all(each.clean for each in closed)
    assert [token for each in closed for token in each.ids] == ids


# --- any tokens ---


@given(ids=samples.streams)
def test_any_tokens_give_segments_that_open_before_text_and_close_after_it(ids: list[int]) -> None:
    shape = "".join({Opened: "(", str: "t", Closed: ")"}[type(segment)] for segment in segments(ids))

    assert re.fullmatch(r"(\(t*\))*", shape)


@given(ids=samples.streams, places=samples.cuts)
def test_segments_do_not_depend_on_how_the_tokens_arrive(ids: list[int], places: list[int]) -> None:
    whole = segments(ids)

    assert segments(*([token] for token in ids)) == whole
    assert segments(*split(ids, places)) == whole


@given(ids=samples.streams)
def test_no_text_is_lost(ids: list[int]) -> None:
    texts = TEXTS
    ids = [token for token in ids if not 0 <= token < tokens.FIRST_SPECIAL or texts[token] is not None]
    given = "".join(texts[token] or "" for token in ids if 0 <= token < tokens.FIRST_SPECIAL)
    out = segments(ids, harmony("<|message|><|end|>"))
    kept = "".join(
        segment if isinstance(segment, str) else segment.header.raw if isinstance(segment, Opened) else ""
        for segment in out
    )

    assert but_empty_headers(kept) == but_empty_headers(given)


def but_empty_headers(text: str) -> str:
    """The text without the words of a header that names no one and leads to nothing, which may go."""
    return re.sub(r"assistant|json|\s", "", text)


def seconds(ids: list[int]) -> float:
    """How long it takes when nobody else is at work: the best of three."""
    times: list[float] = []
    for _ in range(3):
        began = time.thread_time()
        segments(ids)
        times.append(time.thread_time() - began)
    return min(times)


MARKED = ["<|channel|>", "<|start|>", "<|message|>a", " to=", "<|channel|>final<|message|>a<|end|><|start|>assistant"]


@pytest.mark.parametrize("pattern", [*MARKED, "no text"])
def test_ten_times_the_tokens_take_about_ten_times_as_long(pattern: str) -> None:
    ids = [*harmony("<|message|>"), *byte_by_byte("🙂")[:3]] if pattern == "no text" else harmony(pattern)
    ids *= 3_000
    assert seconds(ids * 10) < 40 * seconds(ids) + 0.05


# --- single rules ---


@pytest.mark.parametrize("end", [[], [END]])
def test_a_character_that_is_cut_becomes_a_replacement_character(end: list[int]) -> None:
    ids = [*harmony("<|channel|>final<|message|>a"), *byte_by_byte("🙂")[:2], *end]

    assert read(segments(ids)) == [("final", None, None, "a\ufffd")]


def test_ids_that_do_not_exist_are_dropped_and_the_message_is_not_clean() -> None:
    ids = [*harmony("<|channel|>final<|message|>a"), 2**31, -1, *encode("b"), END]
    out = segments(ids)

    assert read(out) == [("final", None, None, "ab")]
    assert isinstance(out[-1], Closed)
    assert not out[-1].clean


def test_a_header_without_end_becomes_text_at_its_cap() -> None:
    segmenter = Segmenter()
    words = encode(" word") * MAX_HEADER_TOKENS

    assert segmenter.feed(words[:-1]) == []
    assert [segment for segment in segmenter.feed(words[-1:]) if isinstance(segment, str)] == [tokens.decode(words)]
    assert segmenter.state is SegmenterState.CONTENT
