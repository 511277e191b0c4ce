"""What a stored, plain create of 64 tokens costs the serving process, alone and at the end of a chain.

    scripts/bench create [--check] [--profile]

A real `harmonium serve` with its embedded server and the demo engine; eight requests are always under way. The CPU
time is the serving process's own: the embedded server's is not in it, nor the client's. Depths take turns within
a round, so that whatever else the machine does hits all of them; a ratio is the median of the rounds' ratios.
"""

import argparse
import asyncio
import json
import sys
import time
from collections.abc import Sequence
from itertools import cycle, islice
from pathlib import Path
from statistics import median

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT))

from bench._harness import Client, Server, connected  # noqa: E402

TARGET_MS = 1.5
TARGET_RATIO = 1.5
"""CPU of a create alone, and what a create at DEEPEST may cost as a multiple of that."""

DEPTHS = (0, 1, 10, 50)
DEEPEST = DEPTHS[-1]
TOKENS = 64
CONCURRENCY = 8
WARM_UP = 200
PATH = "/v1/responses"


def body(number: int, parent: str | None) -> bytes:
    """A request whose answer is cut at TOKENS tokens."""
    request = {
        "model": "gpt-oss-20b",
        "input": f"Write at least 200 words about the year {1000 + number}.",
        "max_output_tokens": TOKENS,
    }
    return json.dumps(request | ({"previous_response_id": parent} if parent else {})).encode()


async def create(client: Client, number: int, parent: str | None) -> bytes:
    """Send one request; its answer, which has exactly TOKENS tokens."""
    answer = await client.post(PATH, body(number, parent))
    if b'"output_tokens":%d,' % TOKENS not in answer:
        raise RuntimeError(f"an answer of another length: {answer.decode()}")
    return answer


async def grow(clients: Sequence[Client]) -> list[list[str]]:
    """A chain of DEEPEST turns for each client, as its ids."""

    async def chain(client: Client) -> list[str]:
        ids: list[str] = []
        for number in range(DEEPEST):
            answer = await create(client, number, ids[-1] if ids else None)
            ids.append(json.loads(answer)["id"])
        return ids

    return await asyncio.gather(*map(chain, clients))


async def load(clients: Sequence[Client], parents: Sequence[str | None], count: int) -> float:
    """Send `count` requests, one at a time on each connection; how many were answered a second."""
    waiting = iter(enumerate(islice(cycle(parents), count)))

    async def work(client: Client) -> None:
        for number, parent in waiting:
            await create(client, number, parent)

    began = time.perf_counter()
    await asyncio.gather(*map(work, clients))
    return count / (time.perf_counter() - began)


async def measure(server: Server, rounds: int, count: int) -> dict[int, list[tuple[float, float]]]:
    """For each depth a (CPU seconds a create, creates a second) of each round."""
    found: dict[int, list[tuple[float, float]]] = {depth: [] for depth in DEPTHS}
    async with connected(server.port, CONCURRENCY) as clients:
        chains = await grow(clients)
        await load(clients, [None], WARM_UP)
        for _ in range(rounds):
            for depth in DEPTHS:
                parents = [ids[depth - 1] for ids in chains] if depth else [None]
                before = server.cpu_seconds()
                rate = await load(clients, parents, count)
                found[depth].append(((server.cpu_seconds() - before) / count, rate))
    return found


def report(found: dict[int, list[tuple[float, float]]]) -> tuple[float, float]:
    """Print a row for each depth; CPU in ms of a create alone, and the ratio at DEEPEST."""
    print(f"{'depth':>6} {'CPU ms':>8} {'least':>8} {'ratio':>8} {'creates/s':>10}")
    ratios: dict[int, float] = {}
    for depth, rounds in found.items():
        cpu = [seconds * 1e3 for seconds, _ in rounds]
        ratios[depth] = median(each / alone for (each, _), (alone, _) in zip(rounds, found[0], strict=True))
        rate = median(rate for _, rate in rounds)
        print(f"{depth or 'alone':>6} {median(cpu):8.3f} {min(cpu):8.3f} {ratios[depth]:7.2f}x {rate:10.0f}")
    return median(seconds for seconds, _ in found[0]) * 1e3, ratios[DEEPEST]


def main() -> int:
    """0, or 1 when --check is given and a target missed."""
    parser = argparse.ArgumentParser(description="the serving process's CPU for a stored create of 64 tokens")
    parser.add_argument("--check", action="store_true", help="exit 1 when a target is missed")
    parser.add_argument("--rounds", type=int, default=3, help="how often each depth is measured (3)")
    parser.add_argument("--requests", type=int, default=400, help="creates of a depth in a round (400)")
    parser.add_argument("--profile", action="store_true", help="run the service under cProfile and print its top rows")
    options = parser.parse_args()
    with Server(["-m", "service", "serve"], profile=options.profile) as server:
        cost, ratio = report(asyncio.run(measure(server, options.rounds, options.requests)))
    print(
        f"create: {cost:.2f} ms alone, {ratio:.2f}x at depth {DEEPEST}"
        f" (target <= {TARGET_MS} ms and <= {TARGET_RATIO}x)"
    )
    met = cost <= TARGET_MS and ratio <= TARGET_RATIO
    return 0 if met or not options.check else 1


if __name__ == "__main__":
    sys.exit(main())
