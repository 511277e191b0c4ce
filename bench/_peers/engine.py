"""A stub engine over HTTP, which costs as little as it can: it says the same at once, or a token each `pace_ms`.

    python -m bench._peers.engine PORT

It speaks what harmonium asks of vLLM, token ids at /inference/v1/generate, and chat completions for others. POST
/pace?ms=5 changes how fast it is. What is answered is prepared; only ids of answers differ.
"""

import asyncio
import itertools
import sys
from collections.abc import Callable
from typing import Any, cast

import httptools
import msgspec
import uvloop

from bench._peers.answer import PROMPT_TOKENS, TOKENS, WORDS, sampled, text

MODEL = "stub"
GENERATE, CHAT = b"/inference/v1/generate", b"/v1/chat/completions"
ID = "STUBSTUBSTUBSTUBSTUB"
"""Stands in what is prepared for an id, of the same length."""

_encode = msgspec.json.encode


def _usage(tokens: int) -> dict[str, int]:
    return {
        "prompt_tokens": PROMPT_TOKENS,
        "completion_tokens": tokens,
        "total_tokens": PROMPT_TOKENS + tokens,
    }


def _data(payload: object) -> bytes:
    return b"data: " + _encode(payload) + b"\n\n"


def generate(*, stream: bool) -> Any:
    """/inference/v1/generate."""
    ids = sampled(TOKENS)
    head = {"request_id": ID, "usage": None, "output_mode": "tokens"}

    def choice(tokens: list[int], finish: str | None) -> dict[str, Any]:
        return {"index": 0, "finish_reason": finish, "stop_reason": None, "token_ids": tokens, "logprobs": None}

    if not stream:
        return head | {"choices": [choice(ids, "stop")], "usage": _usage(len(ids))}
    last = len(ids) - 1
    pieces = [
        _data(head | {"choices": [choice([id], "stop" if place == last else None)]}) for place, id in enumerate(ids)
    ]
    usage = _usage(len(ids)) | {"prompt_tokens_details": {"cached_tokens": 0}}
    return [*pieces, _data(head | {"choices": [], "usage": usage}), b"data: [DONE]\n\n"]


def chat(*, stream: bool) -> Any:
    """/v1/chat/completions. A stream has a chunk a token."""
    head = {"id": ID, "created": 1, "model": MODEL}
    usage, whole = _usage(TOKENS), {"role": "assistant", "content": text(TOKENS)}
    if not stream:
        choice = {"index": 0, "message": whole, "finish_reason": "stop"}
        return head | {"object": "chat.completion", "choices": [choice], "usage": usage}

    def chunk(delta: dict[str, Any], finish: str | None = None) -> bytes:
        choice = {"index": 0, "delta": delta, "finish_reason": finish}
        return _data(head | {"object": "chat.completion.chunk", "choices": [choice], "usage": None})

    words = [chunk({"content": WORDS[place % len(WORDS)]}) for place in range(TOKENS)]
    last = _data(head | {"object": "chat.completion.chunk", "choices": [], "usage": usage})
    return [chunk({"role": "assistant", "content": ""}), *words, chunk({}, "stop"), last, b"data: [DONE]\n\n"]


MODELS = {
    "object": "list",
    "data": [
        {"id": MODEL, "object": "model", "created": 1, "owned_by": "vllm", "root": MODEL, "max_model_len": 131_072}
    ],
}
EVENTS_HEAD = (
    b"HTTP/1.1 200 OK\r\ncontent-type: text/event-stream; charset=utf-8\r\ncache-control: no-cache\r\n"
    b"transfer-encoding: chunked\r\n\r\n"
)
LAST_CHUNK = b"0\r\n\r\n"


def _whole(body: bytes, status: bytes = b"200 OK") -> bytes:
    head = b"HTTP/1.1 %b\r\ncontent-type: application/json\r\ncontent-length: %d\r\n\r\n" % (status, len(body))
    return head + body


