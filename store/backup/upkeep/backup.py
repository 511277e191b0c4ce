"""Backup: the conversations of a store and of its archive, in one file that is an archive itself (backup_file.py).

Memory is read first, then its notes of what was deleted, then the archive. So a tree that leaves memory meanwhile is
met in the archive, and nothing that was deleted before comes back. Each conversation in memory is read until nobody
used it meanwhile; two may be of different moments, as they share nothing. The file has each turn that was there when
the backup began and was not deleted since.

Nothing here writes to the store, or to its archive.
"""

import asyncio
from collections import Counter
from collections.abc import AsyncGenerator
from contextlib import aclosing
from pathlib import Path
from time import monotonic

import msgspec

from store.archive.archive import Archive
from store.backup import ownership
from store.backup.archiving.archiver import gone_in
from store.backup.archiving.keeping import Keeping
from store.backup.archiving.marks import GONE, HOLD
from store.backup.archiving.marks import key_of as mark_key
from store.backup.archiving.merging import News
from store.backup.archiving.parts import Index
from store.backup.reading import PAYLOAD_BYTES, Node, ShardReader, be_patient, pause, portions, scan
from store.backup.upkeep.backup_file import BackupHeader, BackupProgress, BackupTarget, put
from store.backup.upkeep.carrying import Carrier, ErasedTenant, batches, has_turn, side_by_side
from store.backup.upkeep.walking import marks, trees_of
from store.errors import NotFound, StoreError
from store.files.files import RECORD, FileGone, Files
from store.files.files import folder_of as files_folder
from store.history.history import ConversationHistoryStore
from store.ids import tree_of
from store.keys import SECRET_BYTES, ShardKeys, checked_tenant, id_of, shard_of
from store.layout import Layout, Terms

NOTED = 500
"""How many trees with changes that the archive lacks one call names."""


class BackupScope(msgspec.Struct, frozen=True):
    """The scope of a backup: all, one `tenant`, or one conversation: `tree` is the id of any response in it.

    `secret` asks for the store's secret, too.
    """

    tenant: str | None = None
    tree: str | None = None
    secret: bool = True


