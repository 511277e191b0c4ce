"""Bytes that go in come out, and what a newer release wrote is refused."""

import random
import sys

import pytest
from hypothesis import given
from hypothesis import strategies as st

from store import codec
from store.errors import NewerFormat
from store.turn import Status, StoredMessage, Turn

names = st.none() | st.text(max_size=20)
messages = st.builds(StoredMessage, st.text(max_size=10), st.binary(max_size=200), names, names, names, names, names)
turns = st.lists(messages, max_size=5).map(tuple)


def decode_messages(blob: bytes) -> object:
    return codec.StoredTurns([blob])[0]


@given(turns)
def test_messages_come_back_as_they_went(given_messages: tuple[StoredMessage, ...]) -> None:
    assert decode_messages(codec.encode_messages(given_messages)) == given_messages


@given(st.binary(max_size=3000), st.binary(max_size=3000))
def test_a_response_and_its_items_come_back_as_they_went(response: bytes, items: bytes) -> None:
    assert codec.decode_response(codec.encode_response(response, items)) == (response, items)


@given(st.lists(turns, max_size=4))
def test_the_turns_of_a_chain_compare_like_a_tuple(given_turns: list[tuple[StoredMessage, ...]]) -> None:
    stored = codec.StoredTurns([codec.encode_messages(turn) for turn in given_turns])
    assert stored == tuple(given_turns)
    assert len(stored) == len(given_turns)
    assert stored[1:] == tuple(given_turns[1:])
    assert hash(stored) == hash(tuple(given_turns))


def test_the_turns_of_a_chain_keep_no_blob_once_decoded() -> None:
    blob = codec.encode_messages((StoredMessage("user", b"tokens"),))
    held = sys.getrefcount(blob)
    stored = codec.StoredTurns([blob])
    assert sys.getrefcount(blob) == held + 1
    assert [len(turn) for turn in stored] == [1]
    assert (sys.getrefcount(blob), len(stored)) == (held, 1)


def test_a_text_that_compresses_is_stored_smaller() -> None:
    response = b'{"text":"' + b"again and " * 500 + b'"}'
    assert len(codec.encode_response(response, b"[]")) < len(response) / 10


@pytest.mark.parametrize("text", [b"{}" * 100, random.Random(1).randbytes(2000)], ids=["short", "noise"])
def test_a_text_that_would_not_shrink_enough_is_stored_plain(text: bytes) -> None:
    assert codec.encode_response(text, b"[]")[1] == codec.PLAIN


@pytest.mark.parametrize("decode", [decode_messages, codec.decode_response])
def test_a_newer_format_is_refused_by_its_version(decode: object) -> None:
    assert callable(decode)
    with pytest.raises(NewerFormat) as caught:
        decode(bytes([codec.FORMAT + 1]) + b"whatever")
    assert caught.value.version == codec.FORMAT + 1


def test_a_chain_with_a_newer_turn_is_refused_before_anyone_looks_at_it() -> None:
    with pytest.raises(NewerFormat):
        codec.StoredTurns([codec.encode_messages(()), bytes([codec.FORMAT + 1])])


@pytest.mark.parametrize("blob", [b"", b"\0abc"])
def test_bytes_that_no_release_wrote_are_refused(blob: bytes) -> None:
    with pytest.raises(ValueError, match="was not written by this store"):
        decode_messages(blob)


@pytest.mark.parametrize(
    "other",
    [
        Turn("x", "p", Status.COMPLETED, (), b"{}", b"[1]"),
        Turn("x", "p", Status.COMPLETED, (), b"{1}"),
        Turn("x", "p", Status.COMPLETED, (StoredMessage("user", b""),), b"{}"),
        Turn("x", "p", Status.CANCELLED, (), b"{}"),
        Turn("x", None, Status.COMPLETED, (), b"{}"),
    ],
)
def test_the_digest_tells_contents_apart(other: Turn) -> None:
    turn = Turn("x", "p", Status.COMPLETED, (), b"{}")
    assert codec.digest(turn) == codec.digest(Turn("x", "p", Status.COMPLETED, (), b"{}"))
    assert codec.digest(turn) != codec.digest(other)
