"""Cancel: how long it takes until the caller has its answer, the engine has stopped, and followers know.

API and worker are processes of their own, so whoever cancels never holds the response. The engine notes when its
generation is over (watched.py); responses are cancelled at random moments, eight under way at once.
"""

import asyncio
import random
import tempfile
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from bench._background.processes import LONG, PATH, WAIT_SECONDS, Bench, Follower, Spread, api, variables
from bench._harness import Client, Server
from bench._rig import running
from bench._told import Target, table

ROOT = Path(__file__).resolve().parents[2]

TARGET_REPLY_MS = 100.0
"""From the request to the answer, p99."""

TARGET_STOP_MS = 250.0
"""From the answer to the engine's stop, p99."""

CANCELS = 800
UNDER_WAY = 8
TOKENS_PER_SECOND = 100
MOMENTS = (0.0, 0.4)
"""The least and the most seconds from a response's first event to its cancelling."""

ENGINE_SECONDS = 2.0
"""How long the last stops of the engine are waited for."""


@dataclass(frozen=True)
class Cancels:
    """ms from the request to its answer, to the terminal event at a follower, and to the engine's stop, and from the
    answer to that, which is 0 where it came first; how many were cancelled before the engine had begun."""

    reply: Spread
    told: Spread
    stop: Spread
    behind: Spread
    unbegun: int

    def targets(self) -> list[Target]:
        """What is judged."""
        return [
            Target("ms to a cancel's reply, p99", self.reply.p99, TARGET_REPLY_MS),
            Target("ms from the reply to the engine's stop, p99", self.behind.p99, TARGET_STOP_MS),
        ]

    def lines(self) -> list[str]:
        """What is told."""
        rows = {
            "reply": self.reply,
            "terminal event at a follower": self.told,
            "engine's stop": self.stop,
            "engine's stop behind the reply": self.behind,
        }
        unbegun = f"{self.unbegun} were cancelled before the engine had begun"
        return [
            *table(("from the cancel to", "p50 ms", "p99 ms", "worst ms"), [(k, *v) for k, v in rows.items()]),
            unbegun,
        ]


@dataclass(frozen=True)
class Cancelled:
    """One cancelling, in seconds of time.monotonic."""

    id: str
    began: float
    replied: float
    told: float


async def measure(bench: Bench) -> Cancels:
    """Cancel at random moments."""
    count = bench.few(CANCELS, 80)
    with tempfile.TemporaryDirectory() as folder, running(bench.redis) as redis:
        notes = Path(folder) / "stops"
        settings = variables(redis, demo_tokens_per_second=TOKENS_PER_SECOND) | {"PYTHONPATH": str(ROOT)}
        command = ["-m", "bench._background.watched", str(notes)]
        with api(redis, profile=bench.profile) as front, Server(command, settings=settings):
            found = list[Cancelled]()
            waiting = iter(bench.progress.track(range(count), description="cancels"))
            await asyncio.gather(*(cancel_some(front.port, waiting, found) for _ in range(UNDER_WAY)))
            await asyncio.sleep(ENGINE_SECONDS)
        stops = noted(notes)
    begun = [each for each in found if each.id in stops]
    return Cancels(
        reply=Spread.of([each.replied - each.began for each in found], 1e3),
        told=Spread.of([each.told - each.began for each in found], 1e3),
        stop=Spread.of([stops[each.id] - each.began for each in begun], 1e3),
        behind=Spread.of([max(0.0, stops[each.id] - each.replied) for each in begun], 1e3),
        unbegun=len(found) - len(begun),
    )


async def cancel_some(port: int, waiting: Iterator[int], found: list[Cancelled]) -> None:
    """Create, follow and cancel responses one after the other."""
    async with Client(port) as client:
        for _ in waiting:
            follower = Follower(lambda now, data: None)
            await follower.create(port, LONG)
            id = await follower.begun
            await asyncio.sleep(random.uniform(*MOMENTS))
            began = time.monotonic()
            answer = await client.post(f"{PATH}/{id}/cancel", b"")
            replied = time.monotonic()
            if b'"status":"cancelled"' not in answer:
                raise RuntimeError(f"not cancelled: {answer[:500].decode()}")
            told = await asyncio.wait_for(follower.ended, WAIT_SECONDS)
            follower.close()
            found.append(Cancelled(id, began, replied, told))


def noted(notes: Path) -> dict[str, float]:
    """When the engine stopped for each response; those for which it never began are not there."""
    lines = map(str.split, notes.read_text().splitlines())
    return {id.partition("-")[0]: float(at) for id, at in lines}
