"""A stream's bytes, cut anywhere, to chunks."""

from dataclasses import dataclass, field
from itertools import pairwise

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from service.engine.port import (
    Chunk,
    EngineError,
    EngineOverloaded,
    EngineRefused,
    EngineUnavailable,
    Finish,
    TokenLogprobs,
)
from service.engine.vllm.servers import Endpoint, VllmAnswer
from tests.support.engine.standin_wire import DONE, KEEP_ALIVE, error_event, event, events, tokens_event, usage_event


@dataclass
class Read:
    """What came of a stream."""

    tokens: list[int] = field(default_factory=list[int])
    logprobs: list[TokenLogprobs] = field(default_factory=list[TokenLogprobs])
    finish: Finish | None = None
    cached_tokens: int | None = None
    chunks: list[Chunk] = field(default_factory=list[Chunk])

    def add(self, chunk: Chunk) -> None:
        self.chunks.append(chunk)
        self.tokens += chunk.tokens
        self.logprobs += chunk.logprobs or []
        self.finish = chunk.finish
        if chunk.cached_tokens is not None:
            self.cached_tokens = chunk.cached_tokens


def read(*pieces: bytes, logprobs: bool = False) -> Read:
    """A whole stream, which came in these pieces."""
    stream, result = VllmAnswer(logprobs=1 if logprobs else None), Read()
    for piece in pieces:
        for chunk in stream.feed(piece):
            result.add(chunk)
    result.add(stream.end())
    return result


Sample = list[tuple[int, float]]
samples = st.lists(st.tuples(st.integers(0, 201_087), st.floats(-50, 0)), max_size=12)


def stream_of(endpoint: Endpoint, sampled: Sample, tokens_an_event: int, *, comments: bool) -> bytes:
    """What a server sends for these tokens, each with its probability and itself as the alternative."""
    given = [TokenLogprobs(logprob, ((token, logprob),)) for token, logprob in sampled]
    chunk = Chunk([token for token, _ in sampled], Finish.STOP, logprobs=given)
    sent = [*events(endpoint, chunk, tokens_an_event, [1, 2, 3]), usage_event(endpoint, 32, len(sampled), 16), DONE]
    return (KEEP_ALIVE if comments else b"").join(sent)


@settings(deadline=None)
@given(
    endpoint=st.sampled_from(Endpoint),
    sampled=samples,
    tokens_an_event=st.integers(1, 4),
    comments=st.booleans(),
    cuts=st.lists(st.integers(0, 3000), max_size=20),
)
def test_a_stream_reads_the_same_wherever_it_is_cut(
    endpoint: Endpoint, sampled: Sample, tokens_an_event: int, comments: bool, cuts: list[int]
) -> None:
    whole = stream_of(endpoint, sampled, tokens_an_event, comments=comments)
    places = [0, *sorted(min(cut, len(whole)) for cut in cuts), len(whole)]
    result = read(*(whole[start:end] for start, end in pairwise(places)), logprobs=True)
    assert result.tokens == [token for token, _ in sampled]
    assert result.logprobs == [TokenLogprobs(logprob, ((token, logprob),)) for token, logprob in sampled]
    assert (result.finish, result.cached_tokens) == (Finish.STOP, 16)
    assert all(chunk.tokens and not chunk.finish for chunk in result.chunks[:-1])


@pytest.mark.parametrize("end", [b"\r\n", b"\r"])
@pytest.mark.parametrize("size", [1, 2, 3, 10_000])
def test_lines_may_end_as_the_standard_allows_wherever_they_are_cut(end: bytes, size: int) -> None:
    strange = b"event: ping\ndata: {}\n\n"
    whole = strange + stream_of(Endpoint.GENERATE, [(5, -0.5), (6, -0.5)], 1, comments=True)
    sent = whole.replace(b"\n", end)
    result = read(*(sent[at : at + size] for at in range(0, len(sent), size)), logprobs=True)
    assert (result.tokens, result.finish, result.cached_tokens) == ([5, 6], Finish.STOP, 16)


