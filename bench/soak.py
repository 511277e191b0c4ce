"""An hour of everything that clients do, at a share of what a process can do and at the cap of its store: what it holds
and how late its loop is, all along.

    scripts/bench soak [--check] [--minutes 60] [--kills]

A real `harmonium serve` on the demo engine, with the embedded server as its Redis. Clients create, stream, continue,
fork, retrieve, list and delete, follow background responses and cancel some, with the official SDK; for how long they
rest follows the process's CPU, which is 70 % of a core in the mean. Growth is the mean of the last quarter of the time,
of that of the second one, as caches fill and the cap is met in the first. A test does the same and checks the store
with fsck (tests/together/test_soak.py).

With `--kills` two APIs, two workers and a Redis work over an archive, and each is killed in turn: clients walk over all
that is kept, and others follow background responses from one API to another. In the end each acknowledged turn has to
be read, and each deleted one must be gone.
"""

import argparse
import asyncio
import json
import sys
import tempfile
from collections import Counter
from itertools import cycle
from operator import attrgetter
from pathlib import Path
from time import monotonic

import uvloop
from redis import Redis

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT))

from bench._harness import held_bytes  # noqa: E402
from bench._told import Target, all_met  # noqa: E402
from tests.support.chaos.fleet import Fleet, Member, running  # noqa: E402
from tests.support.chaos.storm import storm  # noqa: E402
from tests.support.chaos.walk import PROVE, Walk  # noqa: E402
from tests.support.chat.standin import chatting  # noqa: E402
from tests.support.service.everything import (  # noqa: E402
    LONG,
    MOST_GROWTH,
    MOST_LAG_SECONDS,
    SAMPLES,
    Everything,
    Sample,
    growth,
    lag_p99,
    lags,
    p99,
    used_bytes,
)
from tests.support.service.process import ServiceProcess  # noqa: E402
from tests.support.store.verdict import checked  # noqa: E402

PROVED, COUNTS, NO_END = "llama-4", "demo", 1 << 62
REST_SECONDS, KILL_SECONDS = 0.6, 20.0
"""For how long a walker rests between requests, and how long after one death the next comes."""

FOLLOWED, NUMBERS = 3, 150
"""So many background responses at once, which count so far."""

OVER_SECONDS = 120.0
PROCESS, REDIS = attrgetter("process_bytes"), attrgetter("redis_bytes")
SETTINGS = {
    "archive_after_seconds": 0,
    "max_responses": 2000,
    "demo_tokens_per_second": 50,
    "stream_retention_seconds": 60,
    "lease_seconds": 4,
    "store_timeout_seconds": 1.3,
}
MOST_MEMORY, MOST_LATE_MS = 1.05, 10.0


async def soak(service: ServiceProcess, seconds: float) -> tuple[Everything, float]:
    """The clients after so many seconds, and how late the loop was in ms, in 99 of 100 looks."""
    with service.redis() as redis:
        clients = Everything(service.url, service.process.pid, redis, seed=7)
        await clients.run(seconds, every=seconds / SAMPLES)
    return clients, 1000 * await lag_p99(service.url)


class Killed:
    """A fleet of which each is killed in turn, and what is seen of it meanwhile."""

    def __init__(self, fleet: Fleet, walk: Walk, ends: float) -> None:
        self.fleet, self.walk = fleet, walk
        self._ends = ends
        self.late, self.kills, self.followed = Counter[float](), 0, 0
        self.samples: list[Sample] = []

    async def kill(self) -> None:
        """Kill one after the other, each once the one before is ready again, and all in the end of each round."""
        members = self.fleet.members
        victims = cycle([*([each] for each in (*members, self.fleet.store)), [*members, self.fleet.store]])
        while monotonic() < self._ends:
            await asyncio.sleep(KILL_SECONDS)  # for so long nobody dies
            dying = next(victims)
            for each in dying:
                if isinstance(each, Member):
                    self.late.update(await lags(each.url))
                self.fleet.kill(each)
                self.kills += 1
            for each in reversed(dying):  # the store first
                self.fleet.launch(each)
                await each.ready()

    async def follow(self) -> None:
        """Have background responses followed to their ends, over whichever API lives."""
        whole = "\n".join(map(str, range(1, NUMBERS + 1)))
        while monotonic() < self._ends:
            async with storm(self.fleet, FOLLOWED, NUMBERS, COUNTS) as followed:
                await followed.over(OVER_SECONDS)
            for each in followed.followers:
                if (each.response["status"], each.text) != ("completed", whole):
                    self.walk.wrong.append(f"{each.id} is {each.response['status']}: {each.text[-80:]}")
            self.followed += FOLLOWED

    async def watch(self, every: float) -> None:
        """Note the memory of those that live."""
        began = monotonic()
        while (now := monotonic()) < self._ends:
            lived = [each.pid for each in self.fleet.members if each.alive]
            if len(lived) == len(self.fleet.members) and self.fleet.store.alive:
                with Redis.from_url(self.fleet.store.url) as redis:
                    redis_bytes = used_bytes(redis)
                held = sum(map(held_bytes, lived))
                self.samples.append(Sample(now - began, held, redis_bytes, 0.0, len(self.walk.told)))
            await asyncio.sleep(every)  # until the next look


