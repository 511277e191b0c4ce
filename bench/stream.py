"""What a streamed token costs the serving process, from the engine's port to the socket.

    scripts/bench stream [--check] [--profile]

Eight streams at once, from an engine that hands out tokens made beforehand (_prepared.py): one, 8 or 64 at each
turn of the loop. A token's cost is the CPU of long streams less that of short ones, by the tokens between, less
what it costs to take the tokens from the engine and send nothing. Both take turns within a round, so that whatever else
the machine does hits both; figures are medians.
"""

import argparse
import asyncio
import json
import sys
import time
from collections.abc import Callable, Coroutine, Mapping
from contextlib import AsyncExitStack, ExitStack
from functools import partial
from itertools import product
from pathlib import Path
from statistics import median
from typing import Any, TypeVar

import uvloop

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT))

from bench._harness import Client, Server, connected  # noqa: E402
from bench._prepared import MODEL, PATH, WAYS, sampled  # noqa: E402
from service.api.response import Response, ResponseStatus  # noqa: E402
from service.responses.output.machine import Machine  # noqa: E402
from service.responses.output.rules import Rules  # noqa: E402
from service.web.sse import Encoder  # noqa: E402

TARGET_US = 12.0
"""CPU of a token as it comes."""

CHUNKS: tuple[int, ...] = (1, 8, 64)
"""Tokens that the engine has ready at each turn of the loop; with 1 they go out as they come."""

STREAMS = 8
SHORT_TOKENS = 16
LONG_TOKENS = 1000
STAGE_ROUNDS = 7
STAGES: tuple[str, ...] = ("machine", "encode")
PREPARED = ("-m", "bench._prepared")

Way = tuple[str, int]
"""What is measured: one of WAYS, and how many tokens it gets at a time."""

T = TypeVar("T")


async def load(server: Server, clients: list[Client], count: int) -> float:
    """A stream of `count` tokens on each connection at once; the service's CPU in seconds."""
    request = {"model": MODEL, "input": "Write.", "stream": True, "max_output_tokens": count}
    body = json.dumps(request).encode()
    before = server.cpu_seconds()
    await asyncio.gather(*(client.stream(PATH, body) for client in clients))
    return server.cpu_seconds() - before


async def measure(servers: Mapping[Way, Server], rounds: int) -> dict[Way, list[float]]:
    """For each server what a token costs, in µs, round by round; the engine's share is in it."""
    found: dict[Way, list[float]] = {way: [] for way in servers}
    async with AsyncExitStack() as open_ones:
        clients = {
            way: await open_ones.enter_async_context(connected(server.port, STREAMS)) for way, server in servers.items()
        }
        for warm in (False, *[True] * rounds):
            for way, server in servers.items():
                short = await load(server, clients[way], SHORT_TOKENS)
                long = await load(server, clients[way], LONG_TOKENS)
                if warm:
                    found[way].append((long - short) / (LONG_TOKENS - SHORT_TOKENS) / STREAMS * 1e6)
    return found


def base_response() -> Response:
    """A response as it begins."""
    return Response(
        id=f"resp_{'0' * 48}",
        created_at=0,
        status=ResponseStatus.IN_PROGRESS,
        model=MODEL,
        instructions=None,
        previous_response_id=None,
        tools=[],
        tool_choice="auto",
        parallel_tool_calls=True,
        max_output_tokens=None,
        max_tool_calls=None,
        temperature=1.0,
        top_p=1.0,
        reasoning={},
        text={},
        metadata={},
        store=True,
        safety_identifier=None,
        prompt_cache_key=None,
    )


async def stages(size: int) -> dict[str, float]:
    """What each stage takes alone in µs a token, for chunks of `size`: all of the way but HTTP and the socket."""
    ids, spent = sampled(LONG_TOKENS), dict.fromkeys(STAGES, 0.0)

    def timed(stage: str, action: Callable[[], Any]) -> Any:
        began = time.perf_counter()
        result = action()
        spent[stage] += time.perf_counter() - began
        return result

    machine, encoder = Machine(base_response(), Rules(), 1), Encoder(obfuscate=True)
    machine.begin()
    chunks = [ids[at : at + size] for at in range(0, LONG_TOKENS, size)]
    batches = [timed("machine", partial(machine.feed, chunk)) for chunk in chunks]
    for batch in filter(None, batches):  # a token may make no event
        timed("encode", partial(encoder.append, batch, bytearray()))
    return {stage: seconds / LONG_TOKENS * 1e6 for stage, seconds in spent.items()}


def report(found: Mapping[Way, list[float]]) -> float:
    """Print a row for each size of chunk; the CPU of a token as it comes."""
    columns = ("at a time", "CPU us", "least", "nothing", *STAGES)
    print(" ".join(f"{column:>9}" for column in columns))
    figures: list[float] = []
    for size in CHUNKS:
        nothing = median(found["nothing", size])
        ours = [each - nothing for each in found["service", size]]
        figures.append(median(ours))
        runs = [run(stages(size)) for _ in range(STAGE_ROUNDS)]
        alone = [f"{min(each[stage] for each in runs):9.2f}" for stage in STAGES]
        print(f"{size:9} {median(ours):9.2f} {min(ours):9.2f} {nothing:9.2f}", *alone)
    print("\n`nothing` takes the tokens and sends none; it has been subtracted. The last two columns are")
    print("stages run alone; what is left of the CPU is the run, HTTP and the socket.")
    return figures[0]


def run(work: Coroutine[Any, Any, T]) -> T:
    """The result of `work` on the loop that the service has."""
    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        return runner.run(work)


def main() -> int:
    """0, or 1 when --check is given and a target missed."""
    parser = argparse.ArgumentParser(description="the serving process's CPU for a streamed token")
    parser.add_argument("--check", action="store_true", help="exit 1 when a target is missed")
    parser.add_argument("--rounds", type=int, default=9, help="how often each way is measured (9)")
    parser.add_argument("--profile", action="store_const", const=("service", 1), help="print cProfile's top rows")
    options = parser.parse_args()
    with ExitStack() as running:
        servers = {
            way: running.enter_context(
                Server(
                    [*PREPARED, way[0], str(way[1])], settings={"PYTHONPATH": str(ROOT)}, profile=way == options.profile
                )
            )
            for way in product(WAYS, CHUNKS)
        }
        found = asyncio.run(measure(servers, options.rounds))
    cost = report(found)
    print(f"stream: {cost:.1f} us a token as they come (target <= {TARGET_US:g} us)")
    return 0 if cost <= TARGET_US or not options.check else 1


if __name__ == "__main__":
    sys.exit(main())
