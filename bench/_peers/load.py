"""Requests to a gateway: as cheap as a client can be, and every answer's text compared with what the engine said."""

import asyncio
import json
import time
from collections.abc import Callable
from contextlib import AsyncExitStack
from dataclasses import dataclass, field
from typing import Any, Self, cast

import httptools
import msgspec

from bench._harness import HOST
from bench._peers.answer import TOKENS, text
from bench._peers.servers import Peer

PATH = "/v1/responses"
EXPECTED = text(TOKENS)
SETTLE_SECONDS = 0.15
"""What a gateway writes behind its answers belongs to them."""

Make = Callable[[], bytes]
"""The next request, as it goes over the wire."""


class WrongAnswer(Exception):
    """A gateway said something else than its engine."""


class Connection(asyncio.Protocol):
    """One connection that is kept; one request at a time."""

    def __init__(self) -> None:
        self._answered: asyncio.Future[None] | None = None

    @classmethod
    async def to(cls, peer: Peer) -> Self:
        """A new one."""
        _, connection = await asyncio.get_running_loop().create_connection(cls, HOST, peer.port)
        return connection

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """See asyncio."""
        self._transport = cast(asyncio.Transport, transport)

    def connection_lost(self, exc: Exception | None) -> None:
        """See asyncio."""
        if self._answered is not None and not self._answered.done():
            self._answered.set_exception(WrongAnswer("the connection broke"))

    def data_received(self, data: bytes) -> None:
        """See asyncio."""
        if not self.first_at and self.status and data:
            self.first_at = time.perf_counter()
        self._parser.feed_data(data)

    def on_header(self, name: bytes, value: bytes) -> None:
        """See httptools."""
        if name.lower() == b"etag":
            self.etag = value.decode()

    def on_headers_complete(self) -> None:
        """See httptools."""
        self.status = self._parser.get_status_code()

    def on_body(self, body: bytes) -> None:
        """See httptools."""
        if not self.first_at:
            self.first_at = time.perf_counter()
        if not self.text_at and b"output_text.delta" in body:
            self.text_at = time.perf_counter()
        self.body += body

    def on_message_complete(self) -> None:
        """See httptools."""
        assert self._answered is not None
        if not self._answered.done():
            self._answered.set_result(None)

    async def ask(self, request: bytes) -> None:
        """Send it, and wait for the whole answer."""
        self._parser = httptools.HttpResponseParser(self)
        self.body, self.status, self.etag = bytearray(), 0, ""
        self.first_at = self.text_at = 0.0
        self._answered = asyncio.get_running_loop().create_future()
        self.asked_at = time.perf_counter()
        self._transport.write(request)
        await self._answered
        self.answered_at = time.perf_counter()

    def close(self) -> None:
        """Hang up."""
        self._transport.close()


@dataclass
class Cell:
    """What was measured of some requests: seconds of each, and processor time of all."""

    seconds: list[float] = field(default_factory=list[float])
    first_event: list[float] = field(default_factory=list[float])
    first_text: list[float] = field(default_factory=list[float])
    cpu_seconds: float = 0.0
    store_seconds: float = 0.0
    total_seconds: float = 0.0

    @property
    def cpu_us(self) -> float:
        """Of the gateway, for a request."""
        return 1e6 * self.cpu_seconds / len(self.seconds)

    @property
    def token_us(self) -> float:
        """Of the gateway, for a token."""
        return self.cpu_us / TOKENS

    @property
    def store_us(self) -> float:
        """Of its Redis, for a request."""
        return 1e6 * self.store_seconds / len(self.seconds)

    @property
    def rate(self) -> float:
        """Requests a second."""
        return len(self.seconds) / self.total_seconds


def percentile(values: list[float], part: float) -> float:
    """In ms."""
    return 1e3 * sorted(values)[min(len(values) - 1, int(len(values) * part))]


def post(peer: Peer, body: dict[str, Any]) -> bytes:
    """A request for a response."""
    data = json.dumps({"model": peer.model, "input": "Please count for me.", "store": True, **body}).encode()
    return _head("POST", peer, PATH, f"content-type: application/json\r\ncontent-length: {len(data)}\r\n") + data


