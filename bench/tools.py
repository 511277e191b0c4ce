"""What a call of a tool takes beside the tool itself, and a hundred responses that call tools at once.

    scripts/bench tools [--check] [--json] [--only server|code|search]

`server` is an MCP server of the handshake era in a process of its own, which answers at once; what it takes is the time
of a plain request to it. `code` is a cell of `harmonium sandbox`, beside the same cell without a container's record;
`search` is a search of a folder of a thousand documents, beside the index alone. One response calls its tool again and
again; then a hundred responses begin at the same moment and call it ten times each, while the event loop is looked at
every 5 ms. All of it is what a process has that serves, over an embedded store.
"""

import argparse
import asyncio
import itertools
import json
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import ExitStack, asynccontextmanager
from pathlib import Path
from statistics import median, quantiles
from typing import Any, NamedTuple

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT))

from aiohttp import ClientError, ClientSession, web  # noqa: E402

from bench._harness import free_port  # noqa: E402
from service.api.tools.builtin import callees  # noqa: E402
from service.api.tools.callee import Hosted  # noqa: E402
from service.api.tools.outcome import HostedCall  # noqa: E402
from service.responses.service import Service, close_service, open_service  # noqa: E402
from service.responses.tools.toolbox import ToolRun  # noqa: E402
from service.sandbox.port import Limits  # noqa: E402
from service.search.folder import Folder  # noqa: E402
from service.search.port import Query  # noqa: E402
from service.settings.mcp import Connection  # noqa: E402
from service.settings.settings import load_settings  # noqa: E402
from store.embedded import EmbeddedServer  # noqa: E402

TENANT = "bench"
SESSIONS = 100
CALLS = 10
DOCUMENTS = 1_000
LOOK_SECONDS = 0.005
START_SECONDS = 60.0
TARGET_ADDED_MS = 3.0
TARGET_LAG_MS = 50.0
WORDS = ("tide", "harbour", "moon", "pilot", "current", "buoy", "depth", "chart")
(SEARCH, *_) = callees("browser", "{}")
numbers = itertools.count()


async def answered(request: web.Request) -> web.Response:
    """The server of tools."""
    asked = await request.json()
    known: dict[str, Any] = {"jsonrpc": "2.0", "id": asked.get("id")}
    match asked["method"]:
        case "initialize":
            info = {"name": "bench", "version": "1"}
            result: dict[str, Any] = {
                "protocolVersion": "2025-06-18",
                "capabilities": {"tools": {}},
                "serverInfo": info,
            }
        case "tools/call":
            result = {"content": [{"type": "text", "text": "fine"}]}
        case _:
            if "id" in asked:
                return web.json_response(known | {"error": {"code": -32601, "message": "no"}})
            return web.Response(status=202)
    return web.json_response(known | {"result": result})


def serve(port: int) -> None:
    """Be the server, until killed."""
    app = web.Application()
    app.router.add_post("/mcp", answered)
    web.run_app(app, host="127.0.0.1", port=port, print=None)


async def plain(url: str, rounds: int) -> list[float]:
    """Seconds of a plain request for the same."""
    body = {"jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": {"name": "t", "arguments": {"a": 1}}}
    found: list[float] = []
    async with ClientSession() as session:
        for _ in range(rounds):
            began = time.perf_counter()
            async with session.post(url, json=body) as response:
                await response.json()
            found.append(time.perf_counter() - began)
    return found


class Kind(NamedTuple):
    """A kind of tool: the seconds that it takes by itself, a response that has called nothing yet, and a call of it."""

    own: Callable[[int], Awaitable[list[float]]]
    run: Callable[[], ToolRun]
    call: Callable[[str], HostedCall]


def server_kind(service: Service, url: str) -> Kind:
    """Tools of an MCP server."""
    at = Connection("bench", url, trusted=True)
    call = HostedCall("mcp_1", Hosted("bench", "t"), '{"a":1}')
    return Kind(lambda rounds: plain(url, rounds), lambda: service.toolbox.run(TENANT, [at]), lambda _: call)


