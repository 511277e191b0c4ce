"""Processes that talk to a store until they are killed: `python killed.py URL PREFIX SEED AT_ONCE KILLS`.

In each, some tasks append, fork, pin and forget as fast as they can, and print what they are about to do and what the
store acknowledged. KILLS of them are killed, AT_ONCE at a time, each at a random moment after it has begun; with KILLS
0 nobody kills them, and they end with the server.

They are forked, before there is a connection or an event loop, as Python takes longer to start than they live.
"""

import asyncio
import os
import random
import signal
import sys
import time
import traceback
from collections import defaultdict
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import suppress
from dataclasses import dataclass, field

from sample import TENANT
from witness import witness

from store.connection import connect
from store.errors import NotFound, StoreUnavailable
from store.history import ConversationHistoryStore

TASKS = 8
RECENT = 16
MAX_LIFE_SECONDS = 0.05
PIN_SECONDS = 0.5
TIMEOUT_SECONDS = 20.0
"""A machine that is busy with killing is slow, and nothing else."""


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
            chain = await self._store.chain(TENANT, parent, pin=True)
            await self._append(parent, chain.pin)

    async def fork(self) -> None:
        if parent := self._any():
            await self._append(parent)

    async def give_up(self) -> None:
        if tip := self._any():
            chain = await self._store.chain(TENANT, tip, pin=True)
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
        await self._store.append(TENANT, witness(TENANT, id, parent, filler=self._chance.randbytes(200)), pin=pin)
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
    """What processes said they were about to do, and what they were told was done."""

    parents: dict[str, str | None] = field(default_factory=dict)
    """Of every turn whose append had begun."""
    appended: dict[str, float] = field(default_factory=dict)
    """When an append was acknowledged."""
    ended: list[float] = field(default_factory=list)
    """When processes found no server any more."""
    ids: defaultdict[str, set[str]] = field(default_factory=lambda: defaultdict(set))
    """By word: forgetting, forgot, abandoning, abandoned."""

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

    async def listen(self, lines: AsyncIterator[bytes]) -> None:
        """Take in all that is said from now on."""
        async for line in lines:
            self.note(line)

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


def say(word: str, id: str, detail: str = "") -> None:
    """Print a line in one piece, whoever else prints to the same pipe."""
    os.write(1, f"{word} {id} {detail}\n".encode())


def fork(url: str, prefix: str, seed: int) -> tuple[int, int]:
    """A new process that talks; its id, and a pipe that has something to read once it has begun."""
    reader, writer = os.pipe()
    if child := os.fork():
        os.close(writer)
        return child, reader
    try:
        asyncio.run(_talk(url, prefix, seed, writer))
    except* StoreUnavailable:
        say("ended", "-", str(time.time()))
    except* BaseException:
        traceback.print_exc()
        os._exit(1)
    os._exit(0)


async def _talk(url: str, prefix: str, seed: int, bell: int) -> None:
    store = ConversationHistoryStore(
        connect(url), prefix=prefix, pin_seconds=PIN_SECONDS, timeout_seconds=TIMEOUT_SECONDS
    )
    talker = Talker(store, random.Random(seed), bell)
    async with asyncio.TaskGroup() as group:
        for _ in range(TASKS):
            group.create_task(talker.talk())


def kill(children: list[tuple[int, int]], chance: random.Random) -> None:
    """Kill each a random moment after it has begun."""
    for child, reader in children:
        assert os.read(reader, 1), f"process {child} ended before it had begun"
        time.sleep(chance.uniform(0, MAX_LIFE_SECONDS))
        os.kill(child, signal.SIGKILL)
        assert os.waitpid(child, 0)[1] == signal.SIGKILL, f"process {child} ended before it was killed"
        os.close(reader)


def main(url: str, prefix: str, seed: int, at_once: int, kills: int) -> None:
    """Fork processes, and kill them or wait for their end."""
    chance = random.Random(seed)
    for first in range(0, kills, at_once):
        kill([fork(url, prefix, chance.getrandbits(32)) for _ in range(first, min(kills, first + at_once))], chance)
    if not kills:
        children = [fork(url, prefix, chance.getrandbits(32)) for _ in range(at_once)]
        statuses = [os.waitpid(child, 0)[1] for child, _ in children]
        assert statuses == [0] * at_once, statuses


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2], *map(int, sys.argv[3:]))
