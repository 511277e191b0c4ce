"""What a call of an MCP server's tool takes beside the tool itself, and a hundred responses that call tools at once.

    scripts/bench tools [--check] [--json]

The tool is a server of the handshake era in a process of its own, which answers at once; what it takes is the time of a
plain request to it. One session calls it again and again; then a hundred sessions, as of a hundred responses, open at
the same moment and call it ten times each, while the event loop is looked at every 5 ms.
"""

import argparse
import asyncio
import json
import subprocess
import sys
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from statistics import median, quantiles
from typing import Any

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT))

from aiohttp import ClientSession, web  # noqa: E402

from bench._harness import free_port  # noqa: E402
from service.api.tools.callee import Hosted  # noqa: E402
from service.api.tools.outcome import HostedCall  # noqa: E402
from service.responses.tools.port import ToolLimits  # noqa: E402
from service.responses.tools.session import opener_of  # noqa: E402
from service.responses.tools.stdio import Processes  # noqa: E402
from service.responses.tools.toolbox import Toolbox, ToolRun  # noqa: E402
from service.settings.mcp import OperatorServer  # noqa: E402

CALL = HostedCall("mcp_1", Hosted("bench", "t"), '{"a":1}')
SESSIONS = 100
CALLS = 10
LOOK_SECONDS = 0.005
TARGET_ADDED_MS = 3.0
TARGET_LAG_MS = 50.0


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


async def calls(run: ToolRun, rounds: int) -> list[float]:
    """Seconds of each call of one response; the first one opens its session."""
    found: list[float] = []
    for _ in range(rounds):
        began = time.perf_counter()
        outcome = await run.call(CALL)
        found.append(time.perf_counter() - began)
        if outcome.output != "fine":
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


async def measure(url: str, rounds: int) -> dict[str, float]:
    """All figures, in milliseconds and MiB."""
    opener = opener_of(ToolLimits(), Processes(1, several=lambda: False))
    toolbox = Toolbox({"bench": OperatorServer(url)}, (), opener, allowing="")
    own = median(await plain(url, rounds))
    first, *warm = await calls(toolbox.run("bench"), rounds)
    before = resident()
    async with looked_at() as lags:
        began = time.perf_counter()
        many = await asyncio.gather(*(calls(toolbox.run("bench"), CALLS) for _ in range(SESSIONS)))
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


def main() -> int:
    """0, or 1 when --check is given and a target missed."""
    parser = argparse.ArgumentParser(description="calls of an MCP server's tools")
    parser.add_argument("--check", action="store_true", help="exit 1 when a target is missed")
    parser.add_argument("--rounds", type=int, default=500, help="how many calls one session makes (500)")
    parser.add_argument("--json", action="store_true", help="print the figures as JSON")
    parser.add_argument("--serve", type=int, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.serve:
        serve(options.serve)
        return 0
    port = free_port()
    server = subprocess.Popen([sys.executable, "-m", "bench.tools", "--serve", str(port)], cwd=ROOT)
    try:
        found = asyncio.run(up(port, options.rounds))
    finally:
        server.kill()
        server.wait()
    if options.json:
        print(json.dumps(found, indent=2))
    else:
        for name, each in found.items():
            print(f"{name:>22} {each:9.2f}")
    met = found["added_ms"] <= TARGET_ADDED_MS and found["lag_p99_ms"] <= TARGET_LAG_MS
    return 0 if met or not options.check else 1


async def up(port: int, rounds: int) -> dict[str, float]:
    """Measure, once the server answers."""
    while True:
        try:
            _, writer = await asyncio.open_connection("127.0.0.1", port)
            writer.close()
            break
        except OSError:
            await asyncio.sleep(LOOK_SECONDS)
    return await measure(f"http://127.0.0.1:{port}/mcp", rounds)


if __name__ == "__main__":
    sys.exit(main())
