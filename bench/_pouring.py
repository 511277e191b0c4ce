"""A vLLM server that answers with prepared bytes: the other end of bench/reader.py, in a process of its own.

It is a protocol that writes, and nothing else, so that it never is what a reader waits for. A generation of temperature
0 comes all at once, and any other with one event each PACE_SECONDS.
"""

import asyncio
import os
from typing import cast

import msgspec
import uvloop

from service.engine.vllm.wire import TOKENIZE, Endpoint
from service.harmony.tokens import START

HOST = "127.0.0.1"
TOKENS = 64
PACE_SECONDS = 0.005
MODEL = "poured"
BACKLOG = 2048
"""As uvicorn's, which is vLLM's."""

END_OF_HEAD = b"\r\n\r\n"
STREAM = (
    b"HTTP/1.1 200 OK\r\ndate: Mon, 23 Nov 2026 12:00:00 GMT\r\nserver: uvicorn\r\n"
    b"content-type: text/event-stream; charset=utf-8\r\ntransfer-encoding: chunked\r\n\r\n"
)
ENDED = b"0\r\n\r\n"


def answered(body: object, status: int = 200) -> bytes:
    """A whole answer."""
    said = msgspec.json.encode(body)
    head = f"HTTP/1.1 {status} Said\r\ncontent-type: application/json\r\ncontent-length: {len(said)}\r\n\r\n"
    return head.encode() + said


def chunk(event: bytes) -> bytes:
    """An event as a chunk of its own."""
    line = b"data: %b\n\n" % event
    return b"%x\r\n%b\r\n" % (len(line), line)


def told(token: int, finish: str | None = None) -> bytes:
    """An event of one token, as vLLM 0.32 has it."""
    choice = {"index": 0, "logprobs": None, "finish_reason": finish, "token_ids": [token], "prompt_logprobs": None}
    event = {"request_id": "generate-tokens-resp_0123456789abcdef", "choices": [choice], "usage": None}
    return chunk(msgspec.json.encode(event))


USAGE = {"prompt_tokens": 3, "total_tokens": 3 + TOKENS, "completion_tokens": TOKENS}
SAID = [*(told(1000 + place) for place in range(TOKENS - 1)), told(1000 + TOKENS, "stop")]
TAIL = chunk(msgspec.json.encode({"request_id": "r", "choices": [], "usage": USAGE})) + chunk(b"[DONE]") + ENDED
AT_ONCE = STREAM + b"".join(SAID) + TAIL

ANSWERS = {
    "/health": answered({}),
    "/v1/models": answered({"data": [{"id": MODEL, "max_model_len": 4096}]}),
    TOKENIZE: answered({"tokens": [START]}),
}
NOTHING = answered({}, 404)
NO_PROMPT = answered({}, 400)


class Pouring(asyncio.Protocol):
    """One connection."""

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Keep the way back."""
        self._transport = cast(asyncio.Transport, transport)
        self._asked = b""

    def data_received(self, data: bytes) -> None:
        """Answer, once a request is there: one at a time."""
        self._asked += data
        head, found, body = self._asked.partition(END_OF_HEAD)
        length = int((head.lower().partition(b"content-length:")[2] or b"0").split(b"\r\n")[0])
        if not found or len(body) < length:
            return
        self._asked = b""
        path = head.split(b" ", 2)[1].decode()
        if path != Endpoint.GENERATE:
            self._transport.write(ANSWERS.get(path, NOTHING))
        elif body == b"{}":
            self._transport.write(NO_PROMPT)
        elif b'"temperature":0.0' in body:
            self._transport.write(AT_ONCE)
        else:
            self._transport.write(STREAM)
            self._pour(0)

    def _pour(self, place: int) -> None:
        """The next event, until all are sent."""
        if self._transport.is_closing():
            return
        if place == TOKENS:
            self._transport.write(TAIL)
            return
        self._transport.write(SAID[place])
        asyncio.get_running_loop().call_later(PACE_SECONDS, self._pour, place + 1)


async def serve() -> None:
    """Listen for ever."""
    server = await asyncio.get_running_loop().create_server(
        Pouring, HOST, int(os.environ["POURING_PORT"]), backlog=BACKLOG
    )
    await server.serve_forever()


if __name__ == "__main__":
    uvloop.run(serve())
