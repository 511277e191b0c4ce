"""Ids that a stream leaves out: found by their bytes, for whatever text."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from service.engine.port import EngineError
from service.features.llama.servers import LlamaAnswer
from service.harmony.tokens import byte_table, encode
from tests.support.llama.wire import event, stop_event

TEXTS = st.text(st.characters(exclude_categories=["Cs"]), max_size=40)


def streamed(ids: list[int]) -> bytes:
    """The stream of these ids as the server sends it: what is no whole character waits for the rest of it."""
    sent, held = b"", b""
    for count, id in enumerate(ids, 1):
        held += byte_table()[id]
        try:
            text = held.decode()
        except UnicodeDecodeError:
            continue
        sent += event(text, [id], count)
        held = b""
    return sent + stop_event(len(ids))


def read(stream: bytes) -> list[int]:
    answer = LlamaAnswer(logprobs=None, stop_ids=())
    tokens = [token for chunk in answer.feed(stream) for token in chunk.tokens]
    answer.end()
    return tokens


@given(TEXTS)
def test_what_is_found_has_the_bytes_and_the_number_of_what_was_sampled(text: str) -> None:
    found = read(streamed(encode(text)))
    assert (b"".join(byte_table()[id] for id in found), len(found)) == (text.encode(), len(encode(text)))


@pytest.mark.parametrize("stream", [event("\ufffd", [5], 2), event("ab", [5, 6], 3), event("x", [encode("x")[0]], 2)])
def test_a_stream_whose_ids_can_not_be_known_fails(stream: bytes) -> None:
    with pytest.raises(EngineError, match="left out ids"):
        read(stream)
