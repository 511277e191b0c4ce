"""A process of a storm: `python stormer.py URL PREFIX SEED TASKS SECONDS`.

Its tasks continue and fork the same few trees as those of all other such processes, read them, and delete them, under
caps so tight that most of what they know is soon gone. They check every chain that they read. At the end one line of
JSON says how often what happened, and what should never have happened.
"""

import asyncio
import random
import sys
import time
from collections import Counter
from collections.abc import Awaitable, Callable, Iterable
from contextlib import suppress

import msgspec
from redis.asyncio import Redis

from store.errors import ChainTooLong, NotFound, ParentNotFound, StoreError, StoreFull
from store.history.caps import Caps
from store.history.history import ConversationHistoryStore
from store.keys import ID_PREFIX, shard_of
from store.redis.connection import connect
from store.turn import Chain
from tests.support.store.witness import beginning, objections, witness

PIN_SECONDS = 1.0
CAPS = Caps(responses=40, trees=10, bytes=200_000, idle_seconds=1.5 * PIN_SECONDS, idle_grace_seconds=0)
MAX_DEPTH = 12
SHARDS = 4
QUIET_SHARD = SHARDS - 1
"""Where there is less than the caps allow, so that a tree stays until it was unused for too long."""

STEADY, SHREDDER, IDLER = "steady", "shredder", "idler"
"""The tenants: one that deletes neither messages nor whole trees, one that does, and one that soon uses nothing."""

TIMEOUT_SECONDS = 30.0
"""A machine with few processors is slow in a storm and nothing else, so StoreUnavailable is a fault."""

RUN_SECONDS = 0.05
"""The longest that a run works between reading a chain and appending to it."""

FILLER_BYTES = {0: 12_000}
SMALL_FILLER_BYTES = 400
"""The most bytes that make turns differ in size: in one shard so many that the cap on bytes is the first to be met."""

CACHE_BYTES = 1 << 18
NEWEST = 40
"""Of the turns that any process appended, those from which all choose."""

SWEEP_SECONDS = 0.1
LOOK_SECONDS = 0.02
SHOWN = 10


class Report(msgspec.Struct):
    """What a process saw."""

    did: dict[str, int]
    refused: dict[str, int]
    wrong: list[str]


Deed = Callable[["Stormer", str], Awaitable[None]]