def code_kind(service: Service) -> Kind:
    """Cells of Python, each response's in a container of its own."""
    containers = service.containers
    assert containers is not None

    def call(place: str) -> HostedCall:
        return HostedCall(f"ci_{next(numbers)}", Hosted(place, "python", kind="python", options="{}"), "6 * 7")

    async def own(rounds: int) -> list[float]:
        session = containers.new_id(TENANT)
        await containers.sandbox.open(session, TENANT, Limits())
        found: list[float] = []
        for number in range(rounds):
            began = time.perf_counter()
            await containers.sandbox.run(session, f"own_{number}", "6 * 7")
            found.append(time.perf_counter() - began)
        return found

    return Kind(own, lambda: service.toolbox.run(TENANT), call)


def search_kind(service: Service, folder: Path) -> Kind:
    """Searches of documents."""
    assert SEARCH.hosted is not None
    tool = SEARCH.hosted

    def words() -> str:
        number = next(numbers)
        return f"{WORDS[number % len(WORDS)]} {WORDS[number // len(WORDS) % len(WORDS)]}"

    async def own(rounds: int) -> list[float]:
        index, found = Folder(folder, "https://docs.invalid"), list[float]()
        for _ in range(rounds):
            began = time.perf_counter()
            await index.search(Query(words(), (), ""))
            found.append(time.perf_counter() - began)
        return found

    def call(place: str) -> HostedCall:
        return HostedCall(f"ws_{next(numbers)}", tool, json.dumps({"query": words()}))

    return Kind(own, lambda: service.toolbox.run(TENANT), call)


async def calls(kind: Kind, place: str, rounds: int) -> list[float]:
    """Seconds of each call of one response; the first one opens its session."""
    run, found = kind.run(), list[float]()
    for _ in range(rounds):
        began = time.perf_counter()
        outcome = await run.call(kind.call(place))
        found.append(time.perf_counter() - began)
        if outcome.status != "completed":
            raise RuntimeError(outcome.told)
    await run.aclose()
    return found


@asynccontextmanager
async def looked_at() -> AsyncIterator[list[float]]:
    """How much later than wanted each look at the event loop came, in seconds."""
    lags: list[float] = []

    async def look() -> None:
        while True:
            began = time.perf_counter()
            await asyncio.sleep(LOOK_SECONDS)
            lags.append(time.perf_counter() - began - LOOK_SECONDS)

    looking = asyncio.create_task(look())
    try:
        yield lags
    finally:
        looking.cancel()


def resident() -> float:
    """The memory of this process, in MiB."""
    return int(Path("/proc/self/statm").read_text().split()[1]) * 4096 / 2**20


async def measure(kind: Kind, places: Callable[[], str], rounds: int) -> dict[str, float]:
    """All figures of a kind, in milliseconds and MiB. Each response has one of the `places`."""
    await calls(kind, places(), 2)  # what is read and made once for all
    own = median(await kind.own(rounds))
    first, *warm = await calls(kind, places(), rounds)
    before = resident()
    async with looked_at() as lags:
        began = time.perf_counter()
        many = await asyncio.gather(*(calls(kind, places(), CALLS) for _ in range(SESSIONS)))
        took = time.perf_counter() - began
    later = [each for found in many for each in found[1:]]
    return {
        "own_ms": own * 1e3,
        "added_ms": (median(warm) - own) * 1e3,
        "first_ms": first * 1e3,
        "many_first_p50_ms": median(found[0] for found in many) * 1e3,
        "many_p50_ms": median(later) * 1e3,
        "many_p99_ms": quantiles(later, n=100, method="inclusive")[98] * 1e3,
        "many_calls_per_second": SESSIONS * CALLS / took,
        "lag_p99_ms": quantiles(lags, n=100, method="inclusive")[98] * 1e3,
        "lag_max_ms": max(lags) * 1e3,
        "added_mib": resident() - before,
    }


