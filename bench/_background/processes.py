"""What the parts of bench/background.py share: the service's processes on one Redis, requests, followers, targets.

API and workers are processes of their own, started as anybody would. Nothing here may know what is measured.
"""

import asyncio
import re
import time
from collections.abc import AsyncGenerator, Awaitable, Callable, Iterator, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from statistics import median, quantiles
from typing import NamedTuple, Self, cast

import msgspec
from rich.progress import Progress

from bench import _rig
from bench._harness import HOST, Server
from service.api.request import read_create
from service.entrance import Entry
from service.process import close_service, load_settings, open_service
from service.responses.service import Caller, Service
from service.settings.core import DEFAULT_TENANT
from service.settings.sources import variable
from tests.support.service.making import queue_response

TENANT = DEFAULT_TENANT
MODEL = "gpt-oss-20b"
PATH = "/v1/responses"

LONG = "Count to 2000."
"""What the demo engine needs some thousand tokens for."""

WAIT_SECONDS = 60.0
"""How long anything may take that a benchmark waits for."""

POLL_SECONDS = 0.01

SUBMITTING = 16
"""How many requests are submitted at the same time."""

_LAST_CHUNK = b"\r\n0\r\n\r\n"
_ID = re.compile(rb'"id":"(resp_[0-9a-f]{48})"')


class Bench(NamedTuple):
    """How to measure: on which kind of Redis, in short or not, under cProfile or not, and where progress is shown."""

    redis: str
    quick: bool
    profile: bool
    progress: Progress

    def few(self, many: int, few: int) -> int:
        """One or the other."""
        return few if self.quick else many


@dataclass(frozen=True)
class Spread:
    """What many values come to."""

    p50: float
    p99: float
    worst: float

    @classmethod
    def of(cls, values: Sequence[float], scale: float = 1.0) -> Self:
        """Of at least two values, each times `scale`."""
        most = quantiles(values, n=100, method="inclusive")[-1]
        return cls(median(values) * scale, most * scale, max(values) * scale)

    def __iter__(self) -> Iterator[float]:
        """For a row of a table."""
        return iter((self.p50, self.p99, self.worst))


def api(redis: _rig.Server, *, profile: bool = False, **settings: object) -> Server:
    """An API that leaves background responses to workers."""
    return Server(
        ["-m", "service", "serve", "--no-embedded-worker"], settings=variables(redis, **settings), profile=profile
    )


def worker(redis: _rig.Server, *, profile: bool = False, **settings: object) -> Server:
    """A worker, whose port is that of its probes."""
    command = ["-m", "service", "worker"]
    return Server(
        command, settings=variables(redis, **settings), profile=profile, port_variable=variable("worker_port")
    )


def variables(redis: _rig.Server, **settings: object) -> dict[str, str]:
    """The environment of a process on a Redis."""
    return {variable(name): str(value) for name, value in {"redis_url": redis.url, **settings}.items()}


@asynccontextmanager
async def opened(redis: _rig.Server, **settings: object) -> AsyncGenerator[Service, None]:
    """The parts of a service in this process, to reach the store as a process of it does."""
    service = open_service(load_settings(redis_url=redis.url, **settings))
    await service.engine.start()
    try:
        yield service
    finally:
        await close_service(service)


def body(text: str, *, streams: bool, most: int | None = None) -> bytes:
    """A request for a background response of at most so many tokens."""
    wanted = {"model": MODEL, "input": text, "background": True, "stream": streams, "max_output_tokens": most}
    return msgspec.json.encode(wanted)


async def submit(service: Service, text: str, *, streams: bool = True, most: int | None = None) -> str:
    """Submit as the endpoint does, which would refuse so few tokens as `most` may be; the response's id."""
    request = msgspec.structs.replace(read_create(body(text, streams=streams), store=True), max_output_tokens=most)
    return await queue_response(service, Caller(Entry(TENANT)), request)


async def submitted(service: Service, text: str, count: int, *, most: int | None = None) -> list[str]:
    """So many of them, some at a time; their ids."""
    waiting, ids = iter(range(count)), list[str]()

    async def some() -> None:
        for _ in waiting:
            ids.append(await submit(service, text, most=most))

    await asyncio.gather(*(some() for _ in range(SUBMITTING)))
    return ids


async def until(true: Callable[[], bool | Awaitable[bool]], what: str) -> None:
    """Wait until something is so. Raises TimeoutError."""
    give_up = time.monotonic() + WAIT_SECONDS
    while not (await now if isinstance(now := true(), Awaitable) else now):
        if time.monotonic() > give_up:
            raise TimeoutError(f"{what}: not within {WAIT_SECONDS:g} s")
        await asyncio.sleep(POLL_SECONDS)


class Follower(asyncio.Protocol):
    """A connection that follows one response, and does next to nothing with what comes.

    `heard` gets whole server-sent events and the time of time.monotonic at which they came, which is the same in all
    processes of a machine.
    """

    def __init__(self, heard: Callable[[float, bytes], None]) -> None:
        loop = asyncio.get_running_loop()
        self.begun: asyncio.Future[str] = loop.create_future()
        """The response's id, once its first event is here."""
        self.ended: asyncio.Future[float] = loop.create_future()
        """When the stream ended. Fails at once where it was broken off."""
        self._heard = heard
        self._rest = b""
        self._left = False

    async def create(self, port: int, text: str) -> None:
        """Create a background response, and follow it."""
        wanted = body(text, streams=True)
        head = f"POST {PATH} HTTP/1.1\r\nhost: {HOST}\r\ncontent-type: application/json\r\n"
        await self._ask(port, f"{head}content-length: {len(wanted)}\r\n\r\n".encode() + wanted)

    async def follow(self, port: int, id: str) -> None:
        """Follow a response from its first event on."""
        await self._ask(port, f"GET {PATH}/{id}?stream=true HTTP/1.1\r\nhost: {HOST}\r\n\r\n".encode())

    async def _ask(self, port: int, request: bytes) -> None:
        transport, _ = await asyncio.get_running_loop().create_connection(lambda: self, HOST, port)
        self._transport = cast(asyncio.Transport, transport)
        self._transport.write(request)

    def close(self) -> None:
        """Hang up."""
        self._left = True
        self._transport.close()

    def data_received(self, data: bytes) -> None:
        """Hand over what is whole."""
        now = time.monotonic()
        data = self._rest + data
        whole = data.rfind(b"\n\n") + 2
        events, self._rest = (data[:whole], data[whole:]) if whole > 1 else (b"", data)
        if events:
            self._take(now, events)
        if self._rest.endswith(_LAST_CHUNK):
            self._fail()

    def _take(self, now: float, events: bytes) -> None:
        if not self.begun.done():
            self._begin(events)
        self._heard(now, events)
        if events.endswith(b"[DONE]\n\n"):
            self.ended.set_result(now)

    def _begin(self, data: bytes) -> None:
        id = _ID.search(data)
        if not data.startswith(b"HTTP/1.1 200 ") or id is None:
            self.begun.set_exception(RuntimeError(f"refused: {data[:500].decode()}"))
        else:
            self.begun.set_result(id[1].decode())

    def connection_lost(self, exc: Exception | None) -> None:
        """Nothing comes any more."""
        if not self._left:
            self._fail()
        for promise in (self.begun, self.ended):
            promise.cancel()

    def _fail(self) -> None:
        """Tell whoever waits that the stream is over without its end; nothing where it has come."""
        for promise in (self.begun, self.ended):
            if not promise.done():
                promise.set_exception(ConnectionError("the stream was broken off"))
                return
