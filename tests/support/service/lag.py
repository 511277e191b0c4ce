"""How late the event loop is, at worst, while a service in it answers a request; and a loop that is busy."""

import asyncio
import socket
import time
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from statistics import median
from typing import Any

import msgspec

from service.pacing import BRIEF_SECONDS

STALL_SECONDS = 0.05
"""How long the loop may stand still, on a machine that reads YARDSTICK in YARDSTICK_SECONDS and copies it in
COPIES_SECONDS.
"""

YARDSTICK = b"[" + b"1," * 4_000_000 + b"1]"
YARDSTICK_SECONDS = 0.03
COPIES = 5
COPIES_SECONDS = 0.015
"""In how long such a machine writes YARDSTICK so often to memory that it hasn't used yet. Some machines read as quickly
as others and take several times as long for that.
"""
YARDSTICKS = 9
SLOWEST = 4.0
"""How much slower a machine may be before it is no measure any more."""
ATTEMPTS = 24
"""The machine has other things to do, so the best of some attempts counts."""

CREATE = "/v1/responses"


def stall_of(lag: float) -> float:
    """So many seconds of standing still, as a share of what they may be here and now: more where the machine is slowed
    down from outside.
    """
    if lag < STALL_SECONDS:
        return lag / STALL_SECONDS
    taken, copied = list[float](), list[float]()
    for _ in range(YARDSTICKS):
        began = time.perf_counter()
        msgspec.json.decode(YARDSTICK, type=msgspec.Raw)
        read = time.perf_counter()
        copies = YARDSTICK * COPIES
        copied.append(time.perf_counter() - read)
        taken.append(read - began)
        del copies
    slower = max(1.0, max(taken) / YARDSTICK_SECONDS, median(copied) / COPIES_SECONDS)
    return lag / (STALL_SECONDS * min(SLOWEST, slower))


def post(port: int, body: bytes, path: str, whole: bool) -> int:
    """Send a request from this thread and return the status, working as little as possible meanwhile; all of the
    answer is read where it is wanted `whole`.
    """
    head = f"POST {path} HTTP/1.1\r\nhost: localhost\r\nconnection: close\r\ncontent-length: {len(body)}\r\n"
    with socket.create_connection(("127.0.0.1", port), timeout=30) as raw:
        raw.sendall(f"{head}content-type: application/json\r\n\r\n".encode())
        raw.sendall(body)
        status = int(raw.recv(12)[-3:])
        while whole and raw.recv(1 << 20):
            pass
    return status


async def worst_lag(work: "asyncio.Future[int]") -> float:
    """By how much the loop was late at worst until `work` was done, in seconds."""
    worst = 0.0
    while not work.done():
        due = time.perf_counter() + 0.001
        await asyncio.sleep(0.001)
        worst = max(worst, time.perf_counter() - due)
    return worst


async def least_stall(port: int, body: Callable[[], bytes], path: str = CREATE, *, whole: bool = False) -> float:
    """By how much the loop was late at worst, as a share of what it may be here and now, in the best attempt. Each has
    a body of its own, and there are no more than it takes to stay below 1.
    """
    least = float("inf")
    for _ in range(ATTEMPTS):
        work = asyncio.get_running_loop().run_in_executor(None, post, port, body(), path, whole)
        lag = await worst_lag(work)
        assert work.result() in (200, 400, 413)
        least = min(least, stall_of(lag))
        if least < 1:
            break
    return least


@asynccontextmanager
async def busy() -> AsyncIterator[None]:
    """Every round of the loop takes far longer than one should, until the end of the block."""

    async def burn() -> None:
        while True:
            time.sleep(4 * BRIEF_SECONDS)  # noqa: ASYNC251 - which is the point
            await asyncio.sleep(0)

    burning = asyncio.create_task(burn())
    await asyncio.sleep(0)
    try:
        yield
    finally:
        burning.cancel()


async def longest_work(until: "asyncio.Future[Any]") -> float:
    """The most processor time that a turn of the loop took, in seconds, which other programs don't change."""
    longest = 0.0
    while not until.done():
        began = time.thread_time()
        await asyncio.sleep(0)
        longest = max(longest, time.thread_time() - began)
    return longest
