"""The archive of a store: its proof, its archiver, and the reads of turns that have left memory.

One archive has the turns of one store, which has no other (store/backup/ownership.py): a process that names another
archive is refused. All processes that share a store share its archive. One of them at a time archives a shard: a lease
says which, to spare the others work. Two that archive at once do no harm.
"""

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from contextlib import suppress
from typing import NamedTuple

from store.archive.archive import Archive
from store.backup.archiving.archiver import AFTER_SECONDS, Archiver, Due
from store.backup.archiving.reading_through import CONCURRENCY, ArchivedTurns
from store.backup.archiving.retrieving import Retriever
from store.backup.archiving.returning import Returner
from store.backup.archiving.shards import begin_archive, begin_archive_in, note_older, tell_away
from store.backup.deletions import Deletions
from store.backup.ownership import Joined, join, keep
from store.errors import (
    ArchiveContended,
    ArchiveDamaged,
    ArchiveForeign,
    ArchiveUnavailable,
    NewerFormat,
    StoreUnavailable,
)
from store.history.history import ConversationHistoryStore
from store.keys import ShardKeys, id_of
from store.layout import shared_secret

TREES = 64
"""How many trees that are due are looked for at once."""

AT_ONCE = 16
"""How many trees of a shard are archived side by side."""

BATCHES = 50
"""After how many such looks another shard has its turn."""

NEARLY_FULL = 0.9
"""From which part of a cap on there is little room."""

MOST_LACKED = 0.25
"""The share of such a shard's trees that the archive may lack: with more, all are archived before they are due. A
full shard is nothing special, as memory is there to be used; a shard that can evict little refuses turns soon.
"""

LEASE_SECONDS = 5.0
"""For how long one process archives a shard after it has said so."""

LATER_SECONDS = 600.0
"""After how long a tree is tried again that can't be archived as it is."""

REASON = 200
"""How many characters of the reason for that are kept."""

AWAY_SECONDS = 30.0
"""How long the shards know that the archive was away, where that lets them evict trees that it lacks."""


Reconcile = Callable[[int], Awaitable[bool]]


class Waiting(NamedTuple):
    """The backlog of a shard: how many trees the archive lacks, and for how many seconds the first one has been due."""

    trees: int = 0
    seconds: float = 0.0


