"""Backup: the conversations of a store, one after the other, into a file.

Each conversation is in the file as it was at one moment while the backup ran, so no turn in it lacks its parent. Two
conversations may be of different moments, as they share nothing. The file has each turn that was there when the backup
began and was not deleted since. A backup that was cut short resumes after the last whole conversations in its file.

Nothing here writes to the store.
"""

from collections.abc import AsyncGenerator
from contextlib import aclosing
from pathlib import Path

import msgspec

from store import codec
from store.backup.reading import Piece, ShardReader, patient
from store.backup.records import VERSION, End, Header, Sums, Tree
from store.backup.target import Target
from store.errors import NotFound
from store.keys import SECRET_BYTES, Keyspace, checked_tenant, id_of, shard_of
from store.layout import Layout, Terms
from store.redis.connection import Client, Server


class BackupScope(msgspec.Struct, frozen=True):
    """The scope of a backup: all, one `tenant`, or one conversation: `tree` is the id of any response in it.

    `secret` asks for the store's secret, too.
    """

    tenant: str | None = None
    tree: str | None = None
    secret: bool = True


class Written(msgspec.Struct, frozen=True):
    """How far a backup is: turns and bytes in the file, of about `total` turns."""

    turns: int
    total: int
    bytes: int


class Backup:
    """Backs up a store."""

    def __init__(
        self,
        redis: Client,
        *,
        prefix: str = "harmonium",
        shards: int = 1,
        timeout_seconds: float = 2.0,
        attempts: int = 3,
        turns_per_second: float = 0.0,
    ) -> None:
        """A backup over `redis`, which it closes.

        The server has to answer within `timeout_seconds` at first; later it is waited for through a failover.
        `turns_per_second` is its pace; 0 is as fast as the server answers. Raises ValueError for a setting that can't
        work.
        """
        if turns_per_second < 0:
            raise ValueError(f"{turns_per_second=} must be positive, or 0 for no pace")
        self._keyspace = Keyspace(prefix, shards)
        self._server = patient(redis, timeout_seconds)
        first = Server(redis, timeout_seconds=timeout_seconds, attempts=attempts)
        first.wires = self._server.wires
        self._layout = Layout(first, prefix, Terms(shards))
        self._readers = [ShardReader(self._server, keys, turns_per_second) for keys in self._keyspace.all_shards()]

    async def run(
        self, path: Path, asked: BackupScope, *, release: str, resume: bool = False
    ) -> AsyncGenerator[Written | End]:
        """Write the file. Yields its progress, and last its totals.

        With `resume` it goes on with the file of an earlier call. Raises FileExistsError, BlockingIOError while another
        one writes the file, OSError, BadBackup where the file has another scope, NotFound for a tree that isn't
        there, ValueError for a malformed tenant, NewerFormat, LayoutMismatch where a release like this one can't
        read the store, or not with so few shards, StoreUnavailable.
        """
        record = await self._layout.check()
        trees = await self._found(asked) if asked.tree else None
        secret = await self._secret() if asked.secret else None
        header = await self._header(asked, release, secret is not None, record.layout if record else None)
        with Target(path) as target:
            if not (resume and target.go_on(header)):
                target.begin(header, secret)
            if trees is None:
                async for _ in self._all(target, asked.tenant):
                    yield Written(target.tally.turns, header.expected.turns, target.written)
            else:
                for shard, member in trees:
                    if member not in target.seen:
                        async with aclosing(self._readers[shard].some([member])) as pieces:
                            async for _ in _write(target, pieces):
                                yield Written(target.tally.turns, target.tally.turns, target.written)
            yield target.finish(
                finished=await self._now(),
                broken=sum(reader.broken for reader in self._readers),
                unsettled=sum(reader.unsettled for reader in self._readers),
            )

    async def close(self) -> None:
        """Close the connections."""
        await self._server.close()

    async def _all(self, target: Target, tenant: str | None) -> AsyncGenerator[None]:
        for shard, reader in enumerate(self._readers):
            if shard < target.shard:
                continue
            seen = target.seen if shard == target.shard else set[str]()
            async with aclosing(reader.all(tenant, seen)) as pieces:
                async for _ in _write(target, pieces):
                    yield

    async def _found(self, asked: BackupScope) -> list[tuple[int, str]]:
        """Shard and TENANT/ROOT of the conversation with a response. Raises NotFound."""
        id = str(asked.tree)
        digits = self._keyspace.digits(id)
        shard = shard_of(digits)
        tenants = [checked_tenant(asked.tenant)] if asked.tenant else await self._readers[shard].tenants()
        described = await self._readers[shard].describe([f"{tenant}/{digits}" for tenant in tenants])
        found = [f"{tenant}/{nodes[0].root}" for tenant, nodes in zip(tenants, described, strict=True) if nodes]
        if not found:
            raise NotFound(id)
        return [(shard, member) for member in found]

    async def _counted(self, counter: str, tenant: str | None) -> int:
        """A counter in all shards, of all tenants or of one."""
        found = 0
        for keys in self._keyspace.all_shards():
            async with self._server.operation() as operation:
                if tenant is None:
                    found += int(await operation.command("HGET", keys.usage, counter) or 0)
                else:
                    found += int(await operation.command("ZSCORE", f"{keys.usage}:{counter}", tenant) or 0)
        return found

    async def _secret(self) -> bytes | None:
        async with self._server.operation() as operation:
            found = await operation.command("GET", self._keyspace.all_shards()[0].secret)
        return found if found is not None and len(found) == SECRET_BYTES else None

    async def _header(self, asked: BackupScope, release: str, secret: bool, layout: int | None) -> Header:
        tenant = checked_tenant(asked.tenant) if asked.tenant else None
        trees, responses, tombstones = [
            await self._counted(counter, tenant) for counter in ("trees", "responses", "tombstones")
        ]
        return Header(
            version=VERSION,
            release=release,
            created=await self._now(),
            shards=self._keyspace.shards,
            messages=codec.MESSAGES_FORMAT,
            expected=Sums(trees, responses + tombstones),
            tenant=asked.tenant,
            tree=asked.tree,
            secret=secret,
            layout=layout,
        )

    async def _now(self) -> int:
        """The time of the first shard's server, in µs."""
        async with self._server.operation() as operation:
            seconds, micros = await operation.command("TIME", at=self._keyspace.all_shards()[0].clock)
        return int(seconds) * 1_000_000 + int(micros)


async def _write(target: Target, pieces: AsyncGenerator[Piece]) -> AsyncGenerator[None]:
    """Write what is read, conversation by conversation; a step for each of their pieces."""
    member = ""
    async for piece in pieces:
        if piece.member != member:
            if member:
                target.close_tree()
            member = piece.member
            tenant, _, root = member.partition("/")
            target.tree(Tree(tenant, id_of(root), piece.used))
        for turn in piece.turns:
            target.turn(turn)
        yield
    if member:
        target.close_tree()
