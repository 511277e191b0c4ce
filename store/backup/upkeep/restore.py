"""Restore: the conversations of a backup, stored again under the ids that they had.

A file is read to its end first, so that nothing is restored of one that is not whole. Where the store has an archive,
all of it goes there, whatever memory holds: it comes back into memory when it is asked for. Deleted turns of the
archive stay deleted, and those of the file go from memory, as the shards fall behind the archive. A conversation only
moves on: one that the file has as it was later gets that into memory, too.

Else it goes into memory as far as there is room, those conversations first that were used last. A turn that is there
stays as it is. An interrupted restore is run again, and restores the rest.
"""

from collections.abc import AsyncGenerator
from contextlib import aclosing
from pathlib import Path
from time import monotonic

import msgspec

from store.archive.archive import Archive
from store.backup import ownership
from store.backup.archiving.marks import GONE, HOLD, Marks, mark_in
from store.backup.archiving.marks import key_of as mark_key
from store.backup.archiving.parts import folder_of
from store.backup.heads import Heads
from store.backup.reading import be_patient, pause
from store.backup.upkeep.backup_file import BackupHeader, BackupProgress, Contents, reading, turns_of
from store.backup.upkeep.carrying import Carrier, ErasedTenant, has_turn
from store.backup.upkeep.memory import Memory
from store.backup.upkeep.refilling import Refill, Refilled
from store.backup.upkeep.walking import TreeParts, listed_at, marks, trees_of
from store.errors import LayoutMismatch, NotFound
from store.files.files import FileGone, FileLimits, Files, FilesFull, archived_files
from store.history.history import ConversationHistoryStore
from store.keys import digits_of, id_of
from store.layout import Layout, Terms
from store.redis import scripts

MOST, MOST_HELD = 1 << 53, 1 << 30
"""The bounds of files that come back: none but in Redis, where conversations have no bound."""


class Restored(Refilled, kw_only=True):
    """The outcome of a restore of the part of a file that was `backup`.

    `removed` turns were in the store, and are deleted now, as the file says that they are.
    `files` were restored, and for `files_left` there was no room, or they have pieces that are missing.
    `secret` is `restored`, `kept` where the store has the same, `other` where it has another one, or `none` where the
    file has none. `archived` says that the turns are in the archive, and then no trees are counted.
    """

    backup: BackupHeader
    secret: str
    archived: bool
    removed: int
    files: int
    files_left: int
    seconds: float

    @property
    def whole(self) -> bool:
        return super().whole and not self.files_left


