"""What the benchmarks of a running service share: the service as a process, its CPU time, and a cheap client.

The client runs in the benchmark's own process and the service in another, so that what one costs never counts
for the other. Nothing here may know what is measured.
"""

import asyncio
import ctypes
import os
import pstats
import signal
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import AsyncGenerator, Mapping, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path
from types import TracebackType
from typing import Self, cast

HOST = "127.0.0.1"
START_SECONDS = 30.0
STOP_SECONDS = 15.0
PROFILE_ROWS = 25
LOG_CHARS = 3000

LAST_CHUNK = b"0\r\n\r\n"
READ_BYTES = 1 << 20
LOOK_SECONDS = 0.005

_CORES = sorted(os.sched_getaffinity(0))
SERVER_CORE, OTHER_CORE = _CORES[0], _CORES[-1]
"""Where what is measured runs, and where all else does, when they are kept apart; one and the same if it is alone."""


class Server:
    """A service in a process of its own, in a folder that goes with it; a context manager.

    `command` is what this interpreter gets: a script or `-m` and a module, and arguments. It finds its port and
    its data folder in `port_variable` and HARMONIUM_DATA_DIR, beside the variables in `settings`, and no other
    setting of the caller's. With `profile` it runs under cProfile, whose top rows are printed when it has stopped; with
    `core` it runs on that one alone. Where the block fails, the end of its log is printed.
    """

    def __init__(
        self,
        command: Sequence[str],
        *,
        settings: Mapping[str, str] | None = None,
        profile: bool = False,
        port_variable: str = "HARMONIUM_PORT",
        core: int | None = None,
    ) -> None:
        self._settings = settings or {}
        self._core = core
        self._port_variable = port_variable
        self._folder = tempfile.TemporaryDirectory()
        self._profile = Path(self._folder.name) / "profile" if profile else None
        self.port = free_port()
        profiler = ["-m", "cProfile", "-o", str(self._profile)] if profile else []
        self._argv = [sys.executable, *profiler, *command]

    def __enter__(self) -> Self:
        outside = {name: value for name, value in os.environ.items() if not name.upper().startswith("HARMONIUM_")}
        data = str(Path(self._folder.name) / "data")
        self._log = (Path(self._folder.name) / "log").open("w+")
        self._process = subprocess.Popen(
            self._argv,
            env={**outside, **self._settings, self._port_variable: str(self.port), "HARMONIUM_DATA_DIR": data},
            cwd=self._folder.name,
            stderr=self._log,
        )
        if self._core is not None:
            keep_to(self._core, self._process.pid)
        self._wait()
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self._process.send_signal(signal.SIGTERM)
        try:
            self._process.wait(STOP_SECONDS)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()
        if self._profile is not None and error is None:
            pstats.Stats(str(self._profile)).sort_stats("tottime").print_stats(PROFILE_ROWS)
        if isinstance(error, Exception):
            print(f"{' '.join(self._argv[1:])} said last:\n{self._told()[-LOG_CHARS:]}", file=sys.stderr)
        self._log.close()
        self._folder.cleanup()

    def kill(self) -> None:
        """End it here and now, as a crash does."""
        self._process.kill()
        self._process.wait()

    def cpu_seconds(self) -> float:
        """CPU time of the process so far: user and system, all of its threads, none of its children."""
        return cpu_seconds(self._process.pid)

    def held_bytes(self) -> int:
        """The process's resident memory."""
        return held_bytes(self._process.pid)

    def _wait(self) -> None:
        """Return once a connection is taken; the first request may still wait for the application."""
        deadline = time.monotonic() + START_SECONDS
        while True:
            try:
                socket.create_connection((HOST, self.port)).close()
                return
            except OSError:
                if self._process.poll() is not None or time.monotonic() > deadline:
                    self._process.kill()
                    raise RuntimeError(f"the service did not start: {self._told()}") from None
                time.sleep(0.05)

    def _told(self) -> str:
        """All that the process has logged."""
        self._log.seek(0)
        return self._log.read()


