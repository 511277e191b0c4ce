"""What a tenant notices of another one that asks for as much as it can.

    scripts/bench tenants [--check] [--only NAME]

A real `harmonium serve` with its embedded server, room for few responses, and the demo engine. Globex stores some
conversations, and then goes on with one of them again and again, and asks for a response in the background now and
then. By turns Acme does the same in a process of its own, many at once, and is held until its responses have ended: so
what slows the machine down does so in both. A row says how long both kinds took Globex under that load and in the quiet
between, how many of Globex' requests failed, and how many of its responses were evicted. `fairness` is who gets how
much of a process with less room than both ask for (bench/_fairness.py).
"""

import argparse
import asyncio
import json
import signal
import sys
import time
from collections.abc import Awaitable, Callable, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any, NamedTuple

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT))

from bench import _fairness as fairness  # noqa: E402
from bench._asking import ACME, GLOBEX, PAUSE_SECONDS, Connection, Waits, posted, request  # noqa: E402
from bench._harness import Server  # noqa: E402

SECONDS = 2.0
"""How long a load goes on at a time, and the quiet before it."""

ROUNDS = 4
"""How often each of them comes."""

MAX_RESPONSES = 8_000
"""The room of the store, of which Globex never has half."""

FILLED = MAX_RESPONSES - 1_000
"""The responses that Acme stored before: it asks for more than there is room for."""

FILLED_AT_ONCE = 16

STORED = 200
"""The responses that Globex stored before."""

TARGET = 2.0
"""How much longer the slowest of a hundred of Globex' responses may take than in quiet."""

POLL_SECONDS = 0.002
STEADY_SECONDS = 0.3
FAIRNESS = "fairness"
METRICS_KEY = "m" * 32


# --- what Acme does, each until it is ended ---------------------------------------------------------------------------


async def again(port: int, at_once: int, sent: bytes) -> None:
    """The same request again and again, so many at once."""

    async def one() -> None:
        connection = Connection(port)
        while True:
            with suppress(ConnectionError):
                await connection.ask(sent)

    await asyncio.gather(*(one() for _ in range(at_once)))


LOADS: dict[str, Callable[[int], Awaitable[None]]] = {
    "nothing": lambda port: asyncio.sleep(3600),
    "8 responses at once": lambda port: again(port, 8, posted(ACME, input="Hello.")),
    "64 responses at once": lambda port: again(port, 64, posted(ACME, input="Hello.")),
    "512 responses at once": lambda port: again(port, 512, posted(ACME, input="Hello.")),
    "64 streams at once": lambda port: again(
        port, 64, posted(ACME, input="Hello.", stream=True, max_output_tokens=500)
    ),
    "in the background": lambda port: again(
        port, 32, posted(ACME, input="Hello.", background=True, service_tier="priority", max_output_tokens=500)
    ),
}


# --- what Globex notices ----------------------------------------------------------------------------------------------


class Noticed(NamedTuple):
    """How long Globex' responses took, and how long those in the background until they had ended."""

    small: Waits
    background: Waits


def together(rounds: Sequence[Noticed]) -> Noticed:
    """All that was noticed in several rounds."""
    kinds = zip(*rounds, strict=True)
    return Noticed(
        *(Waits([ms for each in kind for ms in each.took], sum(each.failed for each in kind)) for kind in kinds)
    )


async def created(connection: Connection, **body: object) -> dict[str, Any]:
    """A response of Globex. Raises ConnectionError where it is refused."""
    status, answer = await connection.ask(posted(GLOBEX, **body))
    if status != 200:
        raise ConnectionError(f"status {status}")
    return json.loads(answer)


async def ended(connection: Connection, id: str) -> None:
    """Wait until a response has ended. Raises ConnectionError."""
    while True:
        status, answer = await connection.ask(request("GET", f"/v1/responses/{id}", GLOBEX))
        if status != 200:
            raise ConnectionError(f"status {status}")
        if json.loads(answer)["status"] not in ("queued", "in_progress"):
            return
        await asyncio.sleep(POLL_SECONDS)


async def repeated(seconds: float, once: Callable[[], Awaitable[object]]) -> Waits:
    """How long something takes, one after another."""
    took: list[float] = []
    failed, end = 0, time.monotonic() + seconds
    while time.monotonic() < end:
        began = time.perf_counter()
        try:
            await once()
        except ConnectionError:
            failed += 1
        else:
            took.append((time.perf_counter() - began) * 1000)
        await asyncio.sleep(PAUSE_SECONDS)
    return Waits(took, failed)


async def notice(port: int, id: str, seconds: float) -> Noticed:
    """Go on with a conversation, and ask for responses in the background."""
    one, other = Connection(port), Connection(port)

    async def background() -> None:
        made = await created(other, input="Hello.", background=True)
        await ended(other, made["id"])

    small, later = await asyncio.gather(
        repeated(seconds, lambda: created(one, input="And?", previous_response_id=id)),
        repeated(seconds, background),
    )
    one.close()
    other.close()
    return Noticed(small, later)


async def stored(port: int) -> list[str]:
    """Conversations of ten responses each; their ids."""
    connection, ids = Connection(port), list[str]()
    for number in range(STORED):
        parent = {"previous_response_id": ids[-1]} if number % 10 else {}
        ids.append((await created(connection, input="Hello.", **parent))["id"])
    connection.close()
    return ids


