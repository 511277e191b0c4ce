"""Retrieving: what an archive has of a turn, for who finds nothing of it in Redis.

What is deleted may still be in the archive for a while. So whoever has read there asks Redis last whether a deletion is
noted, or was archived lately: a read that takes no longer than a fence never tells of what was deleted before it began.
"""

from collections.abc import Sequence
from typing import NamedTuple

from store.archive.archive import Archive
from store.backup.archiving.archiver import ERASED, FENCE_SECONDS, FORGOTTEN, TREE
from store.backup.archiving.keeping import Keeping
from store.backup.archiving.merging import Parts, path
from store.backup.records import Saved
from store.errors import ArchiveUnavailable
from store.keys import Keyspace, TurnKeys, digits_of, id_of
from store.redis.connection import Server

ELSEWHERE = 3
"""In how many trees a turn of an older release is looked for: two lead to the same place by accident alone."""


class Way(NamedTuple):
    """The turns from a root to one that was looked for, deleted ones included, and when the archive was asked, in ms by
    the clock of the server that has them.
    """

    turns: Sequence[Saved]
    asked_ms: int


class Retriever:
    """Finds turns in an archive. All raise StoreUnavailable, ArchiveUnavailable, ArchiveDamaged and NewerFormat, and
    ValueError for a malformed tenant.
    """

    def __init__(
        self, server: Server, keyspace: Keyspace, archive: Archive, *, fence_seconds: float = FENCE_SECONDS
    ) -> None:
        """`fence_seconds` is what the archivers have."""
        self._server, self._keyspace = server, keyspace
        self._keeping = Keeping(archive)
        self.fence_ms = round(fence_seconds * 1000)

    async def way(self, tenant: str, digits: str) -> Way | None:
        """The way to the turn with these digits; None where it isn't there, was deleted, or is in no tree that is
        whole.
        """
        keys = self._keyspace.keys(tenant, digits)
        async with self._server.operation() as operation:
            asked_ms = _ms(await operation.command("TIME", at=keys.shard.clock))
        turns = await self._found(tenant, digits)
        if turns is None or await self._is_gone(keys, digits_of(turns[0].id), asked_ms):
            return None
        return Way(turns, asked_ms)

    async def _found(self, tenant: str, digits: str) -> list[Saved] | None:
        parts: Parts = (await self._keeping.read(tenant, digits)).parts
        found = path(parts, id_of(digits))
        for root in parts[0].elsewhere[:ELSEWHERE] if parts and found is None else ():
            found = found or path((await self._keeping.read(tenant, digits_of(root))).parts, id_of(digits))
        return found

    async def _is_gone(self, keys: TurnKeys, root: str, asked_ms: int) -> bool:
        """Whether a turn, or its tree, was deleted, and the archive may not have known it when it was asked."""
        shard, tenant = keys.shard, keys.tenant
        noted, fences = shard.changes_of(tenant, root), shard.fences_of(tenant, keys.digits, root)
        members = (FORGOTTEN + keys.digits, ERASED + keys.digits, TREE + root)
        async with self._server.operation() as operation:
            now, fenced, *scores = await operation.row(
                ("TIME",), ("EXISTS", *fences), *(("ZSCORE", noted, member) for member in members), at=noted
            )
        if _ms(now) > asked_ms + self.fence_ms:
            raise ArchiveUnavailable(
                f"it took longer than {self.fence_ms / 1000:g} s, within which deletions are known"
            )
        return bool(fenced) or any(score is not None for score in scores)


def _ms(time: Sequence[bytes]) -> int:
    """What TIME says, in ms."""
    return int(time[0]) * 1000 + int(time[1]) // 1000