class Prepared:
    """An answer, whole and as a stream."""

    def __init__(self, make: Callable[..., Any]) -> None:
        self.plain = _whole(_encode(make(stream=False)))
        self.pieces = [b"%x\r\n%b\r\n" % (len(piece), piece) for piece in make(stream=True)]
        self.joined = EVENTS_HEAD + b"".join(self.pieces) + LAST_CHUNK


class Stub:
    """The state that all connections share: how fast it is, and what is prepared for each path."""

    def __init__(self) -> None:
        self.seconds = 0.0
        """How long a token takes."""
        self.answers = {GENERATE: Prepared(generate), CHAT: Prepared(chat)}
        self._ids = itertools.count(10**19)

    def next_id(self) -> bytes:
        """An id that nothing else has."""
        return b"%d" % next(self._ids)


class Connection(asyncio.Protocol):
    """One connection of a gateway; one request at a time."""

    def __init__(self, stub: Stub) -> None:
        self._stub = stub
        self._parser = httptools.HttpRequestParser(self)
        self._body = bytearray()
        self._url = b""
        self._saying: asyncio.Task[None] | None = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """See asyncio."""
        self._transport = cast(asyncio.Transport, transport)

    def connection_lost(self, exc: Exception | None) -> None:
        """See asyncio."""
        if self._saying is not None:
            self._saying.cancel()

    def data_received(self, data: bytes) -> None:
        """See asyncio."""
        self._parser.feed_data(data)

    def on_message_begin(self) -> None:
        """See httptools."""
        self._body.clear()

    def on_url(self, url: bytes) -> None:
        """See httptools."""
        self._url = url

    def on_body(self, body: bytes) -> None:
        """See httptools."""
        self._body += body

    def on_message_complete(self) -> None:
        """See httptools."""
        path, _, query = self._url.partition(b"?")
        stub, method = self._stub, self._parser.get_method()
        if path == b"/pace":
            stub.seconds = float(query.removeprefix(b"ms=")) / 1000
            self._transport.write(_whole(b"{}"))
        elif path == b"/v1/models":
            self._transport.write(_whole(_encode(MODELS)))
        elif path == b"/version":
            self._transport.write(_whole(b'{"version":"0.32.0"}'))
        elif path in (b"/health", b"/metrics"):
            self._transport.write(_whole(b""))
        elif method != b"POST" or path not in stub.answers:
            self._transport.write(_whole(b'{"error":{"message":"not found"}}', b"404 Not Found"))
        elif path == GENERATE and b"token_ids" not in self._body:  # vLLM refuses it, and clients probe so
            self._transport.write(_whole(b'{"error":{"message":"token_ids: field required"}}', b"400 Bad Request"))
        else:
            self._answer(stub.answers[path], stream=b'"stream":true' in self._body.replace(b" ", b""))

    def _answer(self, answer: Prepared, *, stream: bool) -> None:
        stub, id = self._stub, self._stub.next_id()
        if stream and stub.seconds:
            self._saying = asyncio.create_task(self._say(answer, id))
        elif stream:
            self._transport.write(answer.joined.replace(ID.encode(), id))
        else:
            said = answer.plain.replace(ID.encode(), id)
            asyncio.get_running_loop().call_later(stub.seconds * TOKENS, self._transport.write, said)

    async def _say(self, answer: Prepared, id: bytes) -> None:
        loop = asyncio.get_running_loop()
        due, seconds = loop.time(), self._stub.seconds
        self._transport.write(EVENTS_HEAD)
        for piece in answer.pieces:
            due += seconds
            await asyncio.sleep(due - loop.time())
            self._transport.write(piece.replace(ID.encode(), id))
        self._transport.write(LAST_CHUNK)


async def main(port: int) -> None:
    """Serve for ever."""
    stub = Stub()
    server = await asyncio.get_running_loop().create_server(lambda: Connection(stub), "127.0.0.1", port, backlog=4096)
    await server.serve_forever()


if __name__ == "__main__":
    uvloop.run(main(int(sys.argv[1])))
