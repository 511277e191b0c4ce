"""What a TensorRT-LLM server sends, as its source of 2026 is written to send it. None was ever heard."""

from collections.abc import Sequence

import msgspec


def sent(payload: object) -> bytes:
    return b"data: " + msgspec.json.encode(payload) + b"\n\n"


def event(ids: Sequence[int] | None, reason: str | None = None) -> bytes:
    """An event with new ids; with None it is one of who asked for a text."""
    text = {"index": 0, "text": "Hello" if ids is None else "", "logprobs": None, "context_logits": None}
    choice = text | {"token_ids": None if ids is None else list(ids), "finish_reason": reason, "stop_reason": None}
    head = {"id": "cmpl-1", "object": "text_completion", "created": 1, "model": "m", "choices": [choice]}
    usage = {"prompt_tokens": 69, "total_tokens": 70, "completion_tokens": 1}
    return sent(head | {"usage": usage | {"prompt_tokens_details": {"cached_tokens": 64}}})
