"""Processes that talk to a store until they are killed: `python killed.py URL PREFIX SEED AT_ONCE KILLS` (forked.py).

In each, some tasks append, fork, pin and forget as fast as they can, and print what they are about to do and what the
store acknowledged.
"""

import asyncio
import os
import random
import time
from collections import defaultdict
from collections.abc import Awaitable, Callable
from contextlib import suppress
from dataclasses import dataclass, field

from store.errors import NotFound
from store.history.history import ConversationHistoryStore
from store.redis.connection import connect
from tests.support.store.programs.forked import TIMEOUT_SECONDS, main, say
from tests.support.store.sample import TENANT
from tests.support.store.witness import pictured, witness

TASKS = 8
RECENT = 16
PIN_SECONDS = 0.5


class Talker:
    """Tasks that work on trees of their own process, and get into each other's way there."""

    def __init__(self, store: ConversationHistoryStore, chance: random.Random, bell: int) -> None:
        """`bell` is a pipe to write to once something was stored."""
        self._store = store
        self._chance = chance
        self._bell = bell
        self._known: list[str] = []

    async def talk(self) -> None:
        """One deed after the other, for ever. Raises StoreUnavailable."""
        while True:
            (deed,) = self._chance.choices(tuple(DEEDS), tuple(DEEDS.values()))
            with suppress(NotFound):  # another task has deleted it
                await deed(self)
            await asyncio.sleep(0)  # a deed that has nothing to work on yet would let nobody else begin

    async def begin(self) -> None:
        await self._append(None)

    async def go_on(self) -> None:
        if parent := self._any():
            chain = await self._store.chain(TENANT, parent, pin=self._store.token())
            await self._append(parent, chain.pin)

    async def fork(self) -> None:
        if parent := self._any():
            await self._append(parent)

    async def give_up(self) -> None:
        if tip := self._any():
            chain = await self._store.chain(TENANT, tip, pin=self._store.token())
            await self._store.unpin(TENANT, tip, str(chain.pin))

    async def forget(self) -> None:
        if id := self._any():
            say("forgetting", id)
            await self._store.forget(TENANT, id)
            say("forgot", id)

    async def forget_tree(self) -> None:
        if id := self._any():
            say("abandoning", id)
            await self._store.forget_tree(TENANT, id)
            say("abandoned", id)

    async def _append(self, parent: str | None, pin: str | None = None) -> None:
        id = self._store.new_id(parent)
        say("appending", id, parent or "")
        said = witness(TENANT, id, parent, filler=self._chance.randbytes(200))
        await self._store.append(TENANT, pictured(said), pin=pin)
        say("appended", id, str(time.time()))
        if not self._known:
            os.write(self._bell, b".")
        self._known = [*self._known[-RECENT:], id]

    def _any(self) -> str | None:
        return self._chance.choice(self._known) if self._known else None


DEEDS: dict[Callable[[Talker], Awaitable[None]], int] = {
    Talker.begin: 10,
    Talker.go_on: 45,
    Talker.fork: 20,
    Talker.give_up: 10,
    Talker.forget: 10,
    Talker.forget_tree: 2,
}
"""What a task does, and how often."""


@dataclass
class Told:
    """The things that processes said they were about to do, and those that they were told were done."""

    parents: dict[str, str | None] = field(default_factory=dict)
    """Of every turn whose append had begun."""
    appended: dict[str, float] = field(default_factory=dict)
    """When an append was acknowledged."""
    ended: list[float] = field(default_factory=list)
    """When processes found no server any more."""
    ids: defaultdict[str, set[str]] = field(default_factory=lambda: defaultdict(set))
    """By word: forgetting, forgot, abandoning, abandoned."""

    @property
    def done(self) -> int:
        """How much was acknowledged."""
        return len(self.appended)

    def note(self, line: bytes) -> None:
        """Take in one line."""
        word, id, detail = line.decode().rstrip("\n").split(" ")
        match word:
            case "appending":
                self.parents[id] = detail or None
            case "appended":
                self.appended[id] = float(detail)
            case "ended":
                self.ended.append(float(detail))
            case _:
                self.ids[word].add(id)

    def root(self, id: str) -> str:
        """The root of a turn's tree."""
        while parent := self.parents[id]:
            id = parent
        return id

    def among(self, words: tuple[str, str]) -> set[str]:
        """The turns that were to go, or went, by these words for one turn and for a tree."""
        one, tree = words
        roots = {self.root(id) for id in self.ids[tree]}
        return self.ids[one] | {id for id in self.parents if self.root(id) in roots}


async def talk(url: str, prefix: str, seed: int, bell: int) -> None:
    """Talk for ever. Raises StoreUnavailable, in a group, when the server is gone."""
    store = ConversationHistoryStore(
        connect(url), prefix=prefix, pin_seconds=PIN_SECONDS, timeout_seconds=TIMEOUT_SECONDS
    )
    talker = Talker(store, random.Random(seed), bell)
    async with asyncio.TaskGroup() as group:
        for _ in range(TASKS):
            group.create_task(talker.talk())


if __name__ == "__main__":
    main(talk)
