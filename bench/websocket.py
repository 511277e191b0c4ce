"""What a WebSocket saves a conversation, and what its events cost: over one socket against over HTTP, side by side.

    scripts/bench websocket [--check]

Conversations of TURNS turns grow at the same time over a WebSocket, over HTTP with `previous_response_id`, and over a
WebSocket without the store; the figure is the time from the last request to its first event. The tokens are made
beforehand (_prepared.py), so that no engine is waited for, and the service has a core of its own. An event's cost is
the service's CPU for long streams less that for short ones, one token at a time, by the tokens between. All take turns
within a round; figures are medians.
"""

import argparse
import asyncio
import base64
import json
import os
import sys
import time
from collections.abc import AsyncGenerator, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path
from statistics import median
from typing import Any, cast

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT))

from bench._harness import (  # noqa: E402
    HOST,
    LAST_CHUNK,
    LOOK_SECONDS,
    OTHER_CORE,
    READ_BYTES,
    SERVER_CORE,
    Client,
    Server,
    connected,
    keep_to,
)
from bench._prepared import MODEL, PATH  # noqa: E402
from bench._rig import running  # noqa: E402

TARGET_FIRST = 0.7
"""The most that the time to the first event over a WebSocket may be, of that over HTTP."""

TARGET_EVENT = 1.8
"""The most CPU that an event over a WebSocket may take, of that of an event over HTTP."""

TURNS = 40
LAST_TURNS = 5
"""Turns at the end of each conversation that are measured."""

INPUT = "What does the next chapter of the story tell? " * 4
TURN_TOKENS = 300
THINK_SECONDS = 0.005
"""How long nobody asks for anything before each request: the end of one way's turn isn't the next one's cost."""

STREAMS = 8
SHORT_TOKENS = 16
LONG_TOKENS = 1000
WAYS = ("http", "socket", "socket, not stored")
ENDS = (b"response.incomplete", b"response.completed")


class Socket:
    """One WebSocket, by hand: a library would take more CPU than the service."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._reader, self._writer = reader, writer
        self._unread = bytearray()

    def send(self, body: bytes) -> None:
        """Send a text."""
        size = len(body)
        length = bytes([0x80 | size]) if size < 126 else b"\xfe" + size.to_bytes(2, "big")
        self._writer.write(b"\x81" + length + b"\0\0\0\0" + body)  # a mask of zeros

    def _frames(self) -> list[bytes]:
        """The frames that have come whole."""
        frames: list[bytes] = []
        data, at = self._unread, 0
        while len(data) - at >= 2:
            size, start = data[at + 1], at + 2
            if size >= 126:
                width = 2 if size == 126 else 8
                size, start = int.from_bytes(data[start : start + width], "big"), start + width
            if len(data) < start + size:
                break
            frames.append(bytes(data[start : start + size]))
            at = start + size
        del data[:at]
        return frames

    async def _more(self) -> None:
        piece = await self._reader.read(READ_BYTES)
        if not piece:
            raise RuntimeError("the WebSocket was closed")
        self._unread += piece

    async def first(self, body: bytes) -> tuple[float, str]:
        """How long the first event takes, and the response's id, once all of it was read."""
        began = time.perf_counter()
        self.send(body)
        while not (frames := self._frames()):
            await self._more()
        took = time.perf_counter() - began
        created = json.loads(frames[0])
        if created["type"] != "response.created":
            raise RuntimeError(f"refused: {created}")
        while not _ended(frames):
            await self._more()
            frames = self._frames()
        return took, created["response"]["id"]

    async def stream(self, body: bytes) -> None:
        """Read a response to its end, as Client.stream does: looking now and then."""
        self.send(body)
        transport = cast(asyncio.Transport, self._writer.transport)
        frames: list[bytes] = []
        while not _ended(frames):
            transport.pause_reading()
            await asyncio.sleep(LOOK_SECONDS)
            transport.resume_reading()
            await self._more()
            frames = self._frames()


def _ended(frames: Sequence[bytes]) -> bool:
    return bool(frames) and any(end in frames[-1][:40] for end in ENDS)


@asynccontextmanager
async def opened(port: int) -> AsyncGenerator[Socket]:
    """A WebSocket."""
    reader, writer = await asyncio.open_connection(HOST, port, limit=READ_BYTES)
    key = base64.b64encode(os.urandom(16)).decode()
    writer.write(
        f"GET {PATH} HTTP/1.1\r\nhost: {HOST}\r\nupgrade: websocket\r\nconnection: upgrade\r\n"
        f"sec-websocket-version: 13\r\nsec-websocket-key: {key}\r\n\r\n".encode()
    )
    head = await reader.readuntil(b"\r\n\r\n")
    if not head.startswith(b"HTTP/1.1 101 "):
        raise RuntimeError(f"refused: {head.decode()}")
    yield Socket(reader, writer)
    writer.close()
    await writer.wait_closed()


async def first_over_http(port: int, streams: tuple[asyncio.StreamReader, asyncio.StreamWriter], body: bytes) -> Any:
    """As Socket.first, over a connection of HTTP that is kept."""
    reader, writer = streams
    began = time.perf_counter()
    head = f"POST {PATH} HTTP/1.1\r\nhost: {HOST}\r\ncontent-type: application/json\r\ncontent-length: {len(body)}"
    writer.write(head.encode() + b"\r\n\r\n" + body)
    await reader.readuntil(b"event: response.created\n")
    took = time.perf_counter() - began
    created = await reader.readuntil(b"\n\n")
    rest = b""
    while not rest.endswith(LAST_CHUNK):
        rest = (rest + await reader.read(READ_BYTES))[-len(LAST_CHUNK) :]
    return took, json.loads(created.partition(b"data: ")[2])["response"]["id"]


