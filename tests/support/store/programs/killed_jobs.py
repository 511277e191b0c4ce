"""Processes that work on jobs until they are killed: `python killed_jobs.py URL PREFIX SEED AT_ONCE KILLS` (forked.py).

In each, some tasks submit, others claim what is next, whoever submitted it, write to its log and end it, and one
cancels; all as fast as they can, and all say what they are about to do and what the store acknowledged. Every entry of
a log names the events that it has, so that a gap or a repeat would show.
"""

import asyncio
import os
import random
import time
from collections.abc import Awaitable, Callable
from contextlib import suppress
from dataclasses import dataclass, field

from store.errors import LeaseLost, NotCancellable, NotContinuable, NotFound, QueueFull
from store.history.history import ConversationHistoryStore
from store.jobs.jobs import Jobs
from store.jobs.log import Entry
from store.jobs.model import Job, JobLimits, Priority
from store.redis.connection import connect
from store.turn import Status, Turn
from tests.support.store.programs.forked import TIMEOUT_SECONDS, main, say
from tests.support.store.sample import TENANT

SUBMITTERS, WORKERS = 3, 4
RECENT = 16
LIMITS = JobLimits(lease_seconds=0.3, waiting=60)


def entry(first: int, last: int) -> Entry:
    """An entry with these events."""
    return Entry(last, b"%d-%d" % (first, last))


def ended(id: str, parent: str | None, status: Status, last: int) -> Turn:
    """A response that has ended with event `last`."""
    return Turn(id, parent, status, (), b"%b ended with event %d" % (id.encode(), last))


async def carry_on(jobs: Jobs, job: Job, chance: random.Random) -> Status:
    """Go on with a job from where its log ends, to its end; with which status. Raises LeaseLost, StoreUnavailable."""
    last = job.last
    for _ in range(chance.randrange(4)):
        first, last = last + 1, last + chance.randint(1, 5)
        await jobs.write(job.lease, entry(first, last), after=first - 1)
    status = job.status
    if status is not Status.CANCELLED:
        status = chance.choice([Status.COMPLETED, Status.COMPLETED, Status.FAILED])
    first, last = last + 1, last + 2
    turn = ended(job.lease.id, None, status, last)
    await jobs.finish(job.lease, turn, entry(first, last), after=first - 1, announced=chance.random() < 0.5)
    return status


class Office:
    """Tasks that make work and do it."""

    def __init__(self, jobs: Jobs, chance: random.Random, bell: int) -> None:
        """`bell` is a pipe to write to once something was stored."""
        self._jobs = jobs
        self._chance = chance
        self._bell = bell
        self._submitted: list[str] = []

    async def submit(self) -> None:
        parent = self._chance.choice(self._submitted) if self._submitted and self._chance.random() < 0.5 else None
        id = self._jobs.history.new_id(parent)
        say("submitting", id, parent or "")
        turn = Turn(id, parent, Status.QUEUED, (), b"queued")
        priority, streams = self._chance.choice(list(Priority)), self._chance.random() < 0.8
        await self._jobs.submit(TENANT, turn, b"spec", entry(0, 1), priority=priority, streams=streams)
        say("submitted", id, str(time.time()))
        if not self._submitted:
            os.write(self._bell, b".")
        self._submitted = [*self._submitted[-RECENT:], id]

    async def work(self) -> None:
        for job in (await self._jobs.claim(0, 2)).jobs:
            await self._end(job)

    async def cancel(self) -> None:
        await asyncio.sleep(self._chance.uniform(0, 0.01))
        if self._submitted:
            id = self._chance.choice(self._submitted)
            job = await self._jobs.cancel(TENANT, id)
            say("revoked", id, str(time.time()))
            if job is not None:
                await self._end(job)

    async def _end(self, job: Job) -> None:
        with suppress(LeaseLost):
            if self._chance.random() < 0.1:
                await self._jobs.hand_back(job.lease, failed=self._chance.random() < 0.5)
                return
            status = await carry_on(self._jobs, job, self._chance)
            say(status, job.lease.id, str(time.time()))


async def work(url: str, prefix: str, seed: int, bell: int) -> None:
    """Work for ever. Raises StoreUnavailable, in a group, when the server is gone."""
    history = ConversationHistoryStore(connect(url), prefix=prefix, timeout_seconds=TIMEOUT_SECONDS)
    office = Office(Jobs(history, LIMITS), random.Random(seed), bell)
    async with asyncio.TaskGroup() as group:
        for deed in (*[office.submit] * SUBMITTERS, *[office.work] * WORKERS, office.cancel):
            group.create_task(_for_ever(deed))


async def _for_ever(deed: Callable[[], Awaitable[None]]) -> None:
    while True:
        with suppress(NotFound, NotContinuable, NotCancellable, QueueFull):
            await deed()
        await asyncio.sleep(0)


@dataclass
class Said:
    """What processes said they were about to do, and what they were told was done, and when."""

    parents: dict[str, str | None] = field(default_factory=dict)
    """Of every job that was about to be submitted."""
    submitted: dict[str, float] = field(default_factory=dict)
    revoked: dict[str, float] = field(default_factory=dict)
    """Which were cancelled, whether or not they were ended then."""
    statuses: dict[str, tuple[Status, float]] = field(default_factory=dict)
    """How jobs were ended."""
    ended: list[float] = field(default_factory=list)
    """When processes found no server any more."""

    @property
    def done(self) -> int:
        """How much was acknowledged."""
        return len(self.statuses)

    def note(self, line: bytes) -> None:
        """Take in one line."""
        word, id, detail = line.decode().rstrip("\n").split(" ")
        match word:
            case "submitting":
                self.parents[id] = detail or None
            case "submitted":
                self.submitted[id] = float(detail)
            case "revoked":
                self.revoked.setdefault(id, float(detail))
            case "ended":
                self.ended.append(float(detail))
            case _:
                self.statuses[id] = Status(word), float(detail)


if __name__ == "__main__":
    main(work)
