"""What passing a chat completion on adds: to a request, to each event of a stream, and in CPU of the service.

    scripts/bench passing [--check]

A server answers at once (_worded.py), asked by itself and through the service in turns, by one client on a kept
connection. An event's figure is the time from its sending to its coming, at a word each 5 ms. The CPU of an event is
that of streams which come as fast as they can, 8 at once.
"""

import argparse
import asyncio
import json
import re
import sys
import time
from contextlib import AsyncExitStack
from pathlib import Path
from statistics import median, quantiles
from typing import Any

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT))

from bench._harness import HOST, LAST_CHUNK, READ_BYTES, Client, Server, connected  # noqa: E402
from bench._worded import MODEL, WORDS  # noqa: E402

PATH = "/v1/chat/completions"
REQUESTS = 200
STREAMS = 20
ROUNDS = 5
AT_ONCE = 8
FAST_WORDS = 2000
TARGET_REQUEST_MS = 4.0
TARGET_EVENT_MS = 1.0
"""What may be added at the median."""

SENT = re.compile(rb'"content":"(\d+)"')


def body(**more: Any) -> bytes:
    """A request for a chat completion."""
    return json.dumps({"model": MODEL, "messages": [{"role": "user", "content": "Say."}], **more}).encode()


async def requests_ms(client: Client) -> list[float]:
    """How long each of some requests takes."""
    took: list[float] = []
    for _ in range(REQUESTS):
        began = time.perf_counter()
        await client.post(PATH, body())
        took.append((time.perf_counter() - began) * 1e3)
    return took


async def events_ms(port: int) -> list[float]:
    """How long each event of some streams is on its way."""
    late: list[float] = []
    for _ in range(STREAMS):
        reader, writer = await asyncio.open_connection(HOST, port, limit=READ_BYTES)
        asked = body(stream=True, max_tokens=WORDS, temperature=1)
        head = f"POST {PATH} HTTP/1.1\r\nhost: {HOST}\r\ncontent-type: application/json\r\n"
        writer.write(f"{head}content-length: {len(asked)}\r\n\r\n".encode() + asked)
        tail = b""
        while not tail.endswith(LAST_CHUNK):
            piece = await reader.read(READ_BYTES)
            now = time.monotonic_ns()
            late += [(now - int(sent)) / 1e6 for sent in SENT.findall(piece)]
            tail = (tail + piece)[-len(LAST_CHUNK) :]
        writer.close()
        await writer.wait_closed()
    return late


async def cpu_us(server: Server, clients: list[Client]) -> float:
    """What an event costs the service."""
    asked = body(stream=True, max_tokens=FAST_WORDS, temperature=0)
    before = server.cpu_seconds()
    await asyncio.gather(*(client.stream(PATH, asked) for client in clients))
    return (server.cpu_seconds() - before) / (FAST_WORDS * AT_ONCE) * 1e6


def shown(name: str, alone: list[float], passed: list[float]) -> float:
    """Print a row; what is added at the median."""
    added = median(passed) - median(alone)
    tails = [quantiles(each, n=100)[98] for each in (alone, passed)]
    print(f"{name:>10} {median(alone):9.2f} {median(passed):9.2f} {added:9.2f} {tails[0]:9.2f} {tails[1]:9.2f}")
    return added


async def measure(server: Server, service: Server) -> tuple[float, float]:
    """Print all figures; those that have targets."""
    requests: tuple[list[float], list[float]] = ([], [])
    events: tuple[list[float], list[float]] = ([], [])
    cpu: list[float] = []
    async with AsyncExitStack() as open_ones:
        clients = await open_ones.enter_async_context(connected(service.port, AT_ONCE))
        for counted in (False, *[True] * ROUNDS):
            for place, each in enumerate((server, service)):
                async with Client(each.port) as client:
                    took, late = await requests_ms(client), await events_ms(each.port)
                if counted:
                    requests[place].extend(took)
                    events[place].extend(late)
            cost = await cpu_us(service, clients)
            if counted:
                cpu.append(cost)
    print("        ms     alone    passed     added alone p99   its p99")
    figures = shown("a request", *requests), shown("an event", *events)
    print(f"\nan event costs the service {median(cpu):.1f} us of CPU, {AT_ONCE} streams at once")
    return figures


def main() -> int:
    """Measure; 1 where --check finds a target missed."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--check", action="store_true")
    check = parser.parse_args().check
    with Server(["-m", "bench._worded"], settings={"PYTHONPATH": str(ROOT)}, port_variable="WORDED_PORT") as server:
        settings = {
            "HARMONIUM_ENGINE": "vllm",
            "HARMONIUM_ENGINE_URL": f"http://{HOST}:{server.port}",
            "PYTHONPATH": str(ROOT),
        }
        with Server(["-m", "service", "serve"], settings=settings) as service:
            request, event = asyncio.run(measure(server, service))
    missed = request > TARGET_REQUEST_MS or event > TARGET_EVENT_MS
    if check and missed:
        print(f"missed: at most {TARGET_REQUEST_MS} ms a request and {TARGET_EVENT_MS} ms an event")
    return int(check and missed)


if __name__ == "__main__":
    sys.exit(main())
