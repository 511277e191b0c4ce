"""Retrieve: GET of a response while it is under way, when it is long, and how long that keeps others waiting.

The API has no worker. Responses are read where that takes longest, just before their next snapshot is due (writing.py).
Meanwhile somebody else asks the API for /health, whose longest wait is the stall. In the end the response is cancelled,
which replays all of it, and read once more, as any stored one.
"""

import asyncio
import socket
import threading
import time
from contextlib import AsyncExitStack
from dataclasses import dataclass
from types import TracebackType
from typing import Self

from bench._background.processes import PATH, Bench, Spread, api, opened
from bench._background.writing import Growing
from bench._harness import HOST, Client, Server, connected
from bench._rig import running
from bench._told import Target, table

TARGET_MS = 20.0
"""GET of a response of TOKENS tokens, the median of its worst shape."""

TOKENS = 50_000
LEVELS = (1_000, 5_000, 20_000, TOKENS)
QUICK_LEVELS = (1_000, 4_000)
SHAPES = (2, 64, 900)
"""Tokens in a batch: as from a model, as from a fast engine, and such that most is left to fold."""

WARM_UP, GETS = 20, 60
LEASE_SECONDS = 3600.0

HEALTH = f"GET /health HTTP/1.1\r\nhost: {HOST}\r\n\r\n".encode()
HEALTH_SECONDS = 0.001
"""Between one question for /health and the next."""

ALONE_SECONDS = 1.0
"""For how long it is asked while nobody else asks for anything."""


@dataclass(frozen=True)
class Retrieved:
    """A response of so many tokens in batches of `batch`: ms of GETs, of /health meanwhile, and MB of the answer."""

    batch: int
    tokens: int
    get: Spread
    health: Spread
    megabytes: float


@dataclass(frozen=True)
class Ended:
    """The longest response of a shape: ms to cancel it, and of its GETs after that."""

    batch: int
    tokens: int
    cancel: float
    get: Spread


@dataclass(frozen=True)
class Retrieves:
    """All sizes of all shapes; what /health takes where nobody else asks, ms."""

    under_way: list[Retrieved]
    ended: list[Ended]
    health: Spread

    def targets(self) -> list[Target]:
        """What is judged."""
        longest = max(each.tokens for each in self.ended)
        worst = max(each.get.p50 for each in self.under_way)
        return [Target(f"ms to GET a running response of {longest:,} tokens, worst shape's p50", worst, TARGET_MS)]

    def lines(self) -> list[str]:
        """What is told."""
        running = [
            (each.batch, each.tokens, *each.get, each.health.p99, each.health.worst, each.megabytes)
            for each in self.under_way
        ]
        ended = [(each.batch, each.tokens, *each.get, each.cancel) for each in self.ended]
        columns = ("at a time", "tokens", "p50 ms", "p99 ms", "worst ms")
        return [
            *table((*columns, "/health p99", "worst", "MB"), running),
            "",
            *table((*columns, "cancel ms"), ended),
            "The second table is of responses that have been cancelled. Without anybody else /health takes "
            f"{self.health.p99:.2f} ms at p99, {self.health.worst:.2f} at worst.",
        ]


async def measure(bench: Bench) -> Retrieves:
    """Let a response of each shape grow, and read it at each level."""
    under_way, ended = list[Retrieved](), list[Ended]()
    levels = QUICK_LEVELS if bench.quick else LEVELS
    with running(bench.redis) as redis, api(redis, profile=bench.profile) as front:
        async with AsyncExitStack() as stack:
            service = await stack.enter_async_context(opened(redis, lease_seconds=LEASE_SECONDS))
            (client,) = await stack.enter_async_context(connected(front.port, 1))
            await client.get("/health")  # it may still be starting
            with Health(front) as alone:
                await asyncio.sleep(ALONE_SECONDS)
            for size in bench.progress.track(SHAPES, description="long responses"):
                growing = await Growing.begin(service, size)
                for level in levels:
                    await growing.grow(level)
                    under_way.append(await retrieved(front, client, growing, size))
                await growing.close()
                ended.append(await cancelled(client, growing, size))
    return Retrieves(under_way, ended, Spread.of(alone.seconds, 1e3))


async def retrieved(front: Server, client: Client, growing: Growing, size: int) -> Retrieved:
    """What reading it takes."""
    path = f"{PATH}/{growing.id}"
    answer = await client.get(path)
    if b'"status":"in_progress"' not in answer[:500]:
        raise RuntimeError(f"not in progress: {answer[:500].decode()}")
    for _ in range(WARM_UP):
        await client.get(path)
    with Health(front) as health:
        gets = [await seconds(client, path) for _ in range(GETS)]
    waits = Spread.of(health.seconds, 1e3)
    return Retrieved(size, growing.tokens, Spread.of(gets, 1e3), waits, len(answer) / 1e6)


async def cancelled(client: Client, growing: Growing, size: int) -> Ended:
    """What cancelling it takes, and reading it after that."""
    path = f"{PATH}/{growing.id}"
    began = time.perf_counter()
    await client.post(f"{path}/cancel", b"")
    cancel = time.perf_counter() - began
    gets = [await seconds(client, path) for _ in range(GETS)]
    return Ended(size, growing.tokens, cancel * 1e3, Spread.of(gets, 1e3))


async def seconds(client: Client, path: str) -> float:
    """How long a GET takes."""
    began = time.perf_counter()
    await client.get(path)
    return time.perf_counter() - began


class Health:
    """Somebody who asks for /health all the time, from a thread of its own; a context manager."""

    def __init__(self, front: Server) -> None:
        self.seconds: list[float] = []
        """How long each answer took."""
        self._socket = socket.create_connection((HOST, front.port))
        self._thread = threading.Thread(target=self._ask)
        self._over = False

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self._over = True
        self._thread.join()
        self._socket.close()

    def _ask(self) -> None:
        while not self._over:
            began = time.perf_counter()
            self._socket.sendall(HEALTH)
            while not (piece := self._socket.recv(4096)).endswith(b"}"):  # its body may come behind its head
                if not piece:
                    raise ConnectionError("the API hung up")
            self.seconds.append(time.perf_counter() - began)
            time.sleep(HEALTH_SECONDS)
