"""The header Idempotency-Key: what may be one, and what is refused."""

import pytest

from service.errors import InvalidRequest
from service.web.idempotency import key_of

OTHERS = [
    (b"x-client-request-id", b"thread_1"),
    (b"x-stainless-retry-count", b"1"),
    (b"x-idempotency-key", b"x"),
    (b"idempotency-key-2", b"x"),
]


@pytest.mark.parametrize("key", [b"a", b"a" * 255, b"3f1c9a52-0b5e-4c1e-8a52-0b5e4c1e8a52", b'"a key" ~!', b" "])
def test_a_key_is_one_to_255_printable_characters(key: bytes) -> None:
    assert key_of([*OTHERS, (b"idempotency-key", key)]) == key


def test_no_other_header_is_taken_for_a_key() -> None:
    assert key_of(OTHERS) is None


@pytest.mark.parametrize("key", [b"", b"a" * 256, b"a\tb", b"\x7f", "é".encode(), "é".encode("latin-1"), b"a\x00"])
def test_what_can_be_no_key_is_refused_and_not_shown(key: bytes) -> None:
    with pytest.raises(InvalidRequest) as refusal:
        key_of([(b"idempotency-key", key)])
    assert refusal.value.code == "invalid_idempotency_key"
    assert f"{len(key)} bytes" in refusal.value.message


def test_two_keys_are_refused_though_they_are_the_same() -> None:
    with pytest.raises(InvalidRequest, match="more than once"):
        key_of([(b"idempotency-key", b"a"), (b"idempotency-key", b"a")])
