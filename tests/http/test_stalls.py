"""Nobody waits for somebody else's heavy request: the event loop never stops for long, whatever it is sent."""

import asyncio
import http.client
import socket
import threading
import time
from collections.abc import Callable
from contextlib import closing

import pytest

from service.settings import Settings
from tests.http.bad_heavy import HEAVY, LEGAL
from tests.http.inside import answer, scripted, serving
from tests.http.process import ServiceProcess

STALL_SECONDS = 0.05
ATTEMPTS = 8
"""The machine has other things to do, so the best of some attempts counts."""

CASES: dict[str, Callable[[], bytes]] = LEGAL | {name: bad.body for name, bad in HEAVY.items() if callable(bad.body)}


def post(port: int, body: bytes) -> int:
    """Send a create request from this thread and return the status, working as little as possible meanwhile."""
    head = f"POST /v1/responses HTTP/1.1\r\nhost: localhost\r\ncontent-length: {len(body)}\r\n"
    with socket.create_connection(("127.0.0.1", port), timeout=30) as raw:
        raw.sendall(f"{head}content-type: application/json\r\n\r\n".encode())
        raw.sendall(body)
        return int(raw.recv(12)[-3:])


async def worst_lag(work: "asyncio.Future[int]") -> float:
    """By how much the loop was late at worst until `work` was done, in seconds."""
    worst = 0.0
    while not work.done():
        due = time.perf_counter() + 0.001
        await asyncio.sleep(0.001)
        worst = max(worst, time.perf_counter() - due)
    return worst


async def best_lag(port: int, body: bytes) -> float:
    """The worst lag of the best attempt; no more attempts than it takes to be sure."""
    best = STALL_SECONDS
    for _ in range(ATTEMPTS):
        work = asyncio.get_running_loop().run_in_executor(None, post, port, body)
        best = min(best, await worst_lag(work))
        assert work.result() in (200, 400, 413)
        if best < STALL_SECONDS / 2:
            break
    return best


@pytest.mark.parametrize("name", CASES)
async def test_the_loop_never_stops_for_long(settings: Settings, name: str) -> None:
    async with serving(settings, scripted([answer("Fine.")])) as inside:
        lag = await best_lag(inside.port, CASES[name]())
    print(f"{lag * 1000:.1f} ms at worst: {name}")
    assert lag < STALL_SECONDS


@pytest.mark.parametrize("name", CASES)
def test_others_are_served_while_a_heavy_request_is_read(service: ServiceProcess, name: str) -> None:
    body = CASES[name]()
    slowest = [slowest_probe(service, body)]
    while slowest[-1] >= STALL_SECONDS and len(slowest) < ATTEMPTS:
        slowest.append(slowest_probe(service, body))
    assert slowest[-1] < STALL_SECONDS, f"the slowest probes took {slowest}"


def slowest_probe(service: ServiceProcess, body: bytes) -> float:
    """How long the slowest of the probes took that were answered while the service read `body`, in seconds."""
    work = threading.Thread(target=post, args=(service.port, body))
    work.start()
    slowest = 0.0
    with closing(http.client.HTTPConnection("127.0.0.1", service.port, timeout=10)) as connection:
        while work.is_alive():
            begun = time.perf_counter()
            connection.request("GET", "/health")
            assert connection.getresponse().read() == b'{"status":"ok"}'
            slowest = max(slowest, time.perf_counter() - begun)
    work.join()
    return slowest
