"""A WebSocket's other end: frames are sent as JSON, and what comes is read until a response has ended."""

import asyncio
import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

from websockets.asyncio.client import ClientConnection, connect

from tests.support.service.process import MODEL

TERMINAL = ("response.completed", "response.incomplete", "response.failed", "response.steer.failed", "error")
SECONDS = 20
"""How long any frame may take."""

UPGRADE = (
    b"GET /v1/responses HTTP/1.1\r\nHost: localhost\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n"
    b"Sec-WebSocket-Version: 13\r\nSec-WebSocket-Key: AAAAAAAAAAAAAAAAAAAAAA==\r\n\r\n"
)
"""What opens one by hand."""


class Socket:
    """One WebSocket."""

    def __init__(self, connection: ClientConnection) -> None:
        self.connection = connection

    async def send(self, type: str = "response.create", **fields: Any) -> None:
        await self.connection.send(json.dumps({"type": type, **fields}))

    async def ask(self, what: Any = "hi", **fields: Any) -> None:
        await self.send(model=MODEL, input=what, **fields)

    async def next(self) -> dict[str, Any]:
        async with asyncio.timeout(SECONDS):
            frame = await self.connection.recv()
        assert isinstance(frame, str), "a binary frame"
        return json.loads(frame)

    async def rest(self) -> list[dict[str, Any]]:
        """The frames up to the next that ends a response, or is an error."""
        frames = [await self.next()]
        while frames[-1]["type"] not in TERMINAL:
            frames.append(await self.next())
        return frames

    async def until(self, lane: str) -> list[dict[str, Any]]:
        """The frames up to the first one of a lane."""
        frames = [await self.next()]
        while frames[-1].get("stream_id") != lane:
            frames.append(await self.next())
        return frames

    async def answer(self, what: Any = "hi", **fields: Any) -> dict[str, Any]:
        """The response to what is asked, as its last event has it."""
        await self.ask(what, **fields)
        last = (await self.rest())[-1]
        assert last["type"] != "error", last
        return last["response"]

    async def refusal(self, frame: str | bytes) -> dict[str, Any]:
        """The error that answers a frame."""
        await self.connection.send(frame)
        error = await self.next()
        assert error["type"] == "error", error
        return error


@asynccontextmanager
async def socket(url: str, path: str = "/v1/responses", **options: Any) -> AsyncIterator[Socket]:
    """A WebSocket to a service at `url`."""
    address = url.replace("http", "ws", 1) + path
    async with connect(address, compression=None, max_size=None, proxy=None, **options) as connection:
        yield Socket(connection)