def get(peer: Peer, path: str, headers: str = "") -> bytes:
    """A request for what is stored."""
    return _head("GET", peer, f"{PATH}/{path}", headers)


def _head(method: str, peer: Peer, path: str, headers: str) -> bytes:
    return f"{method} {path} HTTP/1.1\r\nhost: {HOST}:{peer.port}\r\naccept: */*\r\n{headers}\r\n".encode()


async def create(peer: Peer, parent: str | None = None) -> str:
    """One response, and its id."""
    connection = await Connection.to(peer)
    await connection.ask(post(peer, {"previous_response_id": parent} if parent else {}))
    connection.close()
    check_whole(connection)
    return json.loads(connection.body)["id"]


async def etag(peer: Peer, id: str) -> str:
    """What a response has as its ETag."""
    connection = await Connection.to(peer)
    await connection.ask(get(peer, id))
    connection.close()
    check_whole(connection)
    return connection.etag


async def run(peer: Peer, make: Make, *, at_once: int, count: int, check: Callable[[Connection], None]) -> Cell:
    """So many requests over so many connections. Raises WrongAnswer, once they are measured."""
    cell, left = Cell(), count
    async with AsyncExitStack() as open_ones:
        connections = [await Connection.to(peer) for _ in range(at_once)]
        for each in connections:
            open_ones.callback(each.close)
        kept: list[tuple[int, bytes]] = []

        async def work(connection: Connection) -> None:
            nonlocal left
            while left > 0:
                left -= 1
                await connection.ask(make())
                cell.seconds.append(connection.answered_at - connection.asked_at)
                cell.first_event.append(connection.first_at - connection.asked_at)
                cell.first_text.append(connection.text_at - connection.asked_at)
                kept.append((connection.status, bytes(connection.body)))

        cpu, store, began = peer.cpu_seconds(), peer.store_seconds(), time.perf_counter()
        await asyncio.gather(*map(work, connections))
        cell.total_seconds = time.perf_counter() - began
        await asyncio.sleep(SETTLE_SECONDS)
        cell.cpu_seconds, cell.store_seconds = peer.cpu_seconds() - cpu, peer.store_seconds() - store
        judge = connections[0]
        for judge.status, body in kept:
            judge.body = bytearray(body)
            check(judge)
    return cell


class _Part(msgspec.Struct):
    text: str = ""


class _Item(msgspec.Struct):
    type: str
    content: list[_Part] | None = None


class _Whole(msgspec.Struct):
    output: list[_Item]


_whole = msgspec.json.Decoder(_Whole).decode


def check_whole(connection: Connection) -> None:
    """Raises WrongAnswer unless it is a response with the engine's text."""
    _check_status(connection, 200)
    said = "".join(
        part.text for item in _whole(connection.body).output if item.type == "message" for part in item.content or ()
    )
    _check_text(said)


def check_stream(connection: Connection) -> None:
    """Raises WrongAnswer unless its events end, and say the engine's text."""
    _check_status(connection, 200)
    said, ended = "", False
    for line in bytes(connection.body).split(b"\n"):
        if line.startswith(b"data: {"):
            event = json.loads(line[len(b"data: ") :])
            if event["type"] == "response.output_text.delta":
                said += event["delta"]
            ended = ended or event["type"] == "response.completed"
    _check_text(said)
    if not ended:
        raise WrongAnswer("a stream without its last event")


def check_unchanged(connection: Connection) -> None:
    """Raises WrongAnswer unless it says that nothing has changed."""
    _check_status(connection, 304)


def check_page(connection: Connection) -> None:
    """Raises WrongAnswer unless it is a page of items."""
    _check_status(connection, 200)
    if not json.loads(connection.body)["data"]:
        raise WrongAnswer("a page without items")


def _check_status(connection: Connection, status: int) -> None:
    if connection.status != status:
        raise WrongAnswer(f"{connection.status}: {bytes(connection.body[:300])!r}")


def _check_text(said: str) -> None:
    if said != EXPECTED:
        raise WrongAnswer(f"{said[:100]!r} instead of {EXPECTED[:100]!r}")