class Restore:
    """Restores into a store."""

    def __init__(
        self, history: ConversationHistoryStore, archive: Archive | None = None, *, turns_per_second: float = 0.0
    ) -> None:
        """A restore into a store, within its caps, or into its `archive`. `turns_per_second` is its pace; 0 is as fast
        as the server answers.
        """
        self._history, self._archive = history, archive
        self._server, self._keyspace = history.server, history.keyspace
        self._turns_per_second = turns_per_second
        self._removed = self._restored = self._left = 0

    async def run(
        self, path: Path, *, release: str, tenant: str | None = None, tree: str | None = None
    ) -> AsyncGenerator[BackupProgress | Restored]:
        """Restore a file by a `release`, or its part of a `tenant`, or its conversation with the response `tree`. The
        server has to answer at first; later it is waited for through a failover.

        Raises before anything is written BadBackup, NewerFormat, LayoutMismatch, also for a store with fewer shards
        than the file's, NotFound or ValueError where the file has nothing of it, OSError, ArchiveForeign,
        ArchiveUnnamed, ArchiveUnfit; at any time StoreUnavailable and ArchiveUnavailable, after which it can be run
        again.
        """
        began = monotonic()
        digits = None if tree is None else digits_of(tree)
        async with reading(path) as (file, size):
            contents = Contents(file, size, tenant, digits, named=self._archive is None)
            checked: BackupHeader | None = None
            async with aclosing(contents.check()) as steps:
                async for step in steps:
                    if isinstance(step, BackupHeader):
                        checked = step
                    else:
                        yield step
            assert checked is not None, "it ends with that, or raises"
            if digits is not None and not await has_turn(file, tenant, digits):
                raise NotFound(str(tree))
            if tenant is not None and not (checked.trees or [each async for each in archived_files(file, tenant)]):
                raise ValueError(f"it has nothing of tenant {tenant!r}")
            layout = Layout(self._server, self._keyspace, Terms(self._keyspace.shards, release))
            await layout.check()
            await ownership.check(self._server, self._keyspace, self._archive)
            if checked.shards > self._keyspace.shards:
                raise LayoutMismatch(
                    f"the backup has {checked.shards} shards, and HARMONIUM_SHARDS={self._keyspace.shards}",
                    f"set HARMONIUM_SHARDS to at least {checked.shards}; nothing was restored",
                )
            if self._archive is not None:
                await self._archive.probe()
            await layout.agree()
            be_patient(self._server)
            secret = await self._secret(contents.secret)
            done = Refilled()
            if self._archive is None:
                refill = Refill(self._history, file, turns_per_second=self._turns_per_second)
                async for done in refill.run(sorted(contents.trees, reverse=True)):
                    yield BackupProgress(done.looked, done.wanted, "restoring")
            else:
                at = 0
                await ownership.join(self._history, self._archive)
                if digits is None and secret in ("restored", "kept"):  # else they are another store's, or not asked for
                    await self._history.cut_time(checked.finished)
                    await self._mark(file, self._archive, tenant)
                async for some in self._carry(file, self._archive, trees_of(file, tenant, digits), done):
                    at += some
                    yield BackupProgress(min(at, size), size, "restoring")
            if digits is None:
                async for _ in self._files(file, tenant):
                    yield BackupProgress(size, size, "restoring files")
        yield Restored(
            backup=checked,
            secret=secret,
            archived=self._archive is not None,
            removed=self._removed,
            files=self._restored,
            files_left=self._left,
            seconds=round(monotonic() - began, 3),
            **msgspec.structs.asdict(done),
        )

    async def _carry(
        self, file: Archive, archive: Archive, found: AsyncGenerator[TreeParts], done: Refilled
    ) -> AsyncGenerator[int]:
        """Put trees into the archive, but for what the file knows as deleted. Yields the bytes of some."""
        ours, theirs = Marks(archive), Marks(file)

        async def erase(tenant: str) -> ErasedTenant:
            there = await ours.erased_until(tenant)
            return ErasedTenant(max(there, await theirs.erased_until(tenant)), there)

        began = monotonic()
        async for some, size in Carrier(file, archive).carry_all(found, erase):
            for carried in some:
                done.count(carried.tenant, carried.words)
                self._removed += carried.removed
            await pause(self._turns_per_second, sum(len(each.words) for each in some), began)
            began = monotonic()
            yield size
        heads = Heads(self._server, self._keyspace, archive)
        await heads.look_through_again()  # what the file knows as deleted goes from memory, too

    async def _files(self, file: Archive, tenant: str | None) -> AsyncGenerator[None]:
        """Store the files of a file that aren't there, a step for each, but for those from before their tenant was
        erased.
        """
        held = self._history.caps.bytes // 4 or MOST_HELD
        files = Files(self._history, self._archive, FileLimits(MOST, MOST, MOST, held))
        source = Files(self._history, file)
        marks = None if self._archive is None else Marks(self._archive)
        async for whose, record in archived_files(file, tenant):
            erased = marks is not None and record.created_at * 1e6 <= await marks.erased_until(whose)
            if not erased and await files.find(whose, record.id) is None:
                saved = msgspec.structs.replace(record, archived=True)
                try:
                    await files.store(whose, record, source.read(whose, saved))
                    self._restored += 1
                except (FilesFull, FileGone):
                    self._left += 1
            yield

    async def _mark(self, file: Archive, archive: Archive, tenant: str | None) -> None:
        """Take over the marks of a file, or those of a tenant."""
        ours = Marks(archive)
        for kind, note in ((GONE, ours.erase), (HOLD, ours.hold)):
            async for whose, value in marks(file, kind, tenant):
                at, erased = mark_in(mark_key(kind, whose), value).at, await ours.erased_until(whose)
                if kind == GONE and at > erased:
                    self._removed += await self._had(archive, whose, erased, at)
                await note(whose, at)

    async def _had(self, archive: Archive, tenant: str, after: int, until: int) -> int:
        """How many turns from between two times a tenant has in an archive, or in memory alone."""
        memory, had = Memory(self._server, self._keyspace), 0
        async for tree in trees_of(archive, tenant):
            async for turn in turns_of(archive, tree, faults=[]):
                had += not turn.deleted and after < turn.created <= until
        for number in range(self._keyspace.shards):
            async for _, root in memory.trees(number, tenant):
                tree = await listed_at(archive, folder_of(tenant, root))
                there = set[str]() if tree is None else {turn.id async for turn in turns_of(archive, tree, faults=[])}
                async for some in memory.turns(tenant, root):
                    new = [node for node in some if not node.deleted and id_of(node.digits) not in there]
                    had += sum(after < node.created <= until for node in new)
        return had

    async def _secret(self, saved: bytes | None) -> str:
        """Store the secret where there is none; the word for what became of it."""
        if saved is None:
            return "none"
        first = self._keyspace.all_shards()[0]
        if self._archive is not None and (there := await self._archive.get(ownership.SECRET_KEY)) is not None:
            return "kept" if there.value == saved else "other"
        before = await self._server.command("GET", first.secret)
        _, found = await self._server.run(scripts.secret, first, made=saved)
        if found != saved:
            return "other"
        return "restored" if before is None else "kept"
