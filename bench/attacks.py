"""What one key, or nobody's, can do to another one's requests, and to the memory of the process.

    scripts/bench attacks [--check] [--only NAME]

A real `harmonium serve` with its embedded server and the demo engine has two keys. Globex asks for a small response
again and again, and somebody for /health, while a process of its own attacks, with acme's key or without one. A row
says how long both waited, beside how long Globex did in quiet just before, how many of Globex' requests failed, and
the most memory that the service had, beside what it had before.
"""

import argparse
import asyncio
import json
import sys
import time
from collections.abc import Awaitable, Callable, Sequence
from contextlib import suppress
from pathlib import Path
from typing import NamedTuple

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT))

from bench._harness import HOST, Server  # noqa: E402

ACME, GLOBEX = "k" * 32, "g" * 32
MIB = 1 << 20
SECONDS = 6.0
"""How long each attack goes on, and the quiet before it."""

PAUSE_SECONDS = 0.005
ANSWER_SECONDS = 30.0
TARGET_MIB = 190
"""The most memory beyond what there was before."""

SMALL = json.dumps({"model": "gpt-oss-20b", "input": "Hello.", "max_output_tokens": 16}).encode()


def request(method: str, path: str, key: str, body: bytes = b"", *, length: int | None = None) -> bytes:
    """A request as bytes; of a body that doesn't come `length` is what is announced."""
    authorization = f"authorization: Bearer {key}\r\n" if key else ""
    head = f"{method} {path} HTTP/1.1\r\nhost: {HOST}\r\n{authorization}content-type: application/json\r\n"
    size = len(body) if length is None else length
    return f"{head}content-length: {size}\r\n\r\n".encode() + body


async def asked(port: int, sent: bytes) -> int:
    """The status of the answer to a request on a connection of its own, all of which is read."""
    reader, writer = await asyncio.open_connection(HOST, port)
    try:
        writer.write(sent.replace(b"\r\n\r\n", b"\r\nconnection: close\r\n\r\n", 1))
        answer = await asyncio.wait_for(reader.read(), ANSWER_SECONDS)
        return int(answer[9:12])
    finally:
        writer.close()


# --- the attacks, each until it is ended ------------------------------------------------------------------------------


async def again(port: int, at_once: int, make: Callable[[int], bytes]) -> None:
    """Requests one after another on so many connections."""

    async def one(first: int) -> None:
        number = first
        while True:
            with suppress(OSError, ValueError, TimeoutError):
                await asked(port, make(number))
            number += at_once

    await asyncio.gather(*(one(first) for first in range(at_once)))


async def opened(port: int, count: int, sent: bytes, then: bytes = b"") -> None:
    """So many connections that send something, then `then`, and nothing more, and read nothing."""
    writers: list[asyncio.StreamWriter] = []
    for _ in range(count):
        with suppress(OSError):
            _, writer = await asyncio.open_connection(HOST, port, limit=1024)
            writer.write(sent)
            writers.append(writer)
    await asyncio.sleep(1)
    for writer in writers:
        with suppress(OSError):
            writer.write(then)
    await asyncio.Event().wait()


def posted(body: object) -> bytes:
    return request("POST", "/v1/responses", ACME, json.dumps(body).encode())


def strict(schema: object) -> dict[str, object]:
    form = {"type": "json_schema", "name": "a", "strict": True, "schema": schema}
    return {"model": "gpt-oss-20b", "input": "Go.", "max_output_tokens": 4_000, "text": {"format": form}}


def slow_pattern(number: int) -> bytes:
    """A pattern of many counts, for an answer of thousands of characters."""
    pattern = "^" + "a{0,1024}" * 15 + "a{1024}" * 16 + f"b{number}$"
    inner = {"type": "string", "pattern": pattern}
    return posted(
        strict({"type": "object", "properties": {"x": inner}, "required": ["x"], "additionalProperties": False})
    )


def new_pattern(number: int) -> bytes:
    """A small pattern that nobody has sent before."""
    inner = {"type": "string", "pattern": f"^([a-z]{{2,9}}(\\d+|[^x-z]*)\\.w{number}){{1,9}}$"}
    return posted(
        strict({"type": "object", "properties": {"x": inner}, "required": ["x"], "additionalProperties": False})
    )


def large_text(number: int) -> bytes:
    """As many tokens as 8 MB can have."""
    return posted(
        {
            "model": "gpt-oss-20b",
            "truncation": "auto",
            "input": (f"{number} " + "x y z q k j " * 700_000)[: 8 * MIB - 500],
        }
    )


def many_tools(number: int) -> bytes:
    """8 MB of tools, a thousand in each of thousands of items."""
    item = {"type": "additional_tools", "tools": [{}] * 1024}
    return posted({"model": "gpt-oss-20b", "input": [item] * 2_000})


async def slow_readers(port: int) -> None:
    """8 MB of a stored response for each of sixty clients, who read nothing."""
    picture = {"type": "input_image", "image_url": "data:image/png;base64," + "A" * (8 * MIB - 1000)}
    reader, writer = await asyncio.open_connection(HOST, port, limit=64 * MIB)
    writer.write(posted({"model": "gpt-oss-20b", "input": [{"role": "user", "content": [picture]}]}))
    head = await reader.readuntil(b"\r\n\r\n")
    size = int(head.lower().partition(b"content-length: ")[2].partition(b"\r\n")[0])
    made = json.loads(await reader.readexactly(size))["id"]
    await opened(port, 60, request("GET", f"/v1/responses/{made}/input_items", ACME))