class StoreArchive:
    """An archive for a store. All raise StoreUnavailable and ArchiveUnavailable."""

    def __init__(
        self,
        history: ConversationHistoryStore,
        archive: Archive,
        *,
        reconcile: Reconcile,
        after_seconds: float = AFTER_SECONDS,
        evicts: bool = False,
        concurrency: int = CONCURRENCY,
        lease_seconds: float = LEASE_SECONDS,
        later_seconds: float = LATER_SECONDS,
    ) -> None:
        """In a shard that went back in time, `reconcile` deletes again all that was deleted since, and returns whether
        none is left. Trees are archived `after_seconds`. With `evicts` the store may evict trees that the archive lacks
        while the archive is away. `concurrency` is how many turns are looked for at once. The history asks it from now
        on.
        """
        self.archive = archive
        self.history, self._server, self._keyspace = history, history.server, history.keyspace
        self._after_seconds, self._evicts = after_seconds, evicts
        self._lease_ms, self._later_seconds = round(lease_seconds * 1000), later_seconds
        self._reconcile, self._deletions = reconcile, Deletions(self._server, self._keyspace, archive)
        self._archiver = Archiver(
            self._server, self._keyspace, archive, after_seconds=after_seconds, deletions=self._deletions
        )
        retriever = Retriever(
            *(self._server, self._keyspace, archive),
            max_depth=history.max_depth,
            max_chain_bytes=history.max_chain_bytes,
        )
        returner = Returner(history, retriever, after_seconds=after_seconds)
        self.turns = ArchivedTurns(
            *(retriever, returner, history.server.watcher),
            ready=self.open,
            made=history.ids.made,
            concurrency=concurrency,
        )
        history.elsewhere = self.turns
        self._owner = history.token()
        self._leads = False
        self._opening: asyncio.Task[None] | None = None
        self._joined: Joined | None = None
        self._is_open = False
        self.warnings: Sequence[str] = ()
        """Warnings for the operator about the archive, once it is open."""

    async def open(self) -> None:
        """Prove that the archive keeps its promises and is the store's, and repeat the deletions in shards that went
        back in time. A later call costs nothing; a call meanwhile waits for the same proof, and fails with it.

        Raises ArchiveUnfit, ArchiveForeign.
        """
        if self._is_open:
            return
        if self._opening is None:
            self._opening = asyncio.create_task(self._open())
            self._opening.add_done_callback(self._opened)
        await asyncio.shield(self._opening)

    async def _open(self) -> None:
        self.warnings = await self.archive.probe()
        joined = await join(self.history, self.archive)
        for number in range(self._keyspace.shards):
            await self._catch_up(number)
        self._joined, self._is_open = joined, True

    def _opened(self, task: asyncio.Task[None]) -> None:
        self._opening = None
        if not task.cancelled():
            task.exception()  # nobody may be left who waits for it

    async def secret(self) -> bytes:
        """The store's secret. A store that has one doesn't wait for the archive. Without one this raises as `open`, and
        ArchiveUnavailable where the archive is away, as the secret may be there.
        """
        if self._joined is None:
            async with self._server.operation() as operation:
                there = await operation.command("GET", self._keyspace.all_shards()[0].secret)
            if there is not None:
                return await shared_secret(self.history)
            await self.open()
        assert self._joined is not None
        return self._joined.secret

    async def _keep(self) -> None:
        """Read and archive nothing more where the store has another archive by now. Raises ArchiveReplaced."""
        assert self._joined is not None
        try:
            await keep(self._server, self._keyspace, self._joined.id)
        except ArchiveForeign:
            self._is_open = False
            raise

    async def note(self) -> bool:
        """Have the shards note their changes, and the next of their older trees. Returns whether more of these are
        left.
        """
        await begin_archive(self._server, self._keyspace, self._after_seconds)
        return await note_older(self._server, self._keyspace)

    async def archive_due(self) -> Waiting:
        """Archive the due trees of the shards that nobody else archives. Returns the backlog of these shards.

        Raises ArchiveUnfit, ArchiveForeign. Where the archive is away, the shards hear of it if they may evict then.
        """
        try:
            await self.open()
            await self._keep()
            left = [await self._archive_shard(number) for number in range(self._keyspace.shards)]
        except ArchiveUnavailable:
            if self._evicts:
                await tell_away(self._server, self._keyspace, AWAY_SECONDS)
            raise
        return Waiting(sum(each.trees for each in left), max(each.seconds for each in left))

    async def _archive_shard(self, number: int) -> Waiting:
        shard = self._keyspace.all_shards()[number]
        for _ in range(BATCHES):
            if not await self._holds(number):
                return Waiting()
            if not await self._catch_up(number):
                break
            due = await self._archiver.due(shard, TREES)
            if not due and await self._is_crowded(shard):
                due = await self._archiver.due(shard, TREES, early=True)
            if not due:
                break
            places = asyncio.Semaphore(AT_ONCE)
            done = await asyncio.gather(*(self._archive(tree, places) for tree in due), return_exceptions=True)
            self._server.watcher.archived(sum(1 for each in done if each is True))
            for each in done:
                if isinstance(each, BaseException):
                    raise each
        return await self._waiting(shard)

    async def _archive(self, tree: Due, places: asyncio.Semaphore) -> bool:
        """Archive all changes of a tree. Returns whether that could be done."""
        async with places:
            try:
                left = await self._archiver.archive(tree)
                while left and (fewer := await self._archiver.archive(tree)) < left:
                    left = fewer
            except (ArchiveContended, ArchiveDamaged, NewerFormat, ValueError) as error:  # ValueError: it is too large
                self._server.watcher.not_archived(id_of(tree.root), str(error))
                await self._put_off(tree, str(error))
                return False
        return True

    async def _put_off(self, tree: Due, reason: str) -> None:
        shard = self._keyspace.keys(tree.tenant, tree.root).shard
        async with self._server.operation() as operation:
            at = await _now_ms(operation.command, shard) + round(self._later_seconds * 1000)
            await operation.command("ZADD", shard.unarchived, "XX", at, f"{tree.tenant}/{tree.root}")
            await operation.command("HSET", shard.archive_failed, f"{tree.tenant}/{tree.root}", reason[:REASON])

    async def _catch_up(self, number: int) -> bool:
        """Whether a shard has none of the deleted turns, as far as the archive was told of them."""
        if await self._deletions.is_behind(number):
            if not await self._reconcile(number):
                return False
            await self._deletions.catch_up(number)
        return True

    async def _holds(self, number: int) -> bool:
        """Whether this process archives a shard, for a while from now."""
        shard = self._keyspace.all_shards()[number]
        async with self._server.operation() as operation:
            new = await operation.command("SET", shard.archiver, self._owner, "NX", "PX", self._lease_ms)
            if not new and await operation.command("GET", shard.archiver) != self._owner.encode():
                return False
            await operation.command("PEXPIRE", shard.archiver, self._lease_ms)
        self._leads = True
        if new:  # the server may have lost what it knew
            await begin_archive_in(self._server, shard, self._after_seconds)
            await self._deletions.read(number)  # the archiver before has counted, too
        return True

    async def _is_crowded(self, shard: ShardKeys) -> bool:
        """Whether a shard is nearly full, and too little of it may leave memory."""
        caps = self.history.caps
        async with self._server.operation() as operation:
            stored = await operation.command("HMGET", shard.usage, "responses", "trees", "bytes")
            lacked = await operation.command("ZCARD", shard.unarchived)
        responses, trees, size = (int(each or 0) for each in stored)
        limits = ((responses, caps.responses), (trees, caps.trees), (size, caps.bytes))
        nearly_full = any(most and number >= NEARLY_FULL * most for number, most in limits)
        return nearly_full and lacked > MOST_LACKED * trees

    async def _waiting(self, shard: ShardKeys) -> Waiting:
        async with self._server.operation() as operation:
            now = await _now_ms(operation.command, shard)
            trees = await operation.command("ZCARD", shard.unarchived)
            first = await operation.command("ZRANGE", shard.unarchived, 0, 0, "WITHSCORES")
        due = float(first[1]) if first else now
        return Waiting(int(trees), max(0.0, now - due) / 1000 if due > 0 else 0.0)  # below 0 it isn't late, but needed

    async def close(self) -> None:
        """Let others archive, and give back all that is held, once nobody asks any more."""
        if self._opening is not None:
            self._opening.cancel()
        with suppress(StoreUnavailable):  # they may in LEASE_SECONDS
            for shard in self._keyspace.all_shards() if self._leads else ():
                async with self._server.operation() as operation:
                    if await operation.command("GET", shard.archiver) == self._owner.encode():
                        await operation.command("DEL", shard.archiver)
        await self.archive.close()


async def _now_ms(command: Callable[..., Awaitable[list[bytes]]], shard: ShardKeys) -> int:
    """The server's clock."""
    seconds, micros = await command("TIME", at=shard.clock)
    return int(seconds) * 1000 + int(micros) // 1000
