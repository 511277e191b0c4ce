"""A server that answers chat completions at once: the other end of bench/passing.py, in a process of its own.

Each word of a stream is the time at which it was sent, in ns on the monotonic clock, which all processes share.
"""

import asyncio
import os
import time

from aiohttp import web

WORDS = 50
PACE_SECONDS = 0.005
"""How long the next word takes, as on a fast server."""

MODEL = "worded"
HEAD = (
    b'data: {"id":"c","object":"chat.completion.chunk","created":1,"model":"worded",'
    b'"choices":[{"index":0,"delta":{"content":"'
)
TAIL = b'"},"finish_reason":null}]}\n\n'
WHOLE = (
    b'{"id":"c","object":"chat.completion","created":1,"model":"worded","choices":[{"index":0,"message":{"role":"assistant",'
    b'"content":"%b"},"finish_reason":"stop"}],"usage":{"prompt_tokens":9,"completion_tokens":50,"total_tokens":59}}'
    % (b"word " * WORDS)
)


async def _chat(request: web.Request) -> web.StreamResponse:
    body = await request.json()
    if not body.get("stream"):
        return web.Response(body=WHOLE, content_type="application/json")
    stream = web.StreamResponse(headers={"content-type": "text/event-stream; charset=utf-8"})
    stream.enable_chunked_encoding()
    await stream.prepare(request)
    for _ in range(body["max_tokens"]):
        await stream.write(HEAD + b"%d" % time.monotonic_ns() + TAIL)
        await asyncio.sleep(PACE_SECONDS if body["temperature"] else 0)
    await stream.write(b"data: [DONE]\n\n")
    return stream


async def _models(request: web.Request) -> web.Response:
    return web.json_response({"data": [{"id": MODEL, "max_model_len": 4096}]})


async def _none(request: web.Request) -> web.Response:
    return web.json_response({}, status=404)


async def _well(request: web.Request) -> web.Response:
    return web.Response()


def main() -> None:
    """Serve until a signal comes."""
    app = web.Application()
    app.router.add_get("/health", _well)
    app.router.add_get("/v1/models", _models)
    app.router.add_post("/inference/v1/generate", _none)
    app.router.add_post("/v1/chat/completions", _chat)
    web.run_app(app, host="127.0.0.1", port=int(os.environ["WORDED_PORT"]), access_log=None, print=None)


if __name__ == "__main__":
    main()
