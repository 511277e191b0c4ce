"""Trace headers: what is passed on to the engine, and what a client can't smuggle in."""

import pytest

from service.process import Settings
from service.web.exchange import MAX_SESSION_CHARS, MAX_STATE_CHARS, session_of, trace_headers
from tests.support.service.inside import answer, scripted, serving
from tests.support.service.process import MODEL

PARENT = b"00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01"


@pytest.mark.parametrize(
    "parent",
    [
        b"",
        PARENT.upper(),
        PARENT + b"0",
        PARENT + b"\r\nx: y",
        b"ff" + PARENT[2:],
        PARENT.replace(b"4bf92f3577b34da6a3ce929d0e0e4736", b"0" * 32),
    ],
)
def test_what_is_no_parent_is_left_out_and_its_state_too(parent: bytes) -> None:
    assert trace_headers({b"traceparent": parent, b"tracestate": b"a=1"}) == ()


@pytest.mark.parametrize("state", [b"", b"a=\r\nx: y", b"a=\xff", b"a=\x00", b"a" * (MAX_STATE_CHARS + 1)])
def test_a_state_that_is_none_is_left_out_alone(state: bytes) -> None:
    assert trace_headers({b"traceparent": PARENT, b"tracestate": state}) == (("traceparent", PARENT.decode()),)


@pytest.mark.parametrize("session", [b"a" * (MAX_SESSION_CHARS + 1), b"a b", b"\xff"])
def test_a_session_that_is_none_is_left_out(session: bytes) -> None:
    assert session_of({b"x-session-id": session}) == ""


def test_the_first_header_that_names_a_session_counts() -> None:
    headers = {b"x-a-client-session-id": b"3", b"x-session-id": b"2", b"x-session-affinity": b"1"}
    assert [session_of(dict(list(headers.items())[:some])) for some in range(4)] == ["", "3", "2", "1"]


async def test_generations_of_a_session_belong_together_unless_the_request_says_more(settings: Settings) -> None:
    engine = scripted([answer("Fine.")])
    async with serving(settings, engine) as inside, inside.http() as http:
        for body in ({}, {"prompt_cache_key": "key"}, {"session_id": "mine"}):
            given = {"model": MODEL, "input": "Hi", **body}
            await http.post("/v1/responses", json=given, headers={"X-Session-Affinity": "ses_1"})
    assert [each.affinity for each in engine.generations] == ["ses_1", "key", "mine"]
