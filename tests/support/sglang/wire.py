"""What an SGLang server sends, as SGLang 0.5.23 is written to send it. None was ever heard."""

from collections.abc import Sequence
from typing import Any

import msgspec

from service.harmony.tokens import decode

STOP = {"type": "stop", "matched": 200002}
LENGTH = {"type": "length", "length": 200}


def sent(payload: object) -> bytes:
    return b"data: " + msgspec.json.encode(payload) + b"\n\n"


def event(ids: Sequence[int], count: int, reason: object = None, **more: Any) -> bytes:
    """An event with ids, of which there are `count` so far."""
    meta = {"id": "r1", "finish_reason": reason, "prompt_tokens": 69, "weight_version": "default"}
    counts = {"completion_tokens": count, "cached_tokens": 64, "reasoning_tokens": 0, "num_retractions": 0}
    return sent({"text": decode(ids), "output_ids": list(ids), "meta_info": meta | counts | more})


def error(message: str, status: int = 400) -> bytes:
    about = {"message": message, "type": "invalid_request_error", "code": status, "retryable": False}
    return sent({"error": about})


def abort(message: str, status: int | None = None) -> dict[str, Any]:
    """The reason of a generation that was aborted; with a status it is for the server's own sake."""
    return {"type": "abort", "message": message, "status_code": status, "err_type": None}
