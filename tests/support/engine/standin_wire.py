"""The bytes that a vLLM server sends for a generation, as vLLM 0.32 was seen to send them. For standin.py.

Only what an adapter could trip over is kept of an event: its order, its keys, what is null and what is left out.
"""

import json
from collections.abc import Iterator, Sequence
from typing import Any

import msgspec

from service.engine.port import Chunk, TokenLogprobs
from service.engine.vllm.servers import TokensEndpoint
from service.harmony.tokens import decode

DONE = b"data: [DONE]\n\n"


def event(payload: object) -> bytes:
    """One event with a body of compact JSON, as pydantic writes it."""
    return b"data: " + msgspec.json.encode(payload) + b"\n\n"


def error_body(status: int, message: str, type: str = "BadRequestError", param: str | None = None) -> dict[str, Any]:
    """The body of an error, over HTTP or in a stream."""
    return {"error": {"message": message, "type": type, "param": param, "code": status}}


def error_event(status: int, message: str) -> bytes:
    """An error in a stream; its JSON is Python's own, with spaces."""
    return b"data: " + json.dumps(error_body(status, message)).encode() + b"\n\n"


def tokens_event(tokens: Sequence[int], finish: str | None = None) -> bytes:
    """An event as short as either endpoint's can be."""
    return event({"choices": [{"index": 0, "token_ids": list(tokens), "finish_reason": finish}]})


def events(
    endpoint: TokensEndpoint, chunk: Chunk, tokens_an_event: int, prompt: Sequence[int] | None
) -> Iterator[bytes]:
    """The events of a chunk. `prompt` is given for the first one, and only `/v1/completions` repeats it."""
    pieces = [chunk.tokens[at : at + tokens_an_event] for at in range(0, len(chunk.tokens), tokens_an_event)]
    logprobs = iter(chunk.logprobs or ())
    for place, tokens in enumerate(pieces or ([[]] if chunk.finish else [])):
        finish = chunk.finish if place >= len(pieces) - 1 else None
        choice: dict[str, Any] = {"index": 0, "finish_reason": finish, "stop_reason": None, "token_ids": tokens}
        given = None if chunk.logprobs is None else [next(logprobs) for _ in tokens]
        if endpoint is TokensEndpoint.GENERATE:
            choice["logprobs"] = None if given is None else _generate_logprobs(tokens, given)
            yield event(
                {"request_id": "generate-tokens-1", "usage": None, "output_mode": "tokens", "choices": [choice]}
            )
        else:
            choice["logprobs"] = None if given is None else _completions_logprobs(tokens, given)
            choice |= {"text": decode(tokens), "prompt_token_ids": list(prompt) if prompt and not place else None}
            yield event({"id": "cmpl-1", "object": "text_completion", "created": 1, "choices": [choice]})


def usage_event(endpoint: TokensEndpoint, prompt: int, sampled: int, cached: int) -> bytes:
    name = "request_id" if endpoint is TokensEndpoint.GENERATE else "id"
    details = {"cached_tokens": cached}
    usage = {"prompt_tokens": prompt, "total_tokens": prompt + sampled, "completion_tokens": sampled}
    return event({name: "1", "choices": [], "usage": {**usage, "prompt_tokens_details": details}})


def _generate_logprobs(tokens: Sequence[int], given: Sequence[TokenLogprobs]) -> dict[str, Any]:
    content = [
        {
            "token_id": token,
            "logprob": each.logprob,
            "rank": 1,
            "top_logprobs": [
                {"token_id": id, "logprob": logprob, "rank": rank} for rank, (id, logprob) in enumerate(each.top, 1)
            ],
        }
        for token, each in zip(tokens, given, strict=True)
    ]
    return {"content": content}


def _completions_logprobs(tokens: Sequence[int], given: Sequence[TokenLogprobs]) -> dict[str, Any]:
    return {
        "text_offset": [0] * len(tokens),
        "token_logprobs": [each.logprob for each in given],
        "tokens": [f"token_id:{token}" for token in tokens],
        "top_logprobs": [{f"token_id:{id}": logprob for id, logprob in each.top} for each in given],
    }


def metrics_page(running: int, waiting: int, used: float, room: int) -> bytes:
    """The part of a page of metrics that tells the load; a server that doesn't know its room says None."""
    config = {
        "block_size": "16",
        "cache_dtype": "auto",
        "engine": "0",
        "kv_cache_size_tokens": str(room or None),
        "num_gpu_blocks": "None",
    }
    of = '{engine="0",model_name="talker"}'
    lines = [
        "# HELP vllm:num_requests_running Number of requests in model execution batches.",
        "# TYPE vllm:num_requests_running gauge",
        f"vllm:num_requests_running{of} {running:.1f}",
        f"vllm:num_requests_waiting{of} {waiting:.1f}",
        f'vllm:num_requests_waiting_by_reason{{engine="0",model_name="talker",reason="capacity"}} {waiting:.1f}',
        f"vllm:kv_cache_usage_perc{of} {used}",
        "vllm:cache_config_info{" + ",".join(f'{name}="{value}"' for name, value in config.items()) + "} 1.0",
    ]
    return "\n".join([*lines, ""]).encode()
