"""The APIs of its own that the stand-in for a vLLM server has: it says what it is told, by words.

`FOR_EVER` it says again and again, until it is hung up on.
"""

import asyncio
import re
from collections.abc import Callable
from contextlib import AbstractContextManager
from typing import Any

import msgspec
from aiohttp import web

from tests.support.engine.standin_wire import DONE, event
from tests.support.engine.standing import as_json, streaming

FOR_EVER = "for ever"
PACE_SECONDS = 0.01
"""How long a word takes that is said for ever."""

USE = re.compile(r"Use (\w+): (\{.*?\})")
"""Words that ask for a call of a tool with these arguments."""

_CREATED = 1_700_000_000


Working = Callable[[], AbstractContextManager[None]]


async def chat(request: web.Request, body: dict[str, Any], working: Working) -> Any:
    said = body["messages"][-1]["content"]
    return await _answer(request, body, said, working, "chat.completion")


async def complete(request: web.Request, body: dict[str, Any], working: Working) -> Any:
    return await _answer(request, body, body["prompt"], working, "text_completion")


def embed(body: dict[str, Any]) -> web.Response:
    """`/v1/embeddings`: how long each text is."""
    texts = [body["input"]] if isinstance(body["input"], str) else body["input"]
    each = [{"object": "embedding", "index": n, "embedding": [float(len(text))]} for n, text in enumerate(texts)]
    tokens = sum(len(text.split()) for text in texts)
    usage = {"prompt_tokens": tokens, "total_tokens": tokens, "completion_tokens": 0, "prompt_tokens_details": None}
    return as_json({"id": "embd-1", "object": "list", "model": body["model"], "data": each, "usage": usage})


async def _answer(
    request: web.Request,
    body: dict[str, Any],
    said: str,
    working: Working,
    kind: str,
) -> web.StreamResponse:
    words = said.split()
    usage = {"prompt_tokens": len(words), "completion_tokens": len(words), "total_tokens": 2 * len(words)}
    usage["prompt_tokens_details"] = {"cached_tokens": 1}  # type: ignore[assignment]
    head: dict[str, Any] = {"id": "cmpl-1", "object": kind, "created": _CREATED, "model": body["model"]}
    with working():
        if not body.get("stream"):
            if said == FOR_EVER:
                await asyncio.Event().wait()  # until the connection is gone, which cancels this
            return as_json({**head, "choices": [_choice(kind, said, whole=True)], "usage": usage})
        stream = await streaming(request)
        head["object"] = "chat.completion.chunk" if kind == "chat.completion" else kind
        for word in words:
            await stream.write(event({**head, "choices": [_choice(kind, f"{word} ")]}))
        while said == FOR_EVER:
            await asyncio.sleep(PACE_SECONDS)
            await stream.write(event({**head, "choices": [_choice(kind, "again ")]}))
        await stream.write(event({**head, "choices": [{**_choice(kind, ""), "finish_reason": "stop"}]}))
        if (body.get("stream_options") or {}).get("include_usage"):
            await stream.write(event({**head, "choices": [], "usage": usage}))
        await stream.write(DONE)
    return stream


async def messages(request: web.Request, body: dict[str, Any], working: Working) -> web.StreamResponse:
    """`/v1/messages`, as vLLM answers it: what is said last, or the call for which that asks by USE."""
    words, call = _said(body)
    usage = {"input_tokens": len(words), "output_tokens": 0, "cache_read_input_tokens": 1}
    head = {"id": "msg_1", "type": "message", "role": "assistant", "model": body["model"], "content": []}
    head |= {"stop_reason": None, "stop_sequence": None}
    stop = "tool_use" if call else "end_turn"
    with working():
        if not body.get("stream"):
            block = call or {"type": "text", "text": " ".join(words)}
            told = {"stop_reason": stop, "usage": usage | {"output_tokens": len(words)}}
            return as_json(head | {"content": [block]} | told)
        stream = await streaming(request)
        await stream.write(_told("message_start", message=head | {"usage": usage}))
        block = {**call, "input": {}} if call else {"type": "text", "text": ""}
        await stream.write(_told("content_block_start", index=0, content_block=block))
        for word in [msgspec.json.encode(call["input"]).decode()] if call else words:
            delta = {"type": "input_json_delta", "partial_json": word} if call else _text_delta(f"{word} ")
            await stream.write(_told("content_block_delta", index=0, delta=delta))
        while " ".join(words) == FOR_EVER:
            await asyncio.sleep(PACE_SECONDS)
            await stream.write(_told("content_block_delta", index=0, delta=_text_delta("again ")))
        await stream.write(_told("content_block_stop", index=0))
        ended = {"delta": {"stop_reason": stop, "stop_sequence": None}, "usage": {"output_tokens": len(words)}}
        await stream.write(_told("message_delta", **ended))
        await stream.write(_told("message_stop") + DONE)
    return stream