async def soak_killed(folder: Path, seconds: float) -> list[Target]:
    """The verdicts on a fleet that was killed for so many seconds; it prints what is wrong."""
    async with chatting(PROVE) as model:
        engines = [{"name": COUNTS, "kind": "demo"}]
        engines += [{"name": PROVED, "kind": "chat", "urls": [model.url]}]
        (folder / "engines.json").write_text(json.dumps({"engines": engines}))
        places = {"engines": str(folder / "engines.json"), "archive_url": f"sqlite://{folder}/archive"}
        async with running(folder, 7, fsync="always", **SETTINGS, **places) as fleet:
            walk = Walk(fleet, PROVED, NO_END, REST_SECONDS)
            killed = Killed(fleet, walk, monotonic() + seconds)
            try:
                async with asyncio.TaskGroup() as group:
                    for each in (killed.kill(), killed.follow(), killed.watch(seconds / SAMPLES)):
                        group.create_task(each)
                walk.turns = 0
                await walk.end()
                for each in fleet.members:
                    killed.late.update(await lags(each.url))
                await walk.look()
            finally:
                await walk.close()
            report = await checked(fleet.store.url, fleet.settings.redis_prefix)
    print(f"{len(walk.told):,} turns acknowledged, {killed.followed:,} background responses, {killed.kills} kills")
    print(*walk.wrong, sep="\n", end="")
    memory, redis = growth(killed.samples, PROCESS), growth(killed.samples, REDIS)
    return [
        Target("with kills: turns that are lost, wrong or back", len(walk.wrong), 0),
        Target("with kills: faults that fsck finds", report.found, 0),
        Target("with kills: all processes' memory, last quarter of second", memory, MOST_MEMORY),
        Target("with kills: Redis' memory, last quarter of second", redis, MOST_MEMORY),
        Target("with kills: the loops' lag at p99, ms", 1000 * p99(killed.late), MOST_LATE_MS),
    ]


def soak_unhurt(folder: Path, seconds: float) -> list[Target]:
    """The verdicts on a service that nobody hurts."""
    service = ServiceProcess(folder, **LONG)
    try:
        clients, lag = uvloop.run(soak(service, seconds))
    finally:
        service.stop()
    last = clients.samples[-1]
    print(f"{last.requests:,} requests in {last.seconds:,.0f} s: {dict(clients.done)}, {clients.gone} of what was gone")
    print(f"process {last.process_bytes / 1e6:.1f} MB, Redis {last.redis_bytes / 1e6:.1f} MB")
    return [
        Target("the process's memory, last quarter of second", growth(clients.samples, PROCESS), MOST_GROWTH),
        Target("Redis' memory, last quarter of second", growth(clients.samples, REDIS), MOST_GROWTH),
        Target("the loop's lag at p99, ms", lag, 1000 * MOST_LAG_SECONDS),
    ]


def main() -> int:
    """0, or 1 when --check is given and a target missed."""
    parser = argparse.ArgumentParser(description="an hour of everything at once")
    parser.add_argument("--check", action="store_true", help="exit 1 when a target is missed")
    parser.add_argument("--minutes", type=float, default=60, help="for how long (60)")
    parser.add_argument("--kills", action="store_true", help="over an archive, while everything is killed in turn")
    options = parser.parse_args()
    seconds = 60 * options.minutes
    with tempfile.TemporaryDirectory() as folder:
        where = Path(folder)
        judged = asyncio.run(soak_killed(where, seconds)) if options.kills else soak_unhurt(where, seconds)
    return 0 if all_met(judged) or not options.check else 1


if __name__ == "__main__":
    sys.exit(main())
