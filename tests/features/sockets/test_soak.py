"""Many WebSockets of every kind for a while: afterwards a service has all that it had, and all that completed.

A client opens one, does what its kind does, and goes; which kind is next is chance.
"""

import asyncio
import json
import socket as sockets
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import AsyncExitStack, asynccontextmanager, suppress
from random import Random
from typing import Any
from urllib.parse import urlsplit

import httpx
import pytest
from websockets.exceptions import ConnectionClosed
from websockets.frames import CloseCode

from service.process import Settings
from tests.support.lengths import lengths
from tests.support.service.inside import serving
from tests.support.service.process import MODEL, ServiceProcess
from tests.support.service.scraped import Scraped
from tests.support.service.sockets import TERMINAL, Socket, socket
from tests.support.waiting import until

LANES = 4
LONG = "Write a story of 600 words."
BULK = {"bulk": "x" * 512, "more": "y" * 512, "most": "z" * 512}
"""Metadata that makes a frame large enough that one which is never paid back shows."""

LENGTHY = "a" * 6_000
"""Instructions that make the first event and the last one large."""

NARROW_BYTES = 1 << 16
"""How much the system of a slow reader takes in for it."""

SEND_SECONDS = 2.0
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
        self.ended: set[str] = set()
        """The kinds of which a client came to its end."""
        self.kinds: dict[str, Callable[[Socket], Awaitable[None]]] = {
            "lanes": self._lanes,
            "cancels": self._cancels,
            "steers": self._steers,
            "generates nothing": self._generates_nothing,
            "leaves amid it": self._leaves,
            "reads late": self._reads_late,
            "reads nothing": self._reads_nothing,
            "sends nonsense": self._sends_nonsense,
        }

    async def run(self, seconds: float, clients: int) -> None:
        """Let so many clients be there at once, for so long; returns when the last one has gone."""
        until = asyncio.get_running_loop().time() + seconds
        async with asyncio.TaskGroup() as group:
            for number in range(clients):
                group.create_task(self._come_and_go(number, until))

    async def _come_and_go(self, number: int, until: float) -> None:
        kinds = list(self.kinds)
        while asyncio.get_running_loop().time() < until:
            kind = kinds[number % len(kinds)]
            number = self._chance.randrange(len(kinds))
            try:
                async with self._opened(kind) as ws:
                    await self.kinds[kind](ws)
                self.ended.add(kind)
            except TurnedAway:
                pass
            except ConnectionClosed as closed:
                if closed.rcvd is None or closed.rcvd.code != CloseCode.TRY_AGAIN_LATER:
                    raise

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
        await asyncio.sleep(self._chance.uniform(0, SEND_SECONDS / 8))
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


KIB = 1024
CLIENTS = 16
LIMITS: dict[str, Any] = {
    "max_concurrent_requests": 120,
    "admission_wait_seconds": 0,
    "max_body_bytes": 512 * KIB,
    "send_seconds": SEND_SECONDS,
    "demo_tokens_per_second": 400,
    "store_cache_bytes": 0,
}
"""So little of everything that what isn't given back is missed."""

IN_FLIGHT = 16
"""How many responses one WebSocket may have under way."""

GROWTH = 1.3
"""How much more memory than after a first while may be in use after the rest."""

SECONDS = 30.0

HALF_A_MINUTE = "Count to 5000."
"""Half a minute of an answer: it is under way until all others have been asked for."""


async def at_rest(url: str) -> None:

    async def counted() -> tuple[float, float]:
        async with httpx.AsyncClient(base_url=url, trust_env=False) as http:
            scraped = Scraped((await http.get("/metrics")).text)
        return scraped.value("harmonium_sockets"), scraped.value("harmonium_requests_in_progress")

    await until(counted, SECONDS, "not at rest", wanted=lambda found: found == (0, 0))


async def check_places(url: str) -> None:
    """There are as many places for WebSockets, and for what they ask for, as ever; and as much room for frames."""
    async with AsyncExitStack() as stack:
        asked = LIMITS["max_concurrent_requests"]
        opened = [await stack.enter_async_context(socket(url)) for _ in range(asked // IN_FLIGHT + 2)]
        for number in range(asked):
            await opened[number // IN_FLIGHT].ask(HALF_A_MINUTE, stream_id=str(number % IN_FLIGHT), store=False)
        for ws in opened[: -(-asked // IN_FLIGHT)]:
            lanes = min(IN_FLIGHT, asked)
            asked -= lanes
            created: set[str] = set()
            while len(created) < lanes:
                frame = await ws.next()
                assert frame["type"] != "error", frame
                created.add(frame["stream_id"])
        await opened[-1].ask(HALF_A_MINUTE)
        assert (await opened[-1].next())["status"] == 503
        for ws in opened:
            ws.connection.transport.abort()
    await at_rest(url)
    async with socket(url) as ws:
        large = {"type": "response.create", "input": 5, "padding": "x" * (LIMITS["max_body_bytes"] - 4 * KIB)}
        assert (await ws.refusal(json.dumps(large)))["status"] == 400


async def check_responses(url: str, ids: set[str]) -> None:
    async with httpx.AsyncClient(base_url=url, trust_env=False, timeout=SECONDS) as http:
        for id in ids:
            answer = await http.get(f"/v1/responses/{id}")
            assert answer.status_code == 200, answer.text
            assert answer.json()["status"] == "completed"


@pytest.mark.parametrize("seconds", lengths(3, 240))
async def test_a_soak_leaves_memory_places_and_connections_as_they_were(
    start: Callable[..., ServiceProcess], seconds: float
) -> None:
    service = start(**LIMITS)
    soak = Soak(service.url, seed=5)
    await soak.run(seconds / 2, CLIENTS)
    await at_rest(service.url)
    rest = service.memory_bytes()
    await soak.run(seconds / 2, CLIENTS)
    await at_rest(service.url)
    assert soak.ended == soak.kinds.keys()
    await until(lambda: service.memory_bytes() < GROWTH * rest, SECONDS)
    await until(lambda: service.connections() == 0, SECONDS)
    await check_responses(service.url, soak.completed)
    await check_places(service.url)
    assert "Traceback" not in service.log


async def test_a_soak_leaves_no_task(settings: Settings) -> None:
    async with serving(settings.model_copy(update=LIMITS)) as inside:
        await at_rest(inside.url)
        before = asyncio.all_tasks()
        soak = Soak(inside.url, seed=6)
        await soak.run(1.5, CLIENTS)
        await at_rest(inside.url)
        await until(lambda: asyncio.all_tasks() <= before, SECONDS, "tasks are left")
        await check_responses(inside.url, soak.completed)