def _said(body: dict[str, Any]) -> tuple[list[str], dict[str, Any] | None]:
    """The words of the last message, and the block of a call, where one of its texts asks for it."""
    said = [each["content"] for each in body["messages"] if each["role"] == "user"][-1]
    blocks = [{"type": "text", "text": said}] if isinstance(said, str) else said
    texts = [each["text"] if each["type"] == "text" else _text(each["content"]) for each in blocks]
    for text in texts:
        if (asked := USE.search(text)) and any(tool["name"] == asked[1] for tool in body.get("tools", ())):
            return [], {"type": "tool_use", "id": "toolu_1", "name": asked[1], "input": msgspec.json.decode(asked[2])}
    return texts[-1].split(), None


def _text(content: Any) -> str:
    """The text of a result."""
    return content if isinstance(content, str) else "".join(each["text"] for each in content)


def _text_delta(text: str) -> dict[str, Any]:
    return {"type": "text_delta", "text": text}


def _told(kind: str, **members: Any) -> bytes:
    return b"event: %b\n" % kind.encode() + event({"type": kind, **members})


async def transcribe(request: web.Request, body: dict[str, Any]) -> web.StreamResponse:
    """`/v1/audio/transcriptions`: what the form says of the file, as vLLM answers it."""
    name, _, content = body["file"]
    words = [name, str(len(content))]
    if body.get("response_format") == "text":
        return web.Response(text=" ".join(words))
    if body.get("stream") != "true":
        return as_json({"text": " ".join(words), "usage": {"type": "duration", "seconds": 2}})
    stream = await streaming(request)
    for word in words:
        choice = {"delta": {"content": f"{word} "}, "finish_reason": None, "stop_reason": None}
        await stream.write(event({"object": "transcription.chunk", "model": body["model"], "choices": [choice]}))
    if body.get("stream_include_usage") == "true":
        usage = {"prompt_tokens": 9, "completion_tokens": 2, "total_tokens": 11}
        await stream.write(event({"object": "transcription.chunk", "choices": [], "usage": usage}))
    await stream.write(DONE)
    return stream


_USAGE = {"prompt_tokens": 3, "total_tokens": 3}
TOLD: dict[str, dict[str, Any]] = {
    "/v1/messages/count_tokens": {"input_tokens": 7},
    "/v1/rerank": {"id": "r-1", "results": [{"index": 1, "relevance_score": 0.9}], "usage": _USAGE},
    "/v1/score": {"id": "s-1", "object": "list", "data": [{"index": 0, "score": 0.5}], "usage": _USAGE},
    "/v1/decisions": {
        "answers": [{"type": "predicate", "name": None, "probability": 0.75}],
        "usage": {"input_tokens": 5, "input_tokens_details": {"cached_tokens": 2}, "output_tokens": 1},
    },
}
"""Answers that are the same whatever was asked."""


def told(path: str) -> web.Response:
    """One of these."""
    return as_json({"model": "talker", **TOLD[path]})


def _choice(kind: str, text: str, *, whole: bool = False) -> dict[str, Any]:
    said = {"role": "assistant", "content": text}
    part: dict[str, Any] = {"text": text} if kind == "text_completion" else {"message" if whole else "delta": said}
    return {"index": 0, "finish_reason": "stop" if whole else None, **part}