ATTACKS: dict[str, Callable[[int], Awaitable[None]]] = {
    "nothing": lambda port: asyncio.sleep(3600),
    "4,096 connections, silent": lambda port: opened(port, 4_096, b""),
    "4,096 connections, a stray byte": lambda port: opened(port, 4_096, request("GET", "/v1/models", ""), b"\r\n"),
    "requests ahead of answers": lambda port: opened(port, 40, request("GET", "/v1/x", "") * 3_000),
    "bodies that don't come": lambda port: opened(port, 512, request("POST", "/v1/responses", ACME, length=100)),
    "texts of 8 MB": lambda port: again(port, 12, large_text),
    "tools of 8 MB": lambda port: again(port, 4, many_tools),
    "readers that don't read": slow_readers,
    "patterns of many counts": lambda port: again(port, 4, slow_pattern),
    "new patterns": lambda port: again(port, 16, new_pattern),
}


# --- who is harmed ----------------------------------------------------------------------------------------------------


class Waits(NamedTuple):
    """Milliseconds that requests of one kind took, and how many failed."""

    took: list[float]
    failed: int

    def at(self, share: float) -> float:
        """The time within which such a share of them was answered."""
        return sorted(self.took)[min(int(len(self.took) * share), len(self.took) - 1)] if self.took else float("inf")


async def waited(port: int, sent: bytes, seconds: float) -> Waits:
    """How long requests take that are sent one after another."""
    took: list[float] = []
    failed, end = 0, time.monotonic() + seconds
    while time.monotonic() < end:
        began = time.perf_counter()
        try:
            status = await asked(port, sent)
        except (OSError, ValueError, TimeoutError):
            status = 0
        if status == 200:
            took.append((time.perf_counter() - began) * 1000)
        else:
            failed += 1
        await asyncio.sleep(PAUSE_SECONDS)
    return Waits(took, failed)


async def both(port: int, seconds: float) -> tuple[Waits, Waits]:
    """Globex' small responses, and /health."""
    small = request("POST", "/v1/responses", GLOBEX, SMALL)
    one, other = await asyncio.gather(
        waited(port, small, seconds), waited(port, request("GET", "/health", ""), seconds)
    )
    return one, other


async def under(name: str) -> bool:
    """Print the row of an attack; whether it was within the limits."""
    settings = {"HARMONIUM_API_KEYS": f"acme:{ACME},globex:{GLOBEX}", "HARMONIUM_LOG_LEVEL": "warning"}
    with Server(["-m", "service", "serve"], settings=settings) as server:
        await waited(server.port, request("POST", "/v1/responses", GLOBEX, SMALL), 2)
        quiet, _ = await both(server.port, SECONDS)
        before = most = server.held_bytes()
        attacker = await asyncio.create_subprocess_exec(
            *(sys.executable, "-m", "bench.attacks", "--attack", name, "--port", str(server.port)), cwd=ROOT
        )
        try:
            measured = asyncio.ensure_future(both(server.port, SECONDS))
            while not measured.done():
                most = max(most, server.held_bytes())
                await asyncio.sleep(PAUSE_SECONDS)
            small, health = measured.result()
        finally:
            attacker.kill()
            await attacker.wait()
    added = (most - before) / MIB
    fine = added <= TARGET_MIB and small.failed == 0
    print(
        f"{name:34}{quiet.at(0.5):8.1f}{small.at(0.5):8.1f}{quiet.at(0.99):8.1f}{small.at(0.99):8.1f}{small.failed:8}"
        f"{health.at(0.99):8.1f}{health.at(1):8.1f}{before / MIB:8.0f}{added:8.0f}{'' if fine else '  missed'}",
        flush=True,
    )
    return fine


async def rows(names: Sequence[str]) -> bool:
    print(f"{'':34}{'globex, ms':>32}{'':8}{'/health, ms':>16}{'memory':>16}")
    heads = ("p50", "p50", "p99", "p99", "failed", "p99", "worst", "MiB", "added")
    print(f"{'':34}" + "".join(f"{head:>8}" for head in heads))
    print(f"{'':34}" + "".join(f"{'quiet' if place in (0, 2) else '':>8}" for place in range(len(heads))))
    return all([await under(name) for name in names])


def main() -> int:
    """0, or 1 when --check is given and something failed or took too much memory."""
    parser = argparse.ArgumentParser(description="what one key can do to another")
    parser.add_argument("--check", action="store_true", help="fail where Globex or the memory was harmed")
    parser.add_argument("--only", choices=ATTACKS, help="one attack")
    parser.add_argument("--attack", choices=ATTACKS, help=argparse.SUPPRESS)
    parser.add_argument("--port", type=int, help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.attack:
        asyncio.run(ATTACKS[arguments.attack](arguments.port))  # type: ignore[arg-type]
        return 0
    fine = asyncio.run(rows([arguments.only] if arguments.only else list(ATTACKS)))
    print(f"attacks: {'met' if fine else 'missed'} (no request of another key fails, at most {TARGET_MIB} MiB more)")
    return int(arguments.check and not fine)


if __name__ == "__main__":
    sys.exit(main())