def asked(previous: str | None, **more: object) -> bytes:
    """A request for a turn."""
    body = {"model": MODEL, "input": INPUT, "max_output_tokens": TURN_TOKENS, "previous_response_id": previous, **more}
    return json.dumps(body).encode()


async def conversation(port: int) -> dict[str, list[float]]:
    """The time to the first event of the last turns of a conversation, in ms, by the way it was held."""
    found: dict[str, list[float]] = {way: [] for way in WAYS}
    last: dict[str, str | None] = dict.fromkeys(WAYS)
    async with opened(port) as stored, opened(port) as unstored:
        streams = await asyncio.open_connection(HOST, port, limit=READ_BYTES)
        for turn in range(TURNS):
            for way in WAYS:
                await asyncio.sleep(THINK_SECONDS)
                if way == "http":
                    took, last[way] = await first_over_http(port, streams, asked(last[way], stream=True))
                else:
                    ws, store = (stored, True) if way == "socket" else (unstored, False)
                    took, last[way] = await ws.first(asked(last[way], type="response.create", store=store))
                if turn >= TURNS - LAST_TURNS:
                    found[way].append(took * 1000)
        streams[1].close()
        await streams[1].wait_closed()
    return found


async def first_events(port: int, rounds: int) -> dict[str, list[float]]:
    """By the way, the median of each of `rounds` conversations, the first one left out."""
    found: dict[str, list[float]] = {way: [] for way in WAYS}
    for warm in (False, *[True] * rounds):
        for way, took in (await conversation(port)).items():
            if warm:
                found[way].append(median(took))
    return found


async def event_costs(server: Server, rounds: int) -> dict[str, list[float]]:
    """What a token costs the service as an event of its own, in µs of CPU, by HTTP and by WebSocket."""
    found: dict[str, list[float]] = {"http": [], "socket": []}

    async def load(way: str, count: int) -> float:
        body: dict[str, object] = {"model": MODEL, "input": "Write.", "max_output_tokens": count, "store": False}
        before = server.cpu_seconds()
        if way == "http":
            sent = json.dumps({**body, "stream": True, "stream_options": {"include_obfuscation": False}}).encode()
            await asyncio.gather(*(client.stream(PATH, sent) for client in clients))
        else:
            sent = json.dumps({**body, "type": "response.create"}).encode()
            await asyncio.gather(*(ws.stream(sent) for ws in sockets))
        return server.cpu_seconds() - before

    async with AsyncExitStack() as open_ones:
        clients: list[Client] = await open_ones.enter_async_context(connected(server.port, STREAMS))
        sockets = [await open_ones.enter_async_context(opened(server.port)) for _ in range(STREAMS)]
        for warm in (False, *[True] * rounds):
            for way in found:
                short, long = await load(way, SHORT_TOKENS), await load(way, LONG_TOKENS)
                if warm:
                    found[way].append((long - short) / (LONG_TOKENS - SHORT_TOKENS) / STREAMS * 1e6)
    return found


def ratio(ours: Sequence[float], theirs: Sequence[float]) -> float:
    """The median of one by the other, round by round."""
    return median(mine / other for mine, other in zip(ours, theirs, strict=True))


def main() -> int:
    """0, or 1 when --check is given and a target missed."""
    parser = argparse.ArgumentParser(description="a conversation over a WebSocket, and the CPU of its events")
    parser.add_argument("--check", action="store_true", help="exit 1 when a target is missed")
    parser.add_argument("--rounds", type=int, default=9, help="how often each way is measured (9)")
    parser.add_argument("--profile", action="store_true", help="print cProfile's top rows of the conversations")
    options = parser.parse_args()
    settings = {"PYTHONPATH": str(ROOT)}
    prepared = ("-m", "bench._prepared", "service")
    keep_to(OTHER_CORE)
    with running("embedded") as redis:
        stored = {**settings, "HARMONIUM_REDIS_URL": redis.url}
        with Server([*prepared, "64"], settings=stored, profile=options.profile, core=SERVER_CORE) as server:
            first = asyncio.run(first_events(server.port, options.rounds))
    print(f"{'turn ' + str(TURNS):>20} {'first event ms':>15} {'of HTTP':>8}")
    for way, took in first.items():
        print(f"{way:>20} {median(took):15.2f} {ratio(took, first['http']):8.2f}")
    with Server([*prepared, "1"], settings=settings, core=SERVER_CORE) as server:
        costs = asyncio.run(event_costs(server, options.rounds))
    print(f"\n{'one event':>20} {'CPU us':>15} {'of HTTP':>8}")
    for way, cost in costs.items():
        print(f"{way:>20} {median(cost):15.2f} {ratio(cost, costs['http']):8.2f}")
    sooner, dearer = ratio(first["socket"], first["http"]), ratio(costs["socket"], costs["http"])
    print(
        f"websocket: the first event of turn {TURNS} after {sooner:.2f}x of the time over HTTP, an event for "
        f"{dearer:.2f}x of the CPU (target <= {TARGET_FIRST:g}x and <= {TARGET_EVENT:g}x)"
    )
    met = sooner <= TARGET_FIRST and dearer <= TARGET_EVENT
    return 0 if met or not options.check else 1


if __name__ == "__main__":
    sys.exit(main())