async def answered(port: int) -> float:
    """How many responses have ended, whoever's."""
    connection = Connection(port)
    _, answer = await connection.ask(request("GET", "/metrics", METRICS_KEY))
    connection.close()
    counts = (line for line in answer.decode().splitlines() if line.startswith("harmonium_responses_total{"))
    return sum(float(line.rpartition(" ")[2]) for line in counts)


async def steady(port: int) -> None:
    """Wait until no more responses end."""
    before = -1.0
    while (now := await answered(port)) != before:
        before = now
        await asyncio.sleep(STEADY_SECONDS)


async def held_load(name: str, port: int) -> asyncio.subprocess.Process:
    """Acme's process, which is ready, and held."""
    acme = await asyncio.create_subprocess_exec(
        *(sys.executable, "-m", "bench.tenants", "--load", name, "--port", str(port)),
        cwd=ROOT,
        stdout=asyncio.subprocess.PIPE,
    )
    assert acme.stdout
    await acme.stdout.readline()
    acme.send_signal(signal.SIGSTOP)
    await steady(port)
    return acme


async def fill(port: int) -> None:
    """Acme's responses before the load."""

    async def some() -> None:
        connection = Connection(port)
        for _ in range(FILLED // FILLED_AT_ONCE):
            await connection.ask(posted(ACME, input="Hello.", max_output_tokens=1))
        connection.close()

    await asyncio.gather(*(some() for _ in range(FILLED_AT_ONCE)))


async def lost(port: int, ids: Sequence[str]) -> int:
    """How many responses of Globex are gone."""
    connection = Connection(port)
    found = [(await connection.ask(request("GET", f"/v1/responses/{id}", GLOBEX)))[0] for id in ids]
    connection.close()
    return sum(status != 200 for status in found)


async def under(name: str) -> bool:
    """Print the row of a load; whether Globex noticed no more of it than it may."""
    settings = {
        "HARMONIUM_API_KEYS": f"acme:{ACME},globex:{GLOBEX}",
        "HARMONIUM_LOG_LEVEL": "warning",
        "HARMONIUM_MAX_RESPONSES": str(MAX_RESPONSES),
        "HARMONIUM_METRICS_KEY": METRICS_KEY,
    }
    rounds: list[tuple[Noticed, Noticed]] = []
    with Server(["-m", "service", "serve"], settings=settings) as server:
        ids = await stored(server.port)
        await fill(server.port)
        await notice(server.port, ids[9], 1)
        made = 0.0
        acme = await held_load(name, server.port)
        try:
            for _ in range(ROUNDS):
                quiet = await notice(server.port, ids[9], SECONDS)
                before = await answered(server.port)
                acme.send_signal(signal.SIGCONT)
                loaded = await notice(server.port, ids[9], SECONDS)
                made += await answered(server.port) - before
                acme.send_signal(signal.SIGSTOP)
                await steady(server.port)
                rounds.append((quiet, loaded))
        finally:
            acme.kill()
            await acme.wait()
        gone = await lost(server.port, ids)
    quiet, noticed = (together(each) for each in zip(*rounds, strict=True))
    rate = made / (ROUNDS * SECONDS)
    failed = noticed.small.failed + noticed.background.failed
    slower = [after.at(0.99) / before.at(0.99) for before, after in zip(quiet, noticed, strict=True)]
    fine = max(slower) <= TARGET and not failed and not gone
    times = [each.at(share) for share in (0.5, 0.99) for pair in zip(quiet, noticed, strict=True) for each in pair]
    print(
        f"{name:24}"
        + "".join(f"{ms:8.1f}" for ms in times)
        + "".join(f"{ratio:7.1f}x" for ratio in slower)
        + f"{rate:8.0f}{failed:8}{gone:8}{'' if fine else '  missed'}",
        flush=True,
    )
    return fine


async def rows(names: Sequence[str]) -> bool:
    heads = ("p50, ms", "background", "p99, ms", "background", "p99 slower")
    print(f"{'':24}" + "".join(f"{head:>16}" for head in heads))
    print(
        f"{'':24}" + f"{'quiet':>8}{'loaded':>8}" * 4 + f"{'':>8}{'backgr.':>8}{'all/s':>8}{'failed':>8}{'evicted':>8}"
    )
    return all([await under(name) for name in names])


def main() -> int:
    """0, or 1 when --check is given and Globex noticed more than it may."""
    parser = argparse.ArgumentParser(description="what a tenant notices of another one")
    parser.add_argument("--check", action="store_true", help="fail where Globex noticed more than it may")
    parser.add_argument("--only", choices=(*LOADS, FAIRNESS), help="one load, or who gets how much")
    parser.add_argument("--load", choices=LOADS, help=argparse.SUPPRESS)
    parser.add_argument("--port", type=int, help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.load:
        print("ready", flush=True)
        asyncio.run(LOADS[arguments.load](arguments.port))  # type: ignore[arg-type]
        return 0
    quiet = fair = True
    if arguments.only in (None, *LOADS):
        quiet = asyncio.run(rows([arguments.only] if arguments.only else list(LOADS)))
        print(f"tenants: {'met' if quiet else 'missed'} (p99 at most {TARGET:g}x, nothing failed, nothing evicted)")
    if arguments.only in (None, FAIRNESS):
        fair = asyncio.run(fairness.rows())
        within = f"within {100 * fairness.TARGET:g} % of the weights"
        print(f"fairness: {'met' if fair else 'missed'} ({within}, nothing failed)")
    return int(arguments.check and not (quiet and fair))


if __name__ == "__main__":
    sys.exit(main())
