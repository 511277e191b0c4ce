"""Backups in tests: made, read and restored in one call each."""

from collections.abc import AsyncGenerator
from contextlib import aclosing, asynccontextmanager
from pathlib import Path
from typing import Any, NamedTuple

from redis.asyncio import Redis

from store.archive.archive import Archive
from store.backup.upkeep.backup import Backup, BackupScope
from store.backup.upkeep.backup_file import BackupHeader, Contents, reading
from store.backup.upkeep.restore import Restore, Restored
from store.history.caps import Caps
from store.history.history import ConversationHistoryStore
from store.redis.connection import connect
from store.turn import Status
from tests.support.store.audit import dump
from tests.support.store.sample import TENANT, grow, turn, with_words

RELEASE = "1.2.3"
OTHER = "other.tenant-2"


@asynccontextmanager
async def _opened(
    url: str, prefix: str, archive: Archive | None, shards: int, caps: Caps | None = None
) -> AsyncGenerator[ConversationHistoryStore]:
    """A store, which is closed then with the archive."""
    store = ConversationHistoryStore(connect(url), prefix=prefix, shards=shards, caps=caps, timeout_seconds=30.0)
    try:
        yield store
    finally:
        await store.close()
        if archive is not None:
            await archive.close()


async def back_up(
    url: str,
    prefix: str,
    path: Path,
    asked: BackupScope | None = None,
    *,
    archive: Archive | None = None,
    shards: int = 1,
    resume: bool = False,
    turns_per_second: float = 0.0,
) -> BackupHeader:
    """Back up a store and its archive, which is closed; what the file comes to."""
    async with _opened(url, prefix, archive, shards) as store:
        backup = Backup(store, archive, turns_per_second=turns_per_second)
        async with aclosing(backup.run(path, asked or BackupScope(), release=RELEASE, resume=resume)) as steps:
            return [step async for step in steps if isinstance(step, BackupHeader)].pop()


async def bring_back(
    url: str,
    prefix: str,
    path: Path,
    *,
    archive: Archive | None = None,
    shards: int = 1,
    only: dict[str, str] | None = None,
    caps: Caps | None = None,
    turns_per_second: float = 0.0,
) -> Restored:
    """Restore a file into a store, or into its archive, which is closed; what became of it."""
    async with _opened(url, prefix, archive, shards, caps) as store:
        restore = Restore(store, archive, turns_per_second=turns_per_second)
        async with aclosing(restore.run(path, release=RELEASE, **(only or {}))) as steps:
            return [step async for step in steps if isinstance(step, Restored)].pop()


class Moves(NamedTuple):
    """A store that is saved in a file and restored to a second one, of the same server."""

    url: str
    prefix: str
    file: Path

    async def save(self, asked: BackupScope | None = None, beside: str = "", **how: Any) -> BackupHeader:
        """Save the first one, or with `beside` in a file of that suffix."""
        return await back_up(self.url, self.prefix, self._path(beside), asked, **how)

    async def restore(self, beside: str = "", **how: Any) -> Restored:
        """Restore to the second one."""
        return await bring_back(self.url, f"{self.prefix}-2", self._path(beside), **how)

    async def save_second(self, **how: Any) -> BackupHeader:
        """Save that."""
        return await back_up(self.url, f"{self.prefix}-2", self._path(".second"), **how)

    def _path(self, beside: str) -> Path:
        return self.file.with_suffix(beside or self.file.suffix)


async def contents_of(path: Path) -> BackupHeader:
    """What a whole file has."""
    async with reading(path) as (file, size):
        return [step async for step in Contents(file, size).check() if isinstance(step, BackupHeader)].pop()


def cut(path: Path, size: int) -> None:
    """Take the last bytes of a file away."""
    path.write_bytes(path.read_bytes()[:-size])


def mode(path: Path) -> int:
    """Who may do what with a file."""
    return path.stat().st_mode & 0o777


async def mixed(store: ConversationHistoryStore) -> dict[str, str]:
    """Conversations with forks, tombstones and erased turns of two tenants; some of their ids by name."""
    first = await grow(store, "a", "b", "c", "d")
    fork = await grow(store, "e", "f", parent=first[1])
    await store.forget(TENANT, first[1])
    await store.forget(TENANT, first[2], erase=True)
    alone = [store.new_id()]
    await store.append(TENANT, with_words(turn(alone[0], text="alone"), b"alone".ljust(16)))
    failed = store.new_id(alone[0])
    await store.append(TENANT, turn(failed, alone[0], text="failed", status=Status.FAILED))
    erased = await grow(store, "root", "kept")
    await store.forget(TENANT, erased[0], erase=True)
    foreign = store.new_id()
    await store.append(OTHER, turn(foreign, text="of somebody else"))
    names = {"root": first[0], "tombstone": first[1], "erased": first[2], "tip": first[3], "fork": fork[1]}
    return {**names, "alone": alone[0], "failed": failed, "kept": erased[1], "foreign": foreign}


async def nodes(redis: Redis, prefix: str) -> dict[str, dict[bytes, bytes]]:
    """The fields of every node, without what two servers may see otherwise."""
    found = {key.removeprefix(prefix): value for key, value in (await dump(redis, prefix)).items() if ":node:" in key}
    passing = (b"held", b"chain_held", b"deleted")
    return {
        key: {name: value for name, value in node.items() if name not in passing} | {b"gone": b"deleted" in node}
        for key, node in found.items()
    }