@pytest.mark.parametrize("endpoint", Endpoint)
def test_byte_by_byte_is_token_by_token(endpoint: Endpoint) -> None:
    whole = stream_of(endpoint, [(5, -0.5), (6, -0.5), (7, -0.5)], 1, comments=True)
    result = read(*(bytes([each]) for each in whole))
    assert [chunk.tokens for chunk in result.chunks] == [[5], [6], [7], []]


def test_tokens_that_came_together_are_one_chunk() -> None:
    result = read(tokens_event([1]) + tokens_event([2, 3]) + tokens_event([4], "length") + DONE)
    assert result.chunks == [Chunk([1, 2, 3, 4]), Chunk([], Finish.LENGTH)]


def test_log_probabilities_are_for_who_asked() -> None:
    whole = stream_of(Endpoint.GENERATE, [(5, -0.5)], 1, comments=False)
    assert all(chunk.logprobs is None for chunk in read(whole).chunks)
    assert [chunk.logprobs for chunk in read(whole, logprobs=True).chunks] == [[TokenLogprobs(-0.5, ((5, -0.5),))], []]


def test_log_probabilities_that_are_missing_are_an_error_and_no_silence() -> None:
    with pytest.raises(EngineError, match="log probabilities"):
        read(tokens_event([1, 2], "stop"), logprobs=True)


@pytest.mark.parametrize(
    ("reason", "finish"), [("stop", Finish.STOP), ("length", Finish.LENGTH), ("repetition", Finish.STOP)]
)
def test_a_finish_is_the_last_chunks(reason: str, finish: Finish) -> None:
    assert read(tokens_event([1], reason), DONE).chunks == [Chunk([1]), Chunk([], finish)]


def test_a_server_that_says_nothing_of_its_cache_leaves_it_open() -> None:
    usage = {"prompt_tokens": 3, "total_tokens": 4, "completion_tokens": 1}
    for said in (usage, {**usage, "prompt_tokens_details": None}, None):
        assert read(tokens_event([1], "stop"), event({"choices": [], "usage": said}), DONE).cached_tokens is None


@pytest.mark.parametrize(
    ("last", "kind", "words"),
    [
        (error_event(400, "too long"), EngineRefused, "^too long$"),
        (error_event(503, "queue"), EngineOverloaded, "no more work"),
        (error_event(500, "Internal server error"), EngineError, "status 500"),
        (tokens_event([], "abort"), EngineUnavailable, "aborted"),
        (tokens_event([], "error"), EngineError, "'error'"),
        (tokens_event([], "content_filter" * 100), EngineError, "content_filter"),
        (b"data: Hello.\n\n", EngineError, "no event"),
        (b'data: {"choices":[{"finish_reason":"\xff"}]}\n\n', EngineError, "no event"),
    ],
)
def test_what_came_before_an_error_is_handed_over_before_it_is_raised(
    last: bytes, kind: type[EngineError], words: str
) -> None:
    stream = VllmAnswer(logprobs=None)
    chunks = stream.feed(tokens_event([1]) + tokens_event([2]) + last + DONE)
    assert next(chunks) == Chunk([1, 2])
    with pytest.raises(kind, match=words) as raised:
        next(chunks)
    assert type(raised.value) is kind
    assert len(str(raised.value)) < 200
    assert stream.begun


def test_a_stream_that_says_nothing_has_not_begun() -> None:
    stream = VllmAnswer(logprobs=None)
    assert list(stream.feed(KEEP_ALIVE + usage_event(Endpoint.GENERATE, 1, 0, 0))) == []
    assert not stream.begun


def test_an_event_without_an_end_is_refused_at_its_limit() -> None:
    stream = VllmAnswer(logprobs=None, max_event_bytes=1000)
    assert list(stream.feed(b"data: " + b"x" * 994)) == []
    with pytest.raises(EngineError, match="more than 1000 bytes"):
        list(stream.feed(b"x"))


def test_events_of_a_kind_that_nobody_knows_yet_are_passed_over() -> None:
    strange = [b"event: ping\n\n", b"\n\n", b": \n\n", event({"choices": [], "metrics": {"a": 1}})]
    result = read(*strange, tokens_event([1], "stop"), *strange, DONE)
    assert result.tokens == [1]
    assert msgspec.to_builtins(result.chunks[-1])["finish"] == "stop"
