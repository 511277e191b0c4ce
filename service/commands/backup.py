"""`harmonium backup`: the conversations of the settings' Redis in a file, and what is in such a file.

store/backup/ reads and writes; this asks it, and shows how far it is. Never show what anybody said.
"""

import asyncio
import json
from collections.abc import AsyncGenerator, Callable
from contextlib import aclosing
from datetime import UTC, datetime
from pathlib import Path
from typing import TypeVar

from rich.console import Console
from rich.progress import (
    BarColumn,
    DownloadColumn,
    MofNCompleteColumn,
    ProgressColumn,
    TaskID,
    TextColumn,
    TimeElapsedColumn,
)
from rich.progress import Progress as Bar

from service.build import this_build
from service.commands.doctor import server_url
from service.settings.settings import Settings
from store.backup.backup import Backup, BackupScope, Written
from store.backup.records import End
from store.backup.restore import Checked, Done, check
from store.redis.connection import connect

EXIT_WHOLE = 0
EXIT_INCOMPLETE = 1
EXIT_FAILED = 2

S = TypeVar("S")
E = TypeVar("E")


def back_up(
    settings: Settings, path: Path, asked: BackupScope, *, resume: bool, turns_per_second: float, progress: Console
) -> End:
    """Back up the settings' Redis; a bar on `progress` where that is a terminal.

    Raises what Backup.run does, and OSError where an embedded server doesn't start.
    """

    async def run(url: str, hear: Callable[[Written], None]) -> End:
        backup = Backup(
            connect(url, timeout_seconds=settings.store_timeout_seconds),
            prefix=settings.key_prefix,
            shards=settings.shards,
            timeout_seconds=settings.store_timeout_seconds,
            turns_per_second=turns_per_second,
        )
        try:
            return await last_of(backup.run(path, asked, release=str(this_build()), resume=resume), End, hear)
        finally:
            await backup.close()

    with server_url(settings) as url, bar_on(progress, MofNCompleteColumn(), TextColumn("turns")) as bar:
        task = bar.add_task("backing up", total=None)
        return asyncio.run(
            run(url, lambda step: bar.update(task, completed=step.turns, total=max(step.turns, step.total)))
        )


def verify(path: Path, progress: Console) -> Checked:
    """Read a whole file without a store. Raises BadBackup, NewerFormat, OSError."""
    with path.open("rb") as file, bar_on(progress, DownloadColumn()) as bar:
        task = bar.add_task("checking", total=None)
        return asyncio.run(last_of(check(file), Checked, lambda step: show_done(bar, task, step)))


async def last_of(steps: AsyncGenerator[S | E], kind: type[E], hear: Callable[[S], None]) -> E:
    """The value that ends the steps, which is of a `kind` of its own; `hear` is told of the others."""
    async with aclosing(steps):
        async for step in steps:
            if isinstance(step, kind):
                return step
            hear(step)  # pyright: ignore[reportArgumentType]
    raise AssertionError(f"it ends with a {kind.__name__}")


def bar_on(console: Console, *columns: ProgressColumn) -> Bar:
    """A bar that is gone in the end; nothing where there is no terminal."""
    shown = (TextColumn("{task.description}"), BarColumn(), *columns, TimeElapsedColumn())
    return Bar(*shown, console=console, transient=True, disable=not console.is_terminal)


def show_done(bar: Bar, task: TaskID, step: Done) -> None:
    """How far in the file it is."""
    bar.update(task, description="checking" if step.checking else "restoring", completed=step.at, total=step.of)


def exit_status(end: End) -> int:
    """0 when all that there was is in the file, 1 when some of it could not be read."""
    return EXIT_INCOMPLETE if end.broken or end.unsettled else EXIT_WHOLE


def as_json(path: Path, found: Checked) -> str:
    """The contents of a file as one object."""
    return json.dumps(about(path, found), indent=2)


def about(path: Path, found: Checked) -> dict[str, object]:
    """The contents of a file, by name."""
    header, end = found.header, found.end
    return {
        "file": str(path),
        "format": header.format,
        "version": header.version,
        "release": header.release,
        "created": _moment(header.created),
        "finished": _moment(end.finished),
        "shards": header.shards,
        "tenant": header.tenant,
        "tree": header.tree,
        "secret": header.secret,
        "conversations": found.trees,
        "turns": found.turns,
        "deleted": found.deleted,
        "tenants": found.tenants,
        "bytes": found.bytes,
        "content": found.content,
        "digest": end.file,
        "unreadable": end.broken,
        "unsettled": end.unsettled,
    }


def sentences(path: Path, found: Checked) -> list[str]:
    """The contents of a file, for people."""
    header, end = found.header, found.end
    lines = [
        f"{path}: {found.turns:,} turns in {found.trees:,} conversations of {_many(found.tenants, 'tenant')}, "
        f"{found.bytes / 1e6:,.1f} MB",
        f"made {_moment(header.created)} by {header.release}, {_many(header.shards, 'shard')}, format {header.version}",
        f"content {found.content}",
    ]
    if header.tenant or header.tree:
        lines.append("of " + " and ".join(filter(None, [header.tenant and f"tenant {header.tenant}", header.tree])))
    if header.secret:
        lines.append("It has the store's secret: keep it as you keep the store")
    return [*lines, *complaints(end)]


def complaints(end: End) -> list[str]:
    """Lines on the turns that could not be read when the file was made."""
    lines: list[str] = []
    if end.broken:
        lines.append(f"{end.broken:,} turns could not be read, with all that continue them: see `harmonium fsck`")
    if end.unsettled:
        lines.append(f"{_many(end.unsettled, 'conversation')} changed all the time: the newest turns may not be in it")
    return lines


def _many(number: int, what: str) -> str:
    return f"{number:,} {what}" if number == 1 else f"{number:,} {what}s"


def _moment(micros: int) -> str:
    return datetime.fromtimestamp(micros / 1e6, UTC).isoformat(timespec="seconds")
