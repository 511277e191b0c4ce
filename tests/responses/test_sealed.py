"""What stands inside a seal comes back as it was, and what is none of it is refused in words."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from service.responses.output import sealed
from service.responses.output.sealed import COMPACTION, REASONING, Compaction, Unsealable
from store.turn import StoredMessage

texts = st.text(max_size=40)
maybe = st.none() | texts
messages = st.builds(StoredMessage, texts, st.binary(max_size=40), maybe, maybe, maybe, maybe, maybe)


class Clear:
    """An opener of what was never closed."""

    def __init__(self, kind: str, payload: bytes) -> None:
        self.opened = kind, payload

    def open(self, text: str) -> tuple[str, bytes]:
        assert text == "sealed"
        return self.opened


@given(thought=messages | texts)
def test_a_reasoning_comes_back_as_it_was(thought: StoredMessage | str) -> None:
    payload = sealed.reasoning(thought)

    assert sealed.read_reasoning(payload) == thought
    assert sealed.open_reasoning("sealed", Clear(REASONING, payload)) == thought
    assert sealed.reasoning(thought) == payload


@given(summary=texts, kept=st.lists(messages, max_size=5))
def test_a_compaction_comes_back_as_it_was(summary: str, kept: list[StoredMessage]) -> None:
    payload = sealed.compaction(summary, kept)

    assert sealed.read_compaction(payload) == Compaction(summary, tuple(kept))
    assert sealed.open_compaction("sealed", Clear(COMPACTION, payload)) == Compaction(summary, tuple(kept))


def test_one_kind_is_not_taken_for_the_other() -> None:
    with pytest.raises(Unsealable, match="the content of a compaction item, not of a reasoning item"):
        sealed.open_reasoning("sealed", Clear(COMPACTION, sealed.compaction("x")))
    with pytest.raises(Unsealable, match="the content of a reasoning item, not of a compaction item"):
        sealed.open_compaction("sealed", Clear(REASONING, sealed.reasoning("x")))


def test_what_a_later_release_sealed_is_refused() -> None:
    payload = b"\xff" + sealed.reasoning("x")[1:]

    for read in (sealed.read_reasoning, sealed.read_compaction):
        with pytest.raises(Unsealable, match="by a later release"):
            read(payload)


def test_the_bytes_of_a_payload_stay_what_they_are() -> None:
    message = StoredMessage("assistant", b"\1\0\0\0", "analysis")

    assert sealed.reasoning("so") == b"\x01\xa2so"
    assert sealed.reasoning(message) == b"\x01\x97\xa9assistant\xc4\x04\x01\x00\x00\x00\xa8analysis\xc0\xc0\xc0\xc0"
    assert sealed.compaction("so", [message]) == b"\x01\x93\xa2so\x91" + sealed.reasoning(message)[1:] + b"\x90"
