"""An answer over HTTP as its bytes come: however they are cut, whatever they are."""

from collections.abc import Sequence
from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from service.engine.servers.connection import MAX_HEAD_BYTES, Broken, Incoming

OK = b"HTTP/1.1 200 OK\r\ncontent-type: text/event-stream; charset=utf-8\r\n"
WAIT = b"HTTP/1.1 100 Continue\r\nx-soon: yes\r\n\r\n"


def chunked(parts: Sequence[bytes], trailer: bytes = b"") -> bytes:
    body = b"".join(b"%x;note=1\r\n%b\r\n" % (len(part), part) for part in parts if part)
    return OK + b"transfer-encoding: chunked\r\n\r\n" + body + b"0\r\n" + trailer + b"\r\n"


def sized(parts: Sequence[bytes]) -> bytes:
    body = b"".join(parts)
    return OK + b"content-length: %d\r\n\r\n" % len(body) + body


def endless(parts: Sequence[bytes]) -> bytes:
    return OK + b"\r\n" + b"".join(parts)


def fed(answer: bytes, cuts: Sequence[int] = (), incoming: Incoming | None = None) -> Incoming:
    """What reads an answer, which comes cut at these places."""
    incoming = incoming or Incoming()
    places = [0, *sorted(cut for cut in cuts if cut < len(answer)), len(answer)]
    for start, end in pairwise(places):
        if start < end:
            incoming.feed(answer[start:end])
    return incoming


@given(
    parts=st.lists(st.binary(max_size=40), max_size=6),
    form=st.sampled_from([chunked, sized, endless]),
    waits=st.integers(0, 2),
    cuts=st.lists(st.integers(0, 400), max_size=30),
)
def test_any_cut_of_the_bytes_gives_one_answer(parts: list[bytes], form: object, waits: int, cuts: list[int]) -> None:
    incoming = fed(WAIT * waits + form(parts), cuts)  # type: ignore[operator]
    if form is endless:
        assert not incoming.whole
        incoming.end()
    assert (incoming.status, incoming.content_type) == (200, "text/event-stream")
    assert b"".join(incoming.pieces) == b"".join(parts)
    assert incoming.headed
    assert incoming.whole
    assert incoming.keeps is (form is not endless)
    assert "x-soon" not in incoming.headers


@given(
    parts=st.lists(st.binary(min_size=1, max_size=40), min_size=1, max_size=6),
    form=st.sampled_from([chunked, sized]),
    data=st.data(),
)
def test_an_answer_that_ends_early_is_broken(parts: list[bytes], form: object, data: st.DataObject) -> None:
    answer: bytes = form(parts)  # type: ignore[operator]
    incoming = fed(answer[: data.draw(st.integers(0, len(answer) - 1))])
    with pytest.raises(Broken):
        incoming.end()
    assert b"".join(parts).startswith(b"".join(incoming.pieces))


@pytest.mark.parametrize("apart", [False, True])
@pytest.mark.parametrize("behind", [b"HTTP/1.1 200 OK\r\ncontent-length: 1\r\n\r\nx", b"garbage"])
def test_what_comes_behind_an_answer_spoils_the_connection_and_not_the_answer(behind: bytes, apart: bool) -> None:
    answer = sized([b"ab"])
    incoming = fed(answer + behind, [len(answer)] if apart else [])
    assert (incoming.whole, incoming.keeps, b"".join(incoming.pieces)) == (True, False, b"ab")


@pytest.mark.parametrize(
    "answer",
    [
        b"hello\r\n\r\n",
        b"HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\nxyz\r\n",
        b"HTTP/1.1 200 OK\r\ncontent-length: many\r\n\r\n",
        b"HTTP/1.1 101 Switching\r\nupgrade: x\r\nconnection: upgrade\r\n\r\n",
    ],
)
def test_what_is_no_answer_is_broken(answer: bytes) -> None:
    incoming = Incoming()
    with pytest.raises(Broken):
        fed(answer, incoming=incoming)
    assert not incoming.whole
    assert not incoming.keeps


MANY = b"".join(b"x-%d: %s\r\n" % (number, b"v" * 50) for number in range(MAX_HEAD_BYTES // 50))
LARGE = {
    "many headers": OK + MANY,
    "an endless header": OK + b"x" * 2 * MAX_HEAD_BYTES,
    "many that say to wait": WAIT * (MAX_HEAD_BYTES // len(WAIT) + 1),
    "an endless trailer": OK + b"transfer-encoding: chunked\r\n\r\n1\r\na\r\n0\r\nx: " + b"v" * 4 * MAX_HEAD_BYTES,
    "a chunk's note": OK + b"transfer-encoding: chunked\r\n\r\n1;" + b"n" * 2 * MAX_HEAD_BYTES,
}


@pytest.mark.parametrize("name", LARGE)
@pytest.mark.parametrize("size", [1000, 1 << 17], ids=["in pieces", "in large reads"])
def test_what_is_no_part_of_a_body_is_bounded(name: str, size: int) -> None:
    answer, incoming = LARGE[name], Incoming()
    with pytest.raises(Broken):
        fed(answer, range(0, len(answer), size), incoming)
    assert sum(map(len, incoming.headers.values())) <= MAX_HEAD_BYTES
