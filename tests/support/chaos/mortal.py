"""A program whose workers kill themselves at a chosen step of an attempt, as a crash there would.

    python mortal.py REDIS_URL

It reads orders as lines of JSON, gives each to a new process of its own, and writes that one's id. The service knows
no such step: here its jobs are wrapped, and its engine.
"""

import asyncio
import json
import os
import signal
import sys
from collections.abc import AsyncGenerator
from typing import Any

import msgspec

from service.background.cancel import cancel
from service.background.tasks import Background
from service.engine.demo import DemoEngine
from service.engine.port import Chunk, Generation
from service.harmony.tokens import decode
from service.responses.service import Service, job_limits, open_service
from service.settings.core import DEFAULT_TENANT
from service.settings.settings import Settings, load_settings
from store.history.history import ConversationHistoryStore
from store.jobs.jobs import Jobs
from store.jobs.log import Entry
from store.jobs.model import LEVELS, Claim, Job, JobLimits, Lease
from store.turn import Turn
from tests.support.chaos.inside import CARD

STEPS = {
    "claimed": 1,  # and not yet begun
    "writing": 1,  # the first entry, which says that it began
    "written": 1,
    "writing again": 2,  # in the middle of the answer
    "written again": 2,
    "finishing": 1,
    "finished": 1,  # nothing is left to do
    "handing back": 1,
    "handed back": 1,
    "cancelling": 1,  # by an API, before it has said so
    "cancelled": 1,  # and after that, before the response is closed
}
"""The steps at which one may die, and which time it does."""

AT_THE_END = {"finishing", "finished"}
UNHURRIED_TOKENS_PER_SECOND = 5
"""How quickly one answers that dies before its end, however long a busy machine holds it up."""

POISON = "poison"
"""A word that no engine of this program survives."""


def die() -> None:
    """End as by a power cut."""
    os.kill(os.getpid(), signal.SIGKILL)


class MortalJobs(Jobs):
    """Jobs that come to a step, and no further."""

    def __init__(self, history: ConversationHistoryStore, limits: JobLimits, step: str) -> None:
        super().__init__(history, limits)
        self._step = step
        self._left = STEPS.get(step, 0)
        self.leave = asyncio.Event()
        """Set once the worker is to leave, which is a step too."""

    def _at(self, step: str) -> None:
        if self._step.removesuffix(" again") == step:
            self._left -= 1
            if not self._left:
                die()

    async def claim(self, shard: int, most: int, level: int = LEVELS - 1) -> Claim:
        claim = await super().claim(shard, most, level)
        if claim.jobs:
            self._at("claimed")
        return claim

    async def write(self, lease: Lease, entry: Entry, **more: Any) -> None:
        self._at("writing")
        await super().write(lease, entry, **more)
        self._at("written")
        if self._step.startswith("hand"):
            self.leave.set()

    async def finish(self, lease: Lease, turn: Turn, entry: Entry, **more: Any) -> int:
        self._at("finishing")
        dropped = await super().finish(lease, turn, entry, **more)
        self._at("finished")
        return dropped

    async def hand_back(self, lease: Lease, **more: Any) -> None:
        self._at("handing back")
        await super().hand_back(lease, **more)
        self._at("handed back")

    async def cancel(self, tenant: str, id: str) -> Job | None:
        self._at("cancelling")
        job = await super().cancel(tenant, id)
        self._at("cancelled")
        return job


class PoisonedEngine(DemoEngine):
    """A demo engine that a word kills, and the whole process with it."""

    async def generate(self, generation: Generation) -> AsyncGenerator[Chunk, None]:
        """As the demo engine."""
        if POISON in decode(generation.prompt):
            die()
        async for chunk in super().generate(generation):
            yield chunk


async def work(settings: Settings, step: str, id: str | None) -> None:
    """Work, or cancel `id`, to the step at which this process dies."""
    hurries = not step or step in AT_THE_END
    speed = settings.demo_tokens_per_second if hurries else UNHURRIED_TOKENS_PER_SECOND
    service = open_service(settings, PoisonedEngine(CARD, speed))
    await service.engine.start()
    jobs = MortalJobs(service.store, job_limits(settings), step)
    service = msgspec.structs.replace(service, jobs=jobs)
    await (_work(service, jobs) if id is None else cancel(service, DEFAULT_TENANT, id))


async def _work(service: Service, jobs: MortalJobs) -> None:
    background = Background(service, works=True)
    working = asyncio.create_task(background.run())
    await jobs.leave.wait()
    background.stop()
    await working


def main() -> None:
    """Carry out orders until there are no more."""
    signal.signal(signal.SIGCHLD, signal.SIG_IGN)  # the kernel buries the dead
    for line in sys.stdin:
        order = json.loads(line)
        if child := os.fork():
            print(child, flush=True)
            continue
        asyncio.run(work(load_settings(**order["settings"]), order["step"], order["id"]))
        os._exit(1)


if __name__ == "__main__":
    main()
