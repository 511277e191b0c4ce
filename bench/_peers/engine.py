"""A stub engine over HTTP, which costs as little as it can: it says the same at once, or a token each `pace_ms`.

    python -m bench._peers.engine PORT

It speaks what gateways ask of vLLM: token ids at /inference/v1/generate and /v1/completions, /v1/chat/completions and
/v1/responses. POST /pace?ms=5 changes how fast it is. What is answered is prepared; only ids of answers differ, as
gateways keep what they pass on by these.
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


def _ended(pieces: list[bytes]) -> list[bytes]:
    return [*pieces, b"data: [DONE]\n\n"]


def generate(stream: bool) -> Any:
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
    return _ended([*pieces, _data(head | {"choices": [], "usage": usage})])


def completions(stream: bool) -> Any:
    """/v1/completions, with token ids."""
    ids = sampled(TOKENS)
    head = {"id": f"cmpl-{ID}", "object": "text_completion", "created": 1, "model": MODEL}

    def choice(tokens: list[int], finish: str | None) -> dict[str, Any]:
        return {
            "index": 0,
            "text": "",
            "logprobs": None,
            "finish_reason": finish,
            "stop_reason": None,
            "token_ids": tokens,
        }

    if not stream:
        return head | {"choices": [choice(ids, "stop")], "usage": _usage(len(ids))}
    last = len(ids) - 1
    pieces = [
        _data(head | {"choices": [choice([id], "stop" if place == last else None)]}) for place, id in enumerate(ids)
    ]
    return _ended([*pieces, _data(head | {"choices": [], "usage": _usage(len(ids))})])


def chat(stream: bool) -> Any:
    """/v1/chat/completions."""
    if not stream:
        message = {"role": "assistant", "content": text(TOKENS), "refusal": None, "tool_calls": []}
        choice = {"index": 0, "message": message, "logprobs": None, "finish_reason": "stop", "stop_reason": None}
        head = {"id": f"chatcmpl-{ID}", "object": "chat.completion", "created": 1, "model": MODEL}
        return head | {"choices": [choice], "usage": _usage(TOKENS)}
    head = {"id": f"chatcmpl-{ID}", "object": "chat.completion.chunk", "created": 1, "model": MODEL}

    def piece(delta: dict[str, str], finish: str | None = None) -> bytes:
        return _data(head | {"choices": [{"index": 0, "delta": delta, "finish_reason": finish}]})

    words = (WORDS[place % len(WORDS)] for place in range(TOKENS))
    pieces = [piece({"role": "assistant", "content": ""}), *(piece({"content": word}) for word in words)]
    return _ended([*pieces, piece({}, "stop"), _data(head | {"choices": [], "usage": _usage(TOKENS)})])


def responses(stream: bool) -> Any:
    """/v1/responses, for gateways that pass it on."""
    part = {"type": "output_text", "text": text(TOKENS), "annotations": [], "logprobs": []}
    said = {"id": f"msg_{ID}", "type": "message", "role": "assistant", "status": "completed", "content": [part]}
    begun: dict[str, Any] = {
        "id": f"resp_{ID}",
        "object": "response",
        "created_at": 1,
        "status": "in_progress",
        "model": MODEL,
        "output": [],
        "error": None,
        "incomplete_details": None,
        "instructions": None,
        "metadata": {},
        "parallel_tool_calls": True,
        "temperature": 1.0,
        "top_p": 1.0,
        "tool_choice": "auto",
        "tools": [],
        "truncation": "disabled",
        "text": {"format": {"type": "text"}},
        "usage": None,
        "background": False,
        "previous_response_id": None,
        "max_output_tokens": None,
        "store": False,
    }
    usage = {
        "input_tokens": PROMPT_TOKENS,
        "input_tokens_details": {"cached_tokens": 0},
        "output_tokens": TOKENS,
        "output_tokens_details": {"reasoning_tokens": 0},
        "total_tokens": PROMPT_TOKENS + TOKENS,
    }
    done = begun | {"status": "completed", "output": [said], "usage": usage}
    if not stream:
        return done
    numbers = itertools.count()
    where = {"item_id": f"msg_{ID}", "output_index": 0, "content_index": 0}

    def event(type: str, **fields: object) -> bytes:
        body = _encode({"type": type, "sequence_number": next(numbers), **fields})
        return f"event: {type}\ndata: ".encode() + body + b"\n\n"

    empty = said | {"status": "in_progress", "content": []}
    return [
        event("response.created", response=begun),
        event("response.in_progress", response=begun),
        event("response.output_item.added", output_index=0, item=empty),
        event("response.content_part.added", **where, part=part | {"text": ""}),
        *(
            event("response.output_text.delta", **where, delta=WORDS[place % len(WORDS)], logprobs=[])
            for place in range(TOKENS)
        ),
        event("response.output_text.done", **where, text=text(TOKENS), logprobs=[]),
        event("response.content_part.done", **where, part=part),
        event("response.output_item.done", output_index=0, item=said),
        event("response.completed", response=done),
    ]


ANSWERS: dict[bytes, Callable[[bool], Any]] = {
    b"/inference/v1/generate": generate,
    b"/v1/completions": completions,
    b"/v1/chat/completions": chat,
    b"/v1/responses": responses,
}
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


class Stub:
    """What all connections share: how fast it is, and what is prepared."""

    def __init__(self) -> None:
        self.seconds = 0.0
        """How long a token takes."""
        self.plain = {path: _whole(_encode(make(False))) for path, make in ANSWERS.items()}
        self.pieces = {
            path: [b"%x\r\n%b\r\n" % (len(piece), piece) for piece in make(True)] for path, make in ANSWERS.items()
        }
        self.joined = {path: EVENTS_HEAD + b"".join(pieces) + LAST_CHUNK for path, pieces in self.pieces.items()}
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
        elif method != b"POST" or path not in ANSWERS:
            self._transport.write(_whole(b'{"error":{"message":"not found"}}', b"404 Not Found"))
        elif (
            path == b"/inference/v1/generate" and b"token_ids" not in self._body
        ):  # vLLM refuses it, and clients probe so
            self._transport.write(_whole(b'{"error":{"message":"token_ids: field required"}}', b"400 Bad Request"))
        else:
            self._answer(path, b'"stream":true' in self._body.replace(b" ", b""))

    def _answer(self, path: bytes, stream: bool) -> None:
        stub, id = self._stub, self._stub.next_id()
        if stream and stub.seconds:
            self._saying = asyncio.create_task(self._say(path, id))
        elif stream:
            self._transport.write(stub.joined[path].replace(ID.encode(), id))
        else:
            said = stub.plain[path].replace(ID.encode(), id)
            asyncio.get_running_loop().call_later(stub.seconds * TOKENS, self._transport.write, said)

    async def _say(self, path: bytes, id: bytes) -> None:
        loop = asyncio.get_running_loop()
        due, seconds = loop.time(), self._stub.seconds
        self._transport.write(EVENTS_HEAD)
        for piece in self._stub.pieces[path]:
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
