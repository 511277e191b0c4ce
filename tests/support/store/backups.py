"""Backups in tests: made, read and restored in one call each."""

from contextlib import aclosing
from pathlib import Path
from typing import Any

from store.backup.backup import Asked, Backup
from store.backup.records import End
from store.backup.restore import Checked, Restore, Restored, check
from store.redis.connection import connect

RELEASE = "1.2.3"


async def back_up(
    url: str,
    prefix: str,
    path: Path,
    asked: Asked | None = None,
    *,
    shards: int = 1,
    resume: bool = False,
    turns_per_second: float = 0.0,
) -> End:
    """Back up a store; what the file comes to."""
    backup = Backup(connect(url), prefix=prefix, shards=shards, timeout_seconds=30.0, turns_per_second=turns_per_second)
    try:
        async with aclosing(backup.run(path, asked or Asked(), release=RELEASE, resume=resume)) as steps:
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