class Client:
    """One connection that is kept; raw sockets, as a client library would take more CPU than the service."""

    def __init__(self, port: int) -> None:
        self._port = port

    async def __aenter__(self) -> Self:
        self._reader, self._writer = await asyncio.open_connection(HOST, self._port, limit=READ_BYTES)
        return self

    async def __aexit__(self, *raised: object) -> None:
        self._writer.close()
        await self._writer.wait_closed()

    async def post(self, path: str, body: bytes) -> bytes:
        """The whole body of the answer. Raises RuntimeError for a status other than 200."""
        self._send(path, body)
        return await self._answer()

    async def get(self, path: str) -> bytes:
        """The whole body of the answer. Raises RuntimeError for a status other than 200."""
        self._writer.write(f"GET {path} HTTP/1.1\r\nhost: {HOST}\r\n\r\n".encode())
        return await self._answer()

    async def _answer(self) -> bytes:
        head = await self._reader.readuntil(b"\r\n\r\n")
        size = int(head.lower().partition(b"content-length: ")[2].partition(b"\r\n")[0])
        answer = await self._reader.readexactly(size)
        if not head.startswith(b"HTTP/1.1 200 "):
            raise RuntimeError(f"refused: {head.decode()}{answer.decode()}")
        return answer

    async def stream(self, path: str, body: bytes) -> int:
        """Read a chunked answer to its end; how many bytes came. Raises RuntimeError for a status other than 200.

        It looks every LOOK_SECONDS at what has come. Would it wait, each write of the service would wake it, and
        on one machine the writer pays for that; a client elsewhere costs the service nothing.
        """
        self._send(path, body)
        head = await self._reader.readuntil(b"\r\n\r\n")
        if not head.startswith(b"HTTP/1.1 200 "):
            raise RuntimeError(f"refused: {head.decode()}")
        transport = cast(asyncio.Transport, self._writer.transport)
        size, tail = 0, b""
        while not tail.endswith(LAST_CHUNK):
            transport.pause_reading()
            await asyncio.sleep(LOOK_SECONDS)
            transport.resume_reading()
            piece = await self._reader.read(READ_BYTES)
            if not piece:
                raise RuntimeError("the stream broke off")
            size += len(piece)
            tail = (tail + piece)[-len(LAST_CHUNK) :]
        return size

    async def first(self, path: str, body: bytes, **headers: str) -> float:
        """Seconds to the first delta of a streamed answer, which is then read to its end. Raises RuntimeError where it
        has none.
        """
        began, first, told = time.monotonic(), 0.0, b""
        self._send(path, body, **headers)
        while not told.endswith(LAST_CHUNK):
            piece = await self._reader.read(READ_BYTES)
            told += piece
            if not piece or not told.startswith(b"HTTP/1.1 200 "):
                raise RuntimeError(f"no stream: {told[:200].decode()}")
            if not first and b".delta" in told:
                first = time.monotonic()
        if not first:
            raise RuntimeError("the stream says nothing")
        return first - began

    def _send(self, path: str, body: bytes, **headers: str) -> None:
        head = f"POST {path} HTTP/1.1\r\nhost: {HOST}\r\ncontent-type: application/json\r\ncontent-length: {len(body)}"
        more = "".join(f"\r\n{name}: {value}" for name, value in headers.items())
        self._writer.write(f"{head}{more}\r\n\r\n".encode() + body)


@asynccontextmanager
async def connected(port: int, count: int) -> AsyncGenerator[list[Client], None]:
    """`count` clients, each on a connection of its own."""
    async with AsyncExitStack() as open_ones:
        yield [await open_ones.enter_async_context(Client(port)) for _ in range(count)]


def cpu_seconds(pid: int) -> float:
    """CPU time of a process so far: user and system, all of its threads, none of its children. Raises OSError."""
    clock = ctypes.c_int()
    failed = ctypes.CDLL(None).clock_getcpuclockid(pid, ctypes.byref(clock))
    if failed:
        raise OSError(failed, os.strerror(failed))
    return time.clock_gettime(clock.value)


def keep_to(core: int, pid: int = 0) -> None:
    """Have a process, this one if none is named, and what it starts from now on run on one core.

    Left to itself, Linux may wake a client on the core of the service that answers it, where it waits until that has
    nothing more to do.
    """
    os.sched_setaffinity(pid, {core})


def held_bytes(pid: int) -> int:
    """A process's resident memory. Raises OSError."""
    return int(Path(f"/proc/{pid}/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE")


def family(pid: int) -> list[int]:
    """A process and its descendants."""
    found = [pid]
    for each in found:
        for children in Path(f"/proc/{each}/task").glob("*/children"):
            found += map(int, children.read_text().split())
    return found


def free_port() -> int:
    """A TCP port that nobody listens on at the moment."""
    with socket.create_server((HOST, 0)) as free:
        return free.getsockname()[1]
