"""What a TensorRT-LLM server sends, as its source of 2026 is written to send it. None was ever heard."""

from collections.abc import Sequence
from typing import Any

import msgspec

DONE = b"data: [DONE]\n\n"


def sent(payload: object) -> bytes:
    return b"data: " + msgspec.json.encode(payload) + b"\n\n"


def usage(prompt: int, sampled: int, cached: int) -> dict[str, Any]:
    """How much there was of everything."""
    total = {"prompt_tokens": prompt, "total_tokens": prompt + sampled, "completion_tokens": sampled}
    return total | {"prompt_tokens_details": {"cached_tokens": cached}}


def event(ids: Sequence[int] | None, reason: str | None = None, stop_reason: int | None = None, **more: Any) -> bytes:
    """An event with new ids; with None it is one of who asked for a text."""
    choice = {"index": 0, "text": "" if ids is not None else "Hello", "logprobs": None, "context_logits": None}
    ends = {"token_ids": ids and list(ids), "finish_reason": reason, "stop_reason": stop_reason}
    if ids is not None:
        ends["token_ids"] = list(ids)
    head = {"id": "cmpl-1", "object": "text_completion", "created": 1, "model": "m", "choices": [choice | ends]}
    return sent(head | {"usage": usage(69, 1, 64)} | more)


def error(message: str) -> bytes:
    """An error in a stream, which says nothing of whose fault it was."""
    return sent({"error": {"message": message, "type": "server_error", "code": None, "param": None}})


def error_body(status: int, message: str) -> dict[str, Any]:
    """The body of an error over HTTP, which stands by itself."""
    return {"object": "error", "message": message, "type": "BadRequestError", "param": None, "code": status}
