"""Bytes that go in come out, by the dictionaries that were ever shipped, and what a newer release wrote is refused."""

import json
from base64 import b64decode
from hashlib import sha256
from pathlib import Path
from typing import Any

import msgspec
import pytest
import zstandard
from hypothesis import given
from hypothesis import strategies as st

from bench._dictionary.samples import Samples
from bench._dictionary.train import BYTES, trained
from store import codec
from store.codec import NEWEST, SHIPPED, file_of
from store.errors import NewerFormat, UnknownDictionary
from store.turn import Status, StoredMessage, Turn

names = st.none() | st.text(max_size=20)
messages = st.builds(StoredMessage, st.text(max_size=10), st.binary(max_size=200), names, names, names, names, names)
turns = st.lists(messages, max_size=5).map(tuple)


def decode_messages(blob: bytes) -> object:
    return codec.StoredTurns([blob])[0]


@given(turns)
def test_messages_come_back_as_they_went(given_messages: tuple[StoredMessage, ...]) -> None:
    assert decode_messages(codec.encode_messages(given_messages)) == given_messages


TEXTS = st.binary(max_size=3000) | st.sampled_from(list(Samples(2).blobs(50)))


@given(TEXTS, TEXTS)
def test_a_response_and_its_items_come_back_as_they_went(response: bytes, items: bytes) -> None:
    blob = codec.encode_response(response, items)
    assert codec.decode_response(blob) == (response, items)
    assert codec.response_size(blob) >= len(response) + len(items)


@given(st.lists(turns, max_size=4))
def test_the_turns_of_a_chain_compare_like_a_tuple(given_turns: list[tuple[StoredMessage, ...]]) -> None:
    stored = codec.StoredTurns([codec.encode_messages(turn) for turn in given_turns])
    assert stored == tuple(given_turns)
    assert len(stored) == len(given_turns)
    assert stored[1:] == tuple(given_turns[1:])
    assert hash(stored) == hash(tuple(given_turns))


def test_a_frame_of_an_unknown_dictionary_is_refused_as_of_a_later_release() -> None:
    theirs = zstandard.train_dictionary(1024, list(Samples(3).blobs(200)), dict_id=40_000)
    frame = zstandard.ZstdCompressor(dict_data=theirs).compress(b"again and " * 100)
    with pytest.raises(UnknownDictionary, match="needs dictionary 40000, which this release doesn't have") as caught:
        codec.decode_response(bytes([codec.FORMAT, codec.ZSTD]) + frame)
    assert isinstance(caught.value, NewerFormat)


class Record(msgspec.Struct):
    said: str = ""
    version: int = 2


@pytest.mark.parametrize("of", [msgspec.msgpack, msgspec.json])
def test_a_record_is_read_by_its_version_and_written_again_in_todays(of: Any) -> None:
    for written in ({"said": "so"}, {"said": "so", "version": 1}, {"said": "so", "version": 2, "more": 1}):
        assert codec.decode_record(of.encode(written), Record, 2, of.decode) == Record("so", 2)
    with pytest.raises(NewerFormat) as caught:
        codec.decode_record(of.encode({"said": ["of another form"], "version": 3}), Record, 2, of.decode)
    assert caught.value.version == 3
    with pytest.raises(msgspec.ValidationError):
        codec.decode_record(of.encode({"said": 5}), Record, 2, of.decode)


VECTORS: dict[str, dict[str, Any]] = json.loads(Path(__file__).with_name("blobs.json").read_text())
"""A blob of each kind, in base64, and what is in it. From 0.1.0 on only ever add one."""


@pytest.mark.parametrize("name", VECTORS)
def test_what_any_release_has_written_is_read(name: str) -> None:
    blob, said = b64decode(VECTORS[name]["blob"]), VECTORS[name]["said"]
    if name.startswith("messages"):
        wanted = tuple(StoredMessage(role, bytes.fromhex(tokens), channel) for role, tokens, channel in said)
        assert codec.decode_messages(blob) == wanted
    else:
        assert [text.decode() for text in codec.decode_response(blob)] == said


def test_every_kind_of_blob_has_its_vector() -> None:
    heads = {tuple(b64decode(each["blob"])[:2]) for name, each in VECTORS.items() if name.startswith("response")}
    assert heads == {(2, codec.PLAIN), (2, codec.ZSTD)}
    frames = [b64decode(each["blob"])[2:] for each in VECTORS.values() if b64decode(each["blob"])[:2] == bytes((2, 1))]
    assert {zstandard.get_frame_parameters(frame).dict_id for frame in frames} == SHIPPED


def test_a_newer_format_is_refused_by_its_version() -> None:
    for decode in (decode_messages, codec.decode_response):
        with pytest.raises(NewerFormat) as caught:
            decode(bytes([codec.FORMAT + 1]) + b"whatever")
        assert caught.value.version == codec.FORMAT + 1


@pytest.mark.parametrize("blob", [b"", b"\0abc"])
def test_bytes_that_no_release_wrote_are_refused(blob: bytes) -> None:
    for decode in (decode_messages, codec.decode_response):
        with pytest.raises(ValueError, match="was not written by this store"):
            decode(blob)


@pytest.mark.parametrize(
    "other",
    [
        Turn("x", "p", Status.COMPLETED, (), b"{1}"),
        Turn("x", "p", Status.COMPLETED, (StoredMessage("user", b""),), b"{}"),
        Turn("x", "p", Status.CANCELLED, (), b"{}"),
    ],
)
def test_the_digest_tells_contents_apart(other: Turn) -> None:
    turn = Turn("x", "p", Status.COMPLETED, (), b"{}")
    assert codec.digest(turn) == codec.digest(Turn("x", "p", Status.COMPLETED, (), b"{}"))
    assert codec.digest(turn) != codec.digest(other)


DIGESTS = {32_769: "79e29b31af19bffdb5a7f045c3bba3c3c5f37a6f7fa7867dd7be1507caf49a2a"}
"""The meaning of each file, for ever. Only ever add one."""


def test_every_dictionary_that_was_ever_shipped_is_there_as_it_was() -> None:
    assert DIGESTS.keys() == SHIPPED
    assert {path.name for path in file_of(NEWEST).parent.glob("*.zdict")} == {f"{number}.zdict" for number in SHIPPED}
    assert {number: sha256(file_of(number).read_bytes()).hexdigest() for number in SHIPPED} == DIGESTS


@pytest.mark.full
def test_the_newest_is_what_its_program_makes() -> None:
    """By the zstandard of the lock files, which has this zstd."""
    assert zstandard.ZSTD_VERSION == (1, 5, 7)
    made = trained()
    assert made == file_of(NEWEST).read_bytes()
    assert len(made) == BYTES