class Stormer:
    """The tasks of one process, and what they see."""

    def __init__(self, store: ConversationHistoryStore, board: Redis, prefix: str, chance: random.Random) -> None:
        """`board` is where the processes tell each other what they appended, beside what the store keeps."""
        self._store = store
        self._board = board
        self._prefix = prefix
        self._chance = chance
        self._continued: set[str] = set()
        self._erased: frozenset[str] = frozenset()
        self.report = Report(Counter(), Counter(), [])

    async def work(self, until: float) -> None:
        """One deed after the other. Only what is documented for it may be refused."""
        while time.monotonic() < until:
            (deed,) = self._chance.choices(tuple(DEEDS), [weight for weight, _ in DEEDS.values()])
            await self._carry_out(deed, DEEDS[deed][1])

    async def idle(self, until: float) -> None:
        """Begin a tree, and see that it is unknown once nobody has used it for so long, and not before."""
        while time.monotonic() < until:
            root = self._new_root(quiet=True)
            await self._store.append(IDLER, witness(IDLER, root))
            child = self._store.new_id(root)
            used = time.monotonic()
            await self._store.append(IDLER, witness(IDLER, child, root))
            with suppress(NotFound):
                while time.monotonic() < until:
                    await self._store.lineage(IDLER, child)
                    await asyncio.sleep(LOOK_SECONDS)
                return
            self._note("expired", [] if time.monotonic() - used >= CAPS.idle_seconds else [f"{child} went too early"])
            await self._store.sweep()

    async def sweep(self, until: float) -> None:
        """Take away what has expired, as a service does."""
        while time.monotonic() < until:
            await self._store.sweep()
            await asyncio.sleep(SWEEP_SECONDS)

    async def begin(self, tenant: str) -> None:
        await self._append(tenant, self._new_root(), None)

    async def go_on(self, tenant: str) -> None:
        """Read a chain, work, and append to it, as a run does; some die at that."""
        parent, started, erased = await self._any(tenant), time.monotonic(), self._erased
        chain = await self._store.chain(tenant, parent, pin=self._store.token())
        self._note("read", self._objections(tenant, chain, erased))
        await asyncio.sleep(self._chance.uniform(0, RUN_SECONDS))
        if self._chance.random() < 0.05:
            self._note("died")
            return
        child = self._store.new_id(parent)
        try:
            await self._append(tenant, child, parent, pin=chain.pin)
        except StoreError as error:
            held = time.monotonic() - started < PIN_SECONDS and tenant == STEADY
            self._note("unpinned", [f"{parent} went while pinned"] if held and isinstance(error, NotFound) else [])
            await self._store.unpin(tenant, parent, str(chain.pin))
            raise
        self._note("continued")
        grown = await self._store.chain(tenant, child)
        self._note("read back", [f"{child} has the chain {grown.ids}"] if grown.ids != (*chain.ids, child) else [])

    async def fork(self, tenant: str) -> None:
        parent = await self._any(tenant)
        child = self._store.new_id(parent)
        await self._append(tenant, child, parent)
        chain = await self._store.chain(tenant, child)
        self._note("read back", [f"{child} has the chain {chain.ids}"] if chain.ids[-2:] != (parent, child) else [])

    async def read(self, tenant: str) -> None:
        tip, erased = await self._any(tenant), self._erased
        chain = await self._store.chain(tenant, tip)
        self._note("read", self._objections(tenant, chain, erased))

    async def get(self, tenant: str) -> None:
        id = await self._any(tenant)
        response = await self._store.get(tenant, id)
        self._note("got", [] if response.startswith(beginning(tenant, id)) else [f"{id} answers {response!r}"])

    async def forget(self, tenant: str) -> None:
        await self._store.forget(tenant, await self._any(tenant))
        self._note(f"forgot {tenant}")

    async def erase(self, tenant: str) -> None:
        id = await self._any(SHREDDER)
        await self._store.forget(SHREDDER, id, erase=True)
        self._erased |= {id}
        self._note("erased")

    async def forget_tree(self, tenant: str) -> None:
        await self._store.forget_tree(SHREDDER, await self._any(SHREDDER))
        self._note("forgot a tree")

    async def _append(self, tenant: str, id: str, parent: str | None, *, pin: str | None = None) -> None:
        most = FILLER_BYTES.get(shard_of(id.removeprefix(ID_PREFIX)), SMALL_FILLER_BYTES)
        filler = self._chance.randbytes(self._chance.randrange(most))
        await self._store.append(tenant, witness(tenant, id, parent, filler=filler), pin=pin)
        self._note(f"appended {tenant}")
        if parent in self._continued:
            self._note("forked")
        self._continued |= {parent} if parent else set()
        await self._board.lpush(self._newest(tenant), id)
        await self._board.ltrim(self._newest(tenant), 0, NEWEST - 1)

    async def _any(self, tenant: str) -> str:
        """One of the newest turns. Raises NotFound while there is none."""
        if ids := await self._board.lrange(self._newest(tenant), 0, -1):
            return self._chance.choice(ids).decode()
        raise ParentNotFound("")

    def _newest(self, tenant: str) -> str:
        return f"{self._prefix}-newest-{tenant}"

    def _new_root(self, *, quiet: bool = False) -> str:
        while True:
            id = self._store.new_id()
            if (shard_of(id.removeprefix(ID_PREFIX)) == QUIET_SHARD) == quiet:
                return id

    def _objections(self, tenant: str, chain: Chain, erased: frozenset[str]) -> list[str]:
        return objections(tenant, chain, erased if tenant == SHREDDER else None)

    async def _carry_out(self, deed: Deed, documented: Iterable[type[StoreError]]) -> None:
        tenant = self._chance.choice((STEADY, SHREDDER))
        try:
            await deed(self, tenant)
        except StoreError as error:
            if isinstance(error, NotFound):
                await self._board.lrem(self._newest(tenant), 0, error.id)
            kind = type(error)
            self.report.refused[kind.__name__] += 1
            if kind not in documented:
                self._note("undocumented", [f"{deed.__name__} raised {error!r} from {error.__cause__!r}"])

    def _note(self, what: str, wrong: Iterable[str] = ()) -> None:
        self.report.did[what] += 1
        self.report.wrong += wrong


_NO_CHILD = (ParentNotFound, ChainTooLong)

DEEDS: dict[Deed, tuple[int, tuple[type[StoreError], ...]]] = {
    Stormer.begin: (9, (StoreFull,)),
    Stormer.go_on: (40, (*_NO_CHILD, StoreFull)),
    Stormer.fork: (15, (*_NO_CHILD, StoreFull)),
    Stormer.read: (15, (ParentNotFound,)),
    Stormer.get: (10, (NotFound, ParentNotFound)),
    Stormer.forget: (4, (NotFound, ParentNotFound)),
    Stormer.erase: (2, (NotFound, ParentNotFound)),
    Stormer.forget_tree: (1, (NotFound, ParentNotFound)),
}
"""What a task does, how often, and what the store may say to it."""


async def main(url: str, prefix: str, seed: int, tasks: int, seconds: int) -> None:
    """Storm for so long, then print a Report."""
    board = connect(url, max_connections=tasks)
    store = ConversationHistoryStore(
        connect(url, max_connections=tasks + 2),
        prefix=prefix,
        shards=SHARDS,
        timeout_seconds=TIMEOUT_SECONDS,
        pin_seconds=PIN_SECONDS,
        max_depth=MAX_DEPTH,
        caps=CAPS,
        cache_bytes=CACHE_BYTES * (seed % 2),
    )
    assert isinstance(board, Redis)
    stormer = Stormer(store, board, prefix, random.Random(seed))
    until = time.monotonic() + seconds
    async with asyncio.TaskGroup() as group:
        for work in (*[stormer.work] * tasks, stormer.idle, stormer.sweep):
            group.create_task(work(until))
    await store.close()
    await board.aclose()
    stormer.report.wrong[SHOWN:] = []
    print(msgspec.json.encode(stormer.report).decode())


if __name__ == "__main__":
    asyncio.run(main(sys.argv[1], sys.argv[2], *map(int, sys.argv[3:])))
