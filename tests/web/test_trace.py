"""Trace headers: what is passed on to the engine, and what a client can't smuggle in."""

import pytest

from service.web.trace import MAX_STATE_CHARS, trace_headers

PARENT = b"00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01"


def test_a_trace_is_passed_on_as_it_came() -> None:
    headers = {b"traceparent": PARENT, b"tracestate": b"rojo=00f067aa0ba902b7,congo=t61rcWkgMzE", b"other": b"x"}
    assert trace_headers(headers) == (
        ("traceparent", PARENT.decode()),
        ("tracestate", "rojo=00f067aa0ba902b7,congo=t61rcWkgMzE"),
    )


def test_a_trace_needs_no_state() -> None:
    assert trace_headers({b"traceparent": PARENT}) == (("traceparent", PARENT.decode()),)


@pytest.mark.parametrize(
    "parent",
    [
        b"",
        b"00",
        PARENT.upper(),
        PARENT[:-1],
        PARENT + b"0",
        PARENT + b"\n",
        PARENT + b"\r\nx: y",
        b" " + PARENT,
        PARENT.replace(b"-", b"_"),
        b"ff" + PARENT[2:],
        PARENT.replace(b"4bf92f3577b34da6a3ce929d0e0e4736", b"0" * 32),
        PARENT.replace(b"00f067aa0ba902b7", b"0" * 16),
    ],
)
def test_what_is_no_parent_is_left_out_and_its_state_too(parent: bytes) -> None:
    assert trace_headers({b"traceparent": parent, b"tracestate": b"a=1"}) == ()


def test_a_state_without_a_parent_says_nothing() -> None:
    assert trace_headers({b"tracestate": b"a=1"}) == ()


@pytest.mark.parametrize("state", [b"", b"a=\r\nx: y", b"a=\xff", b"a=\x00", b"a" * (MAX_STATE_CHARS + 1)])
def test_a_state_that_is_none_is_left_out_alone(state: bytes) -> None:
    assert trace_headers({b"traceparent": PARENT, b"tracestate": state}) == (("traceparent", PARENT.decode()),)


def test_a_state_of_the_greatest_length_is_passed_on() -> None:
    passed = trace_headers({b"traceparent": PARENT, b"tracestate": b"a" * MAX_STATE_CHARS})
    assert passed[1] == ("tracestate", "a" * MAX_STATE_CHARS)
