"""WebSockets of every kind, one after the other on many clients at once: for soaks.

A client opens one, does what its kind does, and goes; which kind is next is chance. What completed and is stored is
noted, and so is how often each kind came to its end.
"""

import asyncio
import json
import socket as sockets
from collections import Counter
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager, suppress
from random import Random
from typing import Any
from urllib.parse import urlsplit

from websockets.exceptions import ConnectionClosed
from websockets.frames import CloseCode

from tests.support.service.process import MODEL
from tests.support.service.sockets import TERMINAL, Socket, socket

LANES = 4
LONG = "Write a story of 600 words."
BULK = {"bulk": "x" * 512, "more": "y" * 512, "most": "z" * 512}
"""Metadata that makes a frame large enough that one which is never paid back shows."""

LENGTHY = "a" * 6_000
"""Instructions that make the first event and the last one large."""

NARROW_BYTES = 1 << 16
"""How much the system of a slow reader takes in for it."""

SEND_SECONDS = 0.5
"""For how long a client may read nothing, by the settings of the service."""


class TurnedAway(Exception):
    """There was no room for a client, as others had taken it just then."""


class Soak:
    """Clients without end, until they are told to stop."""

    def __init__(self, url: str, seed: int) -> None:
        self._url = url
        self._chance = Random(seed)
        self.completed: set[str] = set()
        """The ids of what completed and is stored."""
        self.ended: Counter[str] = Counter()
        """How often a client of each kind came to its end."""
        self.turned_away = 0
        """How many found no room."""
        self._kinds: dict[str, Callable[[Socket], Awaitable[None]]] = {
            "lanes": self._lanes,
            "cancels": self._cancels,
            "steers": self._steers,
            "generates nothing": self._generates_nothing,
            "leaves amid it": self._leaves,
            "reads late": self._reads_late,
            "reads nothing": self._reads_nothing,
            "sends nonsense": self._sends_nonsense,
        }

    @property
    def missing(self) -> set[str]:
        """The kinds of which no client came to its end."""
        return self._kinds.keys() - self.ended.keys()

    async def run(self, seconds: float, clients: int) -> None:
        """Let so many clients be there at once, for so long; returns when the last one has gone."""
        until = asyncio.get_running_loop().time() + seconds
        async with asyncio.TaskGroup() as group:
            for number in range(clients):
                group.create_task(self._come_and_go(number, until))

    async def _come_and_go(self, number: int, until: float) -> None:
        kinds = list(self._kinds)
        while asyncio.get_running_loop().time() < until:
            kind = kinds[number % len(kinds)]
            number = self._chance.randrange(len(kinds))
            try:
                async with self._opened(kind) as ws:
                    await self._kinds[kind](ws)
                self.ended[kind] += 1
            except TurnedAway:
                self.turned_away += 1
            except ConnectionClosed as closed:
                if closed.rcvd is None or closed.rcvd.code != CloseCode.TRY_AGAIN_LATER:
                    raise
                self.turned_away += 1

    @asynccontextmanager
    async def _opened(self, kind: str) -> AsyncIterator[Socket]:
        options: dict[str, Any] = {}
        if kind.startswith("reads"):
            address = urlsplit(self._url)
            narrow = sockets.socket()
            narrow.setsockopt(sockets.SOL_SOCKET, sockets.SO_RCVBUF, NARROW_BYTES)
            narrow.connect((address.hostname, address.port))
            options["sock"] = narrow
        async with socket(self._url, **options) as ws:
            yield ws

    async def _next(self, ws: Socket) -> dict[str, Any]:
        frame = await ws.next()
        if frame["type"] == "error" and frame["status"] == 503:
            raise TurnedAway
        if frame["type"] == "response.completed" and frame["response"]["store"]:
            self.completed.add(frame["response"]["id"])
        return frame

    async def _until(self, ws: Socket, *types: str) -> dict[str, Any]:
        """The next frame of one of these types."""
        while (frame := await self._next(ws))["type"] not in types:
            pass
        return frame

    async def _ask(self, ws: Socket, what: str, **fields: Any) -> None:
        await ws.ask(what, metadata=BULK, **fields)

    async def _lanes(self, ws: Socket) -> None:
        """Several lanes side by side, each of which is continued."""
        store, newest = self._chance.random() < 0.7, dict[str, str]()
        for _ in range(2):
            for lane in map(str, range(LANES)):
                more = {"previous_response_id": newest[lane]} if lane in newest else {}
                await self._ask(ws, f"Count to {self._chance.randint(1, 9)}.", stream_id=lane, store=store, **more)
            for _ in range(LANES):
                last = await self._until(ws, *TERMINAL)
                assert last["type"] == "response.completed", last
                newest[last["stream_id"]] = last["response"]["id"]

    async def _cancels(self, ws: Socket) -> None:
        await self._ask(ws, LONG)
        await self._until(ws, "response.output_text.delta")
        await ws.send("response.cancel")
        assert (await self._until(ws, *TERMINAL))["response"]["status"] == "cancelled"

    async def _steers(self, ws: Socket) -> None:
        await self._ask(ws, LONG)
        id = (await self._until(ws, "response.created"))["response"]["id"]
        await self._until(ws, "response.output_text.delta")
        await ws.send("response.steer", previous_response_id=id, input="Count to 3.")
        assert (await self._until(ws, *TERMINAL))["type"] == "response.incomplete"
        assert (await self._until(ws, *TERMINAL))["type"] == "response.completed"

    async def _generates_nothing(self, ws: Socket) -> None:
        await self._ask(ws, "My name is Ada.", generate=False)
        warm = (await self._until(ws, *TERMINAL))["response"]["id"]
        await self._ask(ws, "What is my name?", previous_response_id=warm)
        assert "Ada" in str((await self._until(ws, *TERMINAL))["response"]["output"])

    async def _leaves(self, ws: Socket) -> None:
        """Go without a word, while some are under way and others wait."""
        for lane in ("a", "a", "b"):
            await self._ask(ws, LONG, stream_id=lane)
        await self._until(ws, "response.output_text.delta")
        ws.connection.transport.abort()

    async def _reads_late(self, ws: Socket) -> None:
        """Let much come before it is read."""
        ws.connection.transport.pause_reading()
        for lane in map(str, range(2 * LANES)):
            await self._ask(ws, LONG, stream_id=lane, store=False)
        await asyncio.sleep(self._chance.uniform(0, SEND_SECONDS / 2))
        ws.connection.transport.resume_reading()
        for _ in range(2 * LANES):
            assert (await self._until(ws, *TERMINAL))["type"] == "response.completed"

    async def _reads_nothing(self, ws: Socket) -> None:
        """Ask for more and more, until the service hangs up."""
        ws.connection.transport.pause_reading()
        with suppress(ConnectionClosed):
            while True:
                await self._ask(ws, "hi", generate=False, store=False, instructions=LENGTHY)

    async def _sends_nonsense(self, ws: Socket) -> None:
        """Frames that are refused, and in the end one that breaks the protocol."""
        for frame in ("{", b"\0\1", json.dumps({"type": "response.create", "model": MODEL, "input": 5})):
            await ws.refusal(frame)
        await self._ask(ws, LONG)
        ws.connection.transport.write(b"\xff\xff\xff\xff")
        with suppress(ConnectionClosed):
            while True:
                await self._next(ws)
