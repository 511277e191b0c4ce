"""Somebody who does at random all that can be done with a store, beside others who do the same."""

import asyncio
from contextlib import suppress
from random import Random

from store.errors import (
    ConversationHeld,
    ConversationMoved,
    LeaseLost,
    LogFull,
    NotCancellable,
    NotContinuable,
    NotFound,
    NotTerminal,
    QueueFull,
    StoreFull,
)
from store.history.conversations import Conversations
from store.history.history import ConversationHistoryStore
from store.jobs.jobs import Jobs
from store.jobs.log import LogEntry
from store.jobs.model import JobLimits, Priority
from store.turn import Status
from tests.support.store.sample import TENANT, turn, with_pictures
from tests.support.store.work import fall_silent, finish, submit

REFUSALS = (
    *(NotFound, NotContinuable, NotTerminal, NotCancellable, ConversationHeld, ConversationMoved),
    *(StoreFull, QueueFull, LogFull, LeaseLost),
)
"""The words of a store to whom others came before, or for whom there is no room."""

PICTURES = (b"cat" * 99, b"dog" * 99, b"owl" * 99)
NEWEST = 20
RUN_SECONDS = 600.0


class Writer:
    """One of them: its tips, and what it deleted or tried to."""

    def __init__(
        self,
        store: ConversationHistoryStore,
        seed: int,
        tips: list[str] | None = None,
        *,
        limits: JobLimits | None = None,
    ) -> None:
        self.tips, self.deleted = list(tips or ()), set[str]()
        self._store, self._named = store, Conversations(store)
        self._jobs = Jobs(store, limits or JobLimits(lease_seconds=RUN_SECONDS, first_seconds=RUN_SECONDS))
        self._chance, self._begun = Random(seed), list[str]()
        self._submitted = list[str]()

    async def run(self, stop: asyncio.Event) -> None:
        while not stop.is_set():
            await self.step()
            await asyncio.sleep(0)

    async def step(self) -> None:
        """Do one thing, unless it is refused."""
        (deed,) = self._chance.choices(tuple(DEEDS), tuple(DEEDS.values()))
        with suppress(*REFUSALS):
            await deed(self)

    def _odds(self, part: float) -> bool:
        return self._chance.random() < part

    def _any(self) -> str:
        """A turn that may still be there, in half of all cases one of the newest."""
        if not self.tips:
            raise NotFound("")
        return self._chance.choice(self.tips[-NEWEST:] if self._odds(0.5) else self.tips)

    async def _add(self, parent: str | None, pin: str | None = None) -> None:
        id = self._store.new_id(parent)
        shown = self._chance.sample(PICTURES, self._chance.choice((0, 0, 0, 1, 2)))
        text = id[-5:] + "x" * self._chance.randrange(300)
        await self._store.append(TENANT, with_pictures(turn(id, parent, text=text), *shown), pin=pin)
        self.tips.append(id)

    async def begin(self) -> None:
        await self._add(None)
        self._begun.append(self.tips[-1])

    async def fork(self) -> None:
        await self._add(self._any())

    async def go_on(self) -> None:
        parent = self._any()
        chain = await self._store.chain(TENANT, parent, pin=self._store.token())
        try:
            await self._add(parent, chain.pin)
        except REFUSALS:
            await self._store.unpin(TENANT, parent, str(chain.pin))

    async def delete(self) -> None:
        id = self._any()
        self.deleted.add(id)
        await self._store.forget(TENANT, id, erase=self._odds(0.5))

    async def delete_tree(self) -> None:
        if self._begun:
            await self._store.forget_tree(TENANT, self._begun.pop(0))

    async def talk(self) -> None:
        """Begin a conversation, perhaps hold it meanwhile, and delete it or add a turn to it."""
        id = self._named.new_id()
        first = turn(self._named.new_turn_id(id))
        await self._named.create(TENANT, id, first, b"{}")
        if self._odds(0.5):
            await self._named.hold(TENANT, id, "run", RUN_SECONDS)
        try:
            if self._odds(0.3):
                await self._named.delete(TENANT, id)
            elif self._odds(0.5):
                next_one = turn(self._store.new_id(first.id), first.id, text="next")
                await self._named.advance(TENANT, id, next_one, hold="run")
        finally:
            await self._named.release(TENANT, id, "run")  # conversations that are held soon leave no room for others

    async def submit(self) -> None:
        parent = self._any() if self._odds(0.6) else None
        streams, fleeting = self._odds(0.7), parent is None and self._odds(0.2)
        priority = self._chance.choice(list(Priority))
        self._submitted.append(
            await submit(self._jobs, parent=parent, streams=streams, fleeting=fleeting, priority=priority)
        )

    async def work(self) -> None:
        for job in (await self._jobs.claim(0, 2)).jobs:
            last = job.last
            with suppress(LogFull):
                text = b"x" * self._chance.randrange(900)
                await self._jobs.write(job.lease, LogEntry(last + 3, text), snapshot=self._chance.choice((b"", b"{}")))
                last += 3
            if self._odds(0.2):
                await self._jobs.hand_back(job.lease, failed=self._odds(0.5))
            elif self._odds(0.9):
                await finish(self._jobs, job, last=last, status=self._chance.choice((Status.COMPLETED, Status.FAILED)))
                self.tips.append(job.lease.id)

    async def disturb(self) -> None:
        """Cancel a job, or have whoever works on it be silent for too long."""
        if self._submitted and self._odds(0.5):
            await self._jobs.cancel(TENANT, self._chance.choice(self._submitted))
        elif self._submitted:
            await fall_silent(self._jobs, self._chance.choice(self._submitted))


DEEDS = {
    Writer.begin: 3,
    Writer.fork: 4,
    Writer.go_on: 4,
    Writer.delete: 3,
    Writer.delete_tree: 1,
    Writer.talk: 2,
    Writer.submit: 3,
    Writer.work: 3,
    Writer.disturb: 1,
}
"""Its steps, and how often it takes each."""
