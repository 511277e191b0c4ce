"""A request that is passed on to a server: its body, and what a refusal of it is to us. Pure."""

from collections.abc import Iterable, Mapping
from typing import Any

import msgspec

from service.engine.pass_through import Passed, PassedRefusal
from service.engine.port import EngineError, EngineUnavailable
from service.engine.servers.kind import SHOWN_CHARS, UNREADABLE, ServerChanged, refusal

NOT_SERVED = (404, 405, 501)
"""A server that lacks an endpoint, or has a model that is not for it."""

OURS = (401, 403, 407, 408, 425, 429)
"""What is between the server and us, and none of the sender's business."""

MAX_WORD_CHARS = 64
"""How long the code and the param of an error may be."""

_ENCODE = msgspec.json.Encoder().encode


class Said(msgspec.Struct):
    """What a server says of an error."""

    message: Any = None
    code: Any = None
    param: Any = None


class _Envelope(msgspec.Struct):
    """The body of an error: OpenAI's envelope, vLLM's own of before, or FastAPI's."""

    error: Said | str | None = None
    message: Any = None
    detail: Any = None


GENERATED = frozenset({"/v1/chat/completions", "/v1/completions"})
"""Paths whose answers may be streams."""

STREAMED = {"stream": True, "stream_options": {"include_usage": True}}
"""What makes an answer a stream that says all that a whole answer does."""


def passed_body(passed: Passed, model: str, own: Mapping[str, object]) -> bytes:
    """What to post: the members as they came, and over them the server's model and what is `own` to its kind."""
    return _ENCODE({**passed.members, "model": model, **own})


def passed_refusal(name: str, status: int, body: bytes, hidden: Iterable[str]) -> EngineError:
    """What an answer with an HTTP error stands for. `hidden` is what no sender may see of what the server says."""
    said = said_in(body)
    if (400 <= status < 500 and status not in OURS) or status in NOT_SERVED:
        message = said.message if isinstance(said.message, str) else ""
        for secret in hidden:
            message = message.replace(secret, "…")
        if not message:
            message = f"The {name} server refused this with status {status}, and says no more."
        status = 404 if status in NOT_SERVED else status
        return PassedRefusal(message[:SHOWN_CHARS], status, code=_word(said.code), param=_word(said.param))
    error = refusal(name, status, "")
    # what a single request is refused for says nothing of the server
    return EngineUnavailable(str(error)) if isinstance(error, ServerChanged) else error


def said_in(body: bytes) -> Said:
    """The error that a body tells, with nothing in it where it tells none."""
    try:
        said = msgspec.json.decode(body, type=_Envelope)
    except UNREADABLE:
        return Said()
    if isinstance(said.error, Said):
        return said.error
    return Said(said.error or said.message or said.detail)


def _word(value: object) -> str | None:
    return value if isinstance(value, str) and 0 < len(value) <= MAX_WORD_CHARS else None