def write_documents(folder: Path) -> None:
    """The documents that are searched."""
    folder.mkdir()
    for number in range(DOCUMENTS):
        said = " ".join(WORDS[(number + place * (number % 7 + 1)) % len(WORDS)] for place in range(400))
        (folder / f"{number}.md").write_text(f"# Page {number}\n\n{said}.")


async def up(answers: Callable[[], Awaitable[object]]) -> None:
    """Wait until something answers."""
    async with asyncio.timeout(START_SECONDS):
        while True:
            try:
                await answers()
                return
            except (OSError, ClientError):
                await asyncio.sleep(LOOK_SECONDS)


async def measured(folder: Path, store: EmbeddedServer, port: int, only: str, rounds: int) -> dict[str, Any]:
    """The figures of all kinds, or of one."""
    url, listen, documents = f"http://127.0.0.1:{port}/mcp", f"unix://{folder}/sandbox.sock", folder / "documents"
    write_documents(documents)
    place = {"sandbox": listen, "search": "folder", "search_folder": str(documents)}
    service = open_service(load_settings(redis_url=store.url, mcp_allow=url, **place))
    assert service.containers is not None
    await up(lambda: asyncio.open_connection("127.0.0.1", port))
    await up(lambda: asyncio.open_unix_connection(f"{folder}/sandbox.sock"))
    await service.containers.start()
    kinds: dict[str, tuple[Callable[[], Kind], Callable[[], str]]] = {
        "server": (lambda: server_kind(service, url), lambda: "bench"),
        "code": (lambda: code_kind(service), lambda: new_container(service)),
        "search": (lambda: search_kind(service, documents), lambda: ""),
    }
    try:
        return {
            name: await measure(kind(), place, rounds) for name, (kind, place) in kinds.items() if only in ("", name)
        }
    finally:
        await close_service(service)


def new_container(service: Service) -> str:
    """The id of a container that isn't there yet."""
    assert service.containers is not None
    return service.containers.new_id(TENANT)


def main() -> int:
    """0, or 1 when --check is given and a target missed."""
    parser = argparse.ArgumentParser(description="calls of tools that the service runs")
    parser.add_argument("--check", action="store_true", help="exit 1 when a target is missed")
    parser.add_argument("--rounds", type=int, default=300, help="how many calls one response makes (300)")
    parser.add_argument("--only", default="", help="one kind: server, code or search")
    parser.add_argument("--json", action="store_true", help="print the figures as JSON")
    parser.add_argument("--serve", type=int, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.serve:
        serve(options.serve)
        return 0
    with tempfile.TemporaryDirectory(prefix="harmonium-bench-") as name, ExitStack() as stack:
        folder, port = Path(name), free_port()
        folder.chmod(0o711)
        store = stack.enter_context(EmbeddedServer(folder / "store"))
        more = {"SANDBOX_SESSIONS": SESSIONS + 10, "SANDBOX_TENANT_SESSIONS": SESSIONS + 10}
        settings = {
            "SANDBOX_LISTEN": f"unix://{folder}/sandbox.sock",
            "SANDBOX_DIR": folder / "sessions",
            "LOG_LEVEL": "warning",
            **more,
        }
        environment = os.environ | {f"HARMONIUM_{key}": str(value) for key, value in settings.items()}
        for command, given in (
            (["bench.tools", "--serve", str(port)], os.environ),
            (["service", "sandbox"], environment),
        ):
            process = subprocess.Popen([sys.executable, "-m", *command], cwd=ROOT, env=given, stdout=subprocess.DEVNULL)
            stack.callback(process.wait)
            stack.callback(process.kill)
        found = asyncio.run(measured(folder, store, port, options.only, options.rounds))
    if options.json:
        print(json.dumps(found, indent=2))
    else:
        for kind, figures in found.items():
            print(kind)
            for name, each in figures.items():
                print(f"{name:>22} {each:9.2f}")
    met = all(each["added_ms"] <= TARGET_ADDED_MS and each["lag_p99_ms"] <= TARGET_LAG_MS for each in found.values())
    return 0 if met or not options.check else 1


if __name__ == "__main__":
    sys.exit(main())
