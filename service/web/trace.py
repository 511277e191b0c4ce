"""A request's headers for the engine: the W3C trace context, and the session that it belongs to.

Where requests are traced here, their own spans come between the client's and the engine's.

A malformed one is left out: the headers are the client's, and go into somebody else's request.
Source: https://www.w3.org/TR/trace-context/. The headers of sessions are those that coding agents send to routers.
"""

import re
from collections.abc import Mapping

from service.spans import Span

MAX_STATE_CHARS = 512

_PARENT = re.compile(rb"(?!ff)[0-9a-f]{2}-(?!0{32})[0-9a-f]{32}-(?!0{16})[0-9a-f]{16}-[0-9a-f]{2}")
"""A version that is not ff, a trace and a parent that are not all zeros, and flags."""

_STATE = re.compile(rb"[\x20-\x7e]{1,%d}" % MAX_STATE_CHARS)

SESSION_HEADERS = (b"x-session-affinity", b"x-session-id")
"""The first that is there counts."""

MAX_SESSION_CHARS = 256

_SESSION = re.compile(rb"[\x21-\x7e]{1,%d}" % MAX_SESSION_CHARS)


def trace_headers(headers: Mapping[bytes, bytes]) -> tuple[tuple[str, str], ...]:
    """`traceparent`, and `tracestate` where there is one too, of a request with these lower-case headers."""
    parent, state = headers.get(b"traceparent", b""), headers.get(b"tracestate", b"")
    if not _PARENT.fullmatch(parent):
        return ()
    passed = [("traceparent", parent.decode())]
    if _STATE.fullmatch(state):
        passed.append(("tracestate", state.decode()))
    return tuple(passed)


def trace_within(span: Span, headers: Mapping[bytes, bytes]) -> tuple[tuple[str, str], ...]:
    """The headers that make work elsewhere a part of a request: those of its `span`, else those of its client."""
    return span.headers or trace_headers(headers)


def session_of(headers: Mapping[bytes, bytes]) -> str:
    """The session that a request with these lower-case headers belongs to, empty where it doesn't say."""
    for name in SESSION_HEADERS:
        if _SESSION.fullmatch(session := headers.get(name, b"")):
            return session.decode()
    return ""
