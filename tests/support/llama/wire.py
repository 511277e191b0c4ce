"""What a llama.cpp server sends, as builds b11669 and xllamacpp 2026.10 were seen to send it."""

from typing import Any

import msgspec


def sent(payload: object) -> bytes:
    return b"data: " + msgspec.json.encode(payload) + b"\n\n"


def event(content: str, tokens: list[int], predicted: int, **more: Any) -> bytes:
    shown: dict[str, Any] = {"index": 0, "content": content, "tokens": tokens, "stop": False, "id_slot": -1}
    timings = {"cache_n": 64, "prompt_n": 5}
    return sent(shown | {"tokens_predicted": predicted, "tokens_evaluated": 69, "timings": timings} | more)


def stop_event(predicted: int, stop_type: str = "eos", **more: Any) -> bytes:
    """The last event of a stream."""
    shown: dict[str, Any] = {"index": 0, "content": "", "tokens": [], "id_slot": 0, "stop": True, "model": "talker"}
    ends = {"stop_type": stop_type, "stopping_word": "", "tokens_cached": 92, "truncated": False}
    return sent(shown | ends | {"tokens_predicted": predicted, "tokens_evaluated": 69} | more)
