"""The W3C trace context that a request came with, to be passed on to the engine.

What doesn't look like one is left out: the headers are the client's, and go into somebody else's request.
Source: https://www.w3.org/TR/trace-context/.
"""

import re
from collections.abc import Mapping

MAX_STATE_CHARS = 512

_PARENT = re.compile(rb"(?!ff)[0-9a-f]{2}-(?!0{32})[0-9a-f]{32}-(?!0{16})[0-9a-f]{16}-[0-9a-f]{2}")
"""A version that is not ff, a trace and a parent that are not all zeros, and flags."""

_STATE = re.compile(rb"[\x20-\x7e]{1,%d}" % MAX_STATE_CHARS)


def trace_headers(headers: Mapping[bytes, bytes]) -> tuple[tuple[str, str], ...]:
    """`traceparent`, and `tracestate` where there is one too, of a request with these lower-case headers."""
    parent, state = headers.get(b"traceparent", b""), headers.get(b"tracestate", b"")
    if not _PARENT.fullmatch(parent):
        return ()
    passed = [("traceparent", parent.decode())]
    if _STATE.fullmatch(state):
        passed.append(("tracestate", state.decode()))
    return tuple(passed)