class Backup:
    """Backs up a store."""

    def __init__(
        self, history: ConversationHistoryStore, archive: Archive | None = None, *, turns_per_second: float = 0.0
    ) -> None:
        """A backup of a store and its `archive`. `turns_per_second` is its pace; 0 is as fast as the server answers."""
        self._history, self._archive = history, archive
        self._keyspace, self._server = history.keyspace, history.server
        self._turns_per_second = turns_per_second
        self._readers = [ShardReader(self._server, keys, whole=True) for keys in self._keyspace.all_shards()]
        self._turns = self._unreadable = 0
        self._reading = asyncio.Lock()
        """Held by who has payloads in memory."""

    async def run(
        self, path: Path, asked: BackupScope, *, release: str, resume: bool = False
    ) -> AsyncGenerator[BackupProgress | BackupHeader]:
        """Write the file. Yields its progress, and last its totals. The server has to answer at first; later it is
        waited for through a failover.

        With `resume` it goes on with the file of an earlier call, where there is an archive. Raises FileExistsError,
        BlockingIOError while another one writes the file, OSError, BadBackup where the file has another scope, NotFound
        for a tree that isn't there, ValueError for a malformed tenant, NewerFormat, LayoutMismatch where a release like
        this one can't read the store, or not with so few shards, ArchiveForeign and ArchiveUnnamed where its archive is
        another one, StoreUnavailable, ArchiveUnavailable.
        """
        record = await Layout(self._server, self._keyspace, Terms(self._keyspace.shards)).check()
        await ownership.check(self._server, self._keyspace, self._archive)
        be_patient(self._server)
        tenant = checked_tenant(asked.tenant) if asked.tenant else None
        digits = self._keyspace.digits(asked.tree) if asked.tree else None
        secret = await self._secret() if asked.secret else None
        header = BackupHeader(
            release=release,
            created=round(await self._history.now() * 1e6),
            shards=self._keyspace.shards,
            tenant=tenant,
            tree=asked.tree,
            secret=secret is not None,
            layout=record.layout if record else None,
        )
        total = await self._count(tenant)
        target = BackupTarget(path)
        # without an archive nobody remembers what was deleted since, so memory is read anew
        async with target.opening(header, resume=resume and self._archive is not None) as file:
            if secret is not None:
                await put(file, ownership.SECRET_KEY, secret)
            async for _ in self._all_of_it(file, tenant, digits):
                yield BackupProgress(self._turns, max(total, self._turns), "saving turns")
            if digits is not None and not await has_turn(file, tenant, digits):
                raise NotFound(str(asked.tree))
            broken = sum(reader.broken for reader in self._readers) + self._unreadable
            unsettled = sum(reader.unsettled for reader in self._readers)
            finished = round(await self._history.now() * 1e6)
            async with aclosing(target.finish(finished=finished, broken=broken, unsettled=unsettled)) as steps:
                async for step in steps:
                    yield step

    async def _all_of_it(self, file: Archive, tenant: str | None, digits: str | None) -> AsyncGenerator[None]:
        """Write what was asked for to the file, a step for each piece or tree."""
        keeping = Keeping(file)
        for number, reader in enumerate(self._readers):
            if digits is None or number == shard_of(digits):
                members = reader.members(tenant) if digits is None else self._with(reader, tenant, digits)
                async for some in batches(members):
                    began, before = monotonic(), self._turns
                    await side_by_side(self._save(keeping, reader, member) for member in some)
                    yield
                    await pause(self._turns_per_second, self._turns - before, began)
        if digits is None:
            async for _ in self._files(file, tenant):
                yield
        if self._archive is None:
            return
        for number, keys in enumerate(self._keyspace.all_shards()):
            if digits is None or number == shard_of(digits):
                async for tree, news in self._deletions(keys):
                    if (tenant is None or tree.startswith(f"{tenant}/")) and _is_asked(tree, digits):
                        await _change(keeping, tree, news)

        async def erase(tenant: str) -> ErasedTenant:
            return ErasedTenant()  # the marks are in the file, too

        carrier = Carrier(self._archive, file)
        async for some, _ in carrier.carry_all(trees_of(self._archive, tenant, digits), erase):
            for done in some:
                words = Counter(done.words.values())
                self._turns += words[b"ok"]
                self._unreadable += done.unreadable + words[b"conflict"]
            yield
        for kind in (GONE, HOLD):
            async for whose, value in marks(self._archive, kind, tenant):
                await put(file, mark_key(kind, whose), value)

    async def _files(self, file: Archive, tenant: str | None) -> AsyncGenerator[None]:
        """Write files to the file, a step for each. One that is deleted meanwhile, or lacks a piece, has no record in
        it.
        """
        files, faults = Files(self._history, self._archive), list[StoreError]()
        async for whose, record in files.all(tenant, faults):
            try:
                number = 0
                async for piece in files.read(whose, record):
                    await put(file, f"{files_folder(whose, record.id)}{number}", piece)
                    number += 1
                await put(file, f"{files_folder(whose, record.id)}{RECORD}", msgspec.msgpack.encode(record))
            except FileGone:
                self._unreadable += await files.find(whose, record.id) is not None
            yield
        self._unreadable += len(faults)

    async def _with(self, reader: ShardReader, tenant: str | None, digits: str) -> AsyncGenerator[str]:
        """The conversation in memory that has a turn, which one of all tenants may have."""
        tenants = [tenant] if tenant else list({each.partition("/")[0]: 0 async for each in reader.members()})
        described = await reader.describe([f"{each}/{digits}" for each in tenants])
        for each, nodes in zip(tenants, described, strict=True):
            if nodes:
                yield f"{each}/{nodes[0].root}"

    async def _save(self, keeping: Keeping, reader: ShardReader, member: str) -> None:
        """Write a conversation in memory to the file."""
        nodes, lost = list[Node](), set[str]()
        async for path in reader.paths(member):
            nodes += path
            if sum(node.payload for node in nodes) >= PAYLOAD_BYTES:
                await self._put(keeping, reader, member, nodes, lost)
                nodes = []
        await self._put(keeping, reader, member, nodes, lost)

    async def _put(self, keeping: Keeping, reader: ShardReader, member: str, nodes: list[Node], lost: set[str]) -> None:
        continued = {id_of(node.parent) for node in nodes if node.parent is not None}
        for some in portions(nodes, lambda node: node.payload, PAYLOAD_BYTES):
            async with self._reading:
                read = [turn async for _, turn in reader.turns(member.partition("/")[0], some, lost)]
                turns = [turn for turn in read if turn is not None]
                if turns:
                    await _change(keeping, member, News(turns, continued=continued))
                    self._turns += len(turns)

    async def _deletions(self, shard: ShardKeys) -> AsyncGenerator[tuple[str, News]]:
        """The deletions that the archive has not been told of yet, by TENANT/ROOT."""
        async for found in scan(self._server, "ZSCAN", shard.unarchived, count=NOTED):
            for member in found[::2]:
                tree = member.decode()
                changes = await self._server.command("ZRANGE", shard.changes_of(*tree.split("/")), 0, -1)
                news = News((), *gone_in([each.decode() for each in changes]))
                if news.takes_away:
                    yield tree, news

    async def _count(self, tenant: str | None) -> int:
        """How many turns are in memory, of all tenants or of one."""
        found = 0
        for keys in self._keyspace.all_shards():
            for counter in ("responses", "tombstones"):
                asked = (
                    ("HGET", keys.usage, counter) if tenant is None else ("ZSCORE", f"{keys.usage}:{counter}", tenant)
                )
                found += int(await self._server.command(*asked) or 0)
        return found

    async def _secret(self) -> bytes | None:
        """The secret of the store, or of its archive where the store has lost it."""
        found = await self._server.command("GET", self._keyspace.all_shards()[0].secret)
        if found is None and self._archive is not None:
            stored = await self._archive.get(ownership.SECRET_KEY)
            found = stored and stored.value
        return found if found is not None and len(found) == SECRET_BYTES else None


async def _change(keeping: Keeping, tree: str, news: News) -> None:
    tenant, _, root = tree.partition("/")

    async def same_news(index: Index) -> News:
        return news

    await keeping.change(tenant, root, same_news)


def _is_asked(tree: str, digits: str | None) -> bool:
    return digits is None or tree_of(tree.partition("/")[2]) == tree_of(digits)
