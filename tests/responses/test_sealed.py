"""What stands inside a seal comes back as it was, and what is none of it is refused in words."""

import pytest

from service.responses.output import sealed
from service.responses.output.sealed import COMPACTION, REASONING, Unsealable
from store.turn import StoredMessage


class Clear:
    """An opener of what was never closed."""

    def __init__(self, kind: str, payload: bytes) -> None:
        self.opened = kind, payload

    def open(self, text: str) -> tuple[str, bytes]:
        assert text == "sealed"
        return self.opened


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
