"""Servers that answer as no server should, and clients that try to get past the service."""

import asyncio
import json
import re
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager, suppress

import pytest

from service.settings.core import ApiKey
from service.settings.settings import Settings
from tests.support.service.inside import Inside, serving
from tests.support.service.process import ACME_KEY
from tests.support.waiting import until
from tests.web.passing.conftest import ENGINE_KEY, Behind, before, standing_before

CHAT = "/v1/chat/completions"
ASKED = {"model": "talker", "messages": [{"role": "user", "content": "hi"}]}
MODELS = json.dumps({"data": [{"id": "talker", "max_model_len": 4096}]}).encode()
OK = b"HTTP/1.1 200 OK\r\n"
EVENTS = b"content-type: text/event-stream\r\ntransfer-encoding: chunked\r\n\r\n"
BIG = 1 << 16


class Rude:
    """A server whose probes are answered well, and which says these bytes to any other request, the last for ever."""

    def __init__(self, *said: bytes) -> None:
        self.said = said
        self.sent = 0
        self.url = ""
        self.open = 0

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """One connection, until we are hung up on."""
        with suppress(asyncio.IncompleteReadError, ConnectionError):
            while head := await reader.readuntil(b"\r\n\r\n"):
                length = re.search(rb"content-length: (\d+)", head.lower())
                await reader.readexactly(int(length[1]) if length else 0)
                if CHAT.encode() in head:
                    await self._play(writer)
                    break
                body = MODELS if b"/v1/models" in head else b"{}"
                status = b"404 No" if b"/inference/" in head or b"/tokenize" in head else b"200 OK"
                writer.write(b"HTTP/1.1 %b\r\ncontent-length: %d\r\n\r\n%b" % (status, len(body), body))
        writer.close()

    async def _play(self, writer: asyncio.StreamWriter) -> None:
        self.open += 1
        try:
            for piece in self.said:
                writer.write(piece)
            while self.said[-1:]:
                writer.write(self.said[-1])
                self.sent += len(self.said[-1])
                await writer.drain()
                await asyncio.sleep(0)
        finally:
            self.open -= 1


@asynccontextmanager
async def rude(settings: Settings, *said: bytes, **more: object) -> AsyncIterator[tuple[Inside, Rude]]:
    """A service before such a server."""
    server = Rude(*said)
    listening = await asyncio.start_server(server.serve, "127.0.0.1", 0)
    server.url = f"http://127.0.0.1:{listening.sockets[0].getsockname()[1]}"
    async with listening, serving(before(settings, server, **more)) as inside:
        yield inside, server


@pytest.mark.parametrize(
    "said",
    [
        (b"HTTP/1.1 100 Continue\r\n\r\n",),
        (OK + b"x-more: ", b"x" * BIG),
        (OK + EVENTS, b"0" * BIG),
        (OK + b"content-type: application/json\r\ncontent-length: 5\r\ncontent-length: 6\r\n\r\n", b"12345"),
        (b"HTTP/1.1 101 Switching Protocols\r\nupgrade: websocket\r\nconnection: upgrade\r\n\r\n", b"\x81\x00"),
        (b"SSH-2.0-OpenSSH\r\n",),
    ],
    ids=["100", "a header", "a length", "two lengths", "101", "another protocol"],
)
@pytest.mark.parametrize("stream", [False, True])
async def test_an_answer_without_end_or_sense_fails(settings: Settings, said: tuple[bytes, ...], stream: bool) -> None:
    async with rude(settings, *said, request_seconds=3.0) as (inside, server), inside.http() as http:
        answer = await http.post(CHAT, json={**ASKED, "stream": stream})
        assert answer.status_code >= 500 or b'"error"' in answer.content
        assert server.url.encode() not in answer.content
        await until(lambda: server.open == 0)
        assert (await http.get("/v1/models")).status_code == 200


async def test_a_client_that_reads_nothing_makes_the_server_wait(settings: Settings) -> None:
    said = b"10000\r\n" + b"data: " + b"x" * (BIG - 8) + b"\n\n" + b"\r\n"
    async with rude(settings, OK + EVENTS, said, send_seconds=2.0) as (inside, server):
        _, writer = await asyncio.open_connection("127.0.0.1", inside.port, limit=BIG)
        body = json.dumps({**ASKED, "stream": True}).encode()
        writer.write(
            b"POST %b HTTP/1.1\r\nhost: localhost\r\ncontent-type: application/json\r\ncontent-length: %d\r\n\r\n%b"
            % (CHAT.encode(), len(body), body)
        )
        sent = await _steady(lambda: server.sent)
        assert sent < 32 << 20
        await until(lambda: server.open == 0, 10)  # it was cut off
        writer.close()


async def _steady(count: Callable[[], int]) -> int:
    """A count, once it is above 0 and no longer grows for a while."""
    last = (0, 0.0)

    def still() -> bool:
        nonlocal last
        now = asyncio.get_running_loop().time()
        if count() != last[0]:
            last = (count(), now)
        return last[0] > 0 and now - last[1] > 0.5

    await until(still, 20)
    return last[0]


async def test_no_other_path_gets_to_the_server(behind: Behind) -> None:
    before = len(behind.server.asked)
    for end in ("/../../metrics", "/%2e%2e/%2e%2e/health", "%00", ";x=1"):
        assert await _status(behind.inside, f"POST {CHAT}{end} HTTP/1.1") in (400, 404), end
    for path in ("/v1//chat/completions", f"/open-responses{CHAT}", f"http://127.0.0.1:1{CHAT}x"):
        assert await _status(behind.inside, f"POST {path} HTTP/1.1") in (400, 404), path
    assert [each.path for each in behind.server.asked[before:] if each.path not in ("/health", "/v1/models")] == []


async def test_nobody_gets_to_the_server_without_a_key(settings: Settings) -> None:
    secret = type(settings.engine_api_key)
    async with standing_before(settings, api_keys=(ApiKey("acme", secret(ACME_KEY)),)) as behind:
        for key in ("", "wrong", ENGINE_KEY):
            line = f"POST {CHAT} HTTP/1.1"
            assert await _status(behind.inside, line, f"authorization: Bearer {key}") == 401
        assert not [each for each in behind.server.asked if each.path == CHAT]


async def _status(inside: Inside, line: str, *headers: str) -> int:
    """The status of the answer to a request that no client would let through."""
    reader, writer = await asyncio.open_connection("127.0.0.1", inside.port)
    body = json.dumps(ASKED)
    head = [line, "host: localhost", "content-type: application/json", f"content-length: {len(body)}", *headers]
    writer.write("\r\n".join([*head, "connection: close", "", body]).encode())
    said = await reader.read()
    writer.close()
    return int(said.split(b" ", 2)[1])
