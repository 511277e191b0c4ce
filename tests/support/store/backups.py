"""Backups in tests: made, read and restored in one call each."""

from contextlib import aclosing
from pathlib import Path
from typing import Any

from redis.asyncio import Redis

from store.backup.backup import Backup, BackupScope
from store.backup.records import End
from store.backup.restore import Checked, Restore, Restored, check
from store.history.history import ConversationHistoryStore
from store.redis.connection import connect
from store.turn import Status
from tests.support.store.audit import dump
from tests.support.store.sample import TENANT, grow, turn

RELEASE = "1.2.3"
OTHER = "other.tenant-2"


async def back_up(
    url: str,
    prefix: str,
    path: Path,
    asked: BackupScope | None = None,
    *,
    shards: int = 1,
    resume: bool = False,
    turns_per_second: float = 0.0,
) -> End:
    """Back up a store; what the file comes to."""
    backup = Backup(connect(url), prefix=prefix, shards=shards, timeout_seconds=30.0, turns_per_second=turns_per_second)
    try:
        async with aclosing(backup.run(path, asked or BackupScope(), release=RELEASE, resume=resume)) as steps:
            async for step in steps:
                if isinstance(step, End):
                    return step
    finally:
        await backup.close()
    raise AssertionError("a backup ends with what it came to")


async def bring_back(
    url: str, prefix: str, path: Path, *, shards: int = 1, only: dict[str, str] | None = None, **how: Any
) -> Restored:
    """Restore a file into a store; what became of it. `how` goes to Restore."""
    restore = Restore(connect(url), prefix=prefix, shards=shards, timeout_seconds=30.0, **how)
    try:
        async with aclosing(restore.run(path, **(only or {}))) as steps:
            async for step in steps:
                if isinstance(step, Restored):
                    return step
    finally:
        await restore.close()
    raise AssertionError("a restore ends with what became of the turns")


async def contents_of(path: Path) -> Checked:
    """What a whole file has."""
    with path.open("rb") as file:
        async for step in check(file):
            if isinstance(step, Checked):
                return step
    raise AssertionError("a check ends with what the file has")


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
    alone = await grow(store, "alone")
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
