"""What traces cost a request: off, sampled out, and recorded, side by side.

    scripts/bench traces [--check] [--requests N]

Three applications of one process, over one embedded store and the demo engine, which differ in their traces alone. By
turns each gets the same request, as ASGI has it, and what its thread took of the CPU for it is noted: the store's time
and the network's don't count. Of each kind of request the median is shown, and by how much the median of the
differences to the neighbour that is off is above zero. What the thread that sends spans takes is shown apart: all CPU
of the process beyond that of the event loop, by request. A create request has six spans.
"""

import argparse
import asyncio
import json
import multiprocessing
import sys
import tempfile
import time
from collections.abc import AsyncGenerator, Callable
from contextlib import AsyncExitStack, asynccontextmanager
from multiprocessing.connection import Connection
from pathlib import Path
from statistics import median
from typing import Any, NamedTuple

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT))

from service.settings.settings import load_settings  # noqa: E402
from service.web.app import create_app  # noqa: E402
from store.embedded import EmbeddedServer  # noqa: E402

REQUESTS = 1_500
WARM = 100
"""Requests before those that are measured."""

TARGET_US = 10.0
"""The most that a request may take longer where its trace is sampled out."""

KINDS = ("off", "sampled out", "recorded")
CREATE = json.dumps({"model": "gpt-oss-20b", "input": "Count to 2.", "store": True}).encode()

App = Callable[..., Any]


class Request(NamedTuple):
    """What is asked."""

    name: str
    method: str
    path: str
    body: bytes
    key: str = ""


ASKED = (
    Request("GET /v1/models", "GET", "/v1/models", b""),
    Request("POST /v1/responses", "POST", "/v1/responses", CREATE),
)


class Took(NamedTuple):
    """CPU seconds of one request: the event loop's thread, and all others."""

    loop: float
    others: float


def receive_spans(pipe: Connection) -> None:
    """A receiver that takes whatever comes; tells its port first."""

    async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            while head := (await reader.readuntil(b"\r\n\r\n")).lower():
                await reader.readexactly(int(head.partition(b"content-length: ")[2].partition(b"\r\n")[0]))
                writer.write(b"HTTP/1.1 200 OK\r\ncontent-length: 0\r\n\r\n")
        except asyncio.IncompleteReadError:
            writer.close()

    async def serve() -> None:
        server = await asyncio.start_server(answer, "127.0.0.1", 0, limit=1 << 22)
        pipe.send(server.sockets[0].getsockname()[1])
        await server.serve_forever()

    asyncio.run(serve())


async def ask(app: App, request: Request) -> None:
    """Ask once. Raises RuntimeError where it is refused."""
    sent: list[dict[str, Any]] = []
    given = [{"type": "http.request", "body": request.body, "more_body": False}]

    async def receive() -> dict[str, Any]:
        if given:
            return given.pop()
        await asyncio.Event().wait()
        raise AssertionError

    async def send(message: dict[str, Any]) -> None:
        sent.append(message)

    headers = [(b"host", b"localhost"), (b"content-type", b"application/json")]
    headers += [(b"authorization", f"Bearer {request.key}".encode())] if request.key else []
    scope = {
        "type": "http",
        "http_version": "1.1",
        "method": request.method,
        "scheme": "http",
        "path": request.path,
        "raw_path": request.path.encode(),
        "query_string": b"",
        "headers": headers,
        "extensions": {},
        "client": ("127.0.0.1", 1),
        "server": ("127.0.0.1", 80),
        "root_path": "",
    }
    await app(scope, receive, send)
    if sent[0]["status"] != 200:
        raise RuntimeError(f"refused: {sent}")


async def timed(app: App, request: Request) -> Took:
    """What it took to ask once."""
    loop, process = time.thread_time(), time.process_time()
    await ask(app, request)
    loop, process = time.thread_time() - loop, time.process_time() - process
    return Took(loop, max(0.0, process - loop))


@asynccontextmanager
async def started(app: App) -> AsyncGenerator[App]:
    """The application between its start and its end."""
    inbox, outbox = asyncio.Queue[dict[str, Any]](), asyncio.Queue[dict[str, Any]]()
    lifespan = asyncio.ensure_future(app({"type": "lifespan"}, inbox.get, outbox.put))
    await inbox.put({"type": "lifespan.startup"})
    await outbox.get()
    yield app
    await inbox.put({"type": "lifespan.shutdown"})
    await lifespan


async def measured(redis_url: str, port: int, requests: int) -> dict[str, dict[str, list[Took]]]:
    """What each kind of request took, by how it was traced."""
    url = f"http://127.0.0.1:{port}/v1/traces"
    traced: dict[str, dict[str, Any]] = {
        "off": {},
        "sampled out": {"traces_url": url, "traces_ratio": 0.0},
        "recorded": {"traces_url": url},
    }
    found: dict[str, dict[str, list[Took]]] = {}
    async with AsyncExitStack() as stack:
        apps = {
            kind: await stack.enter_async_context(
                started(
                    create_app(
                        load_settings(redis_url=redis_url, key_prefix=kind.replace(" ", "-"), worker=False, **changes)
                    )
                )
            )
            for kind, changes in traced.items()
        }
        for request in ASKED:
            rows: dict[str, list[Took]] = {kind: [] for kind in KINDS}
            for number in range(WARM + requests):
                for kind in (*KINDS[number % 3 :], *KINDS[: number % 3]):
                    took = await timed(apps[kind], request)
                    if number >= WARM:
                        rows[kind].append(took)
            found[request.name] = rows
    return found


def shown(found: dict[str, dict[str, list[Took]]]) -> bool:
    """Print the table; whether the target is met."""
    met = True
    print(f"{'':20} {'traces':12} {'µs':>8} {'more':>8} {'sending':>8}")
    for name, rows in found.items():
        base = [took.loop for took in rows["off"]]
        for kind in KINDS:
            took = rows[kind]
            more = median(each.loop - other for each, other in zip(took, base, strict=True)) * 1e6
            sending = sum(each.others for each in took) / len(took) * 1e6
            right = kind != "sampled out" or more <= TARGET_US
            met = met and right
            verdict = "" if right else f"  MISSED: at most {TARGET_US:g}"
            whole = median(each.loop for each in took) * 1e6
            print(f"{name:20} {kind:12} {whole:8.1f} {more:8.1f} {sending:8.1f}{verdict}")
    return met


def main() -> int:
    """Measure; 1 with --check where the target is missed."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--check", action="store_true", help="fail where the target is missed")
    parser.add_argument("--requests", type=int, default=REQUESTS, help="of each kind, each way")
    arguments = parser.parse_args()
    ours, theirs = multiprocessing.Pipe()
    receiver = multiprocessing.get_context("spawn").Process(target=receive_spans, args=(theirs,), daemon=True)
    receiver.start()
    try:
        with tempfile.TemporaryDirectory() as folder, EmbeddedServer(Path(folder)) as server:
            found = asyncio.run(measured(server.url, ours.recv(), arguments.requests))
    finally:
        receiver.kill()
    return int(not shown(found) and arguments.check)


if __name__ == "__main__":
    sys.exit(main())
