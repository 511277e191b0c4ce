"""`harmonium backup` and `restore`: the conversations of the settings' Redis and archive in a file, what is in such a
file, and the way back.

store/backup/ reads and writes; this asks it, shows how far it is, and what became of each turn. Never show what anybody
said.
"""

import asyncio
from collections.abc import AsyncGenerator, Callable
from contextlib import aclosing
from datetime import UTC, datetime
from pathlib import Path
from typing import Annotated, Any, TypeVar

import msgspec
import typer
from rich.console import Console
from rich.filesize import decimal
from rich.progress import BarColumn, MofNCompleteColumn, TextColumn, TimeElapsedColumn
from rich.progress import Progress as Bar

from service.build import this_build
from service.commands.arguments import EXIT_UNREACHABLE, argument, flag, many
from service.commands.options import (
    EXIT_FAILED,
    EXIT_UNABLE,
    AsJson,
    Pace,
    ProjectOption,
    TreeOption,
    asking,
    fail,
    is_away,
    show,
    with_store,
)
from service.features.archive.opening import on_both
from service.settings.core import CoreSettings
from store.archive.archive import Archive
from store.backup.upkeep.backup import Backup, BackupScope
from store.backup.upkeep.backup_file import BackupHeader, BackupProgress, Contents, reading
from store.backup.upkeep.refilling import Refilled
from store.backup.upkeep.restore import Restore, Restored
from store.errors import ArchiveUnavailable, BadBackup, StoreUnavailable
from store.history.history import ConversationHistoryStore

SHOWN = 20
"""The most conflicts that are shown as lines; JSON has more."""

SECRETS = {
    "restored": "The store now has the backup's secret",
    "other": "The store keeps its own secret: content that the backup's secret sealed for clients can't be opened",
}

WHERE_RESTORED = (
    "They are in the archive: `harmonium ls` lists them, and each returns to memory when a request names its id",
    "`harmonium archive restore --into-memory` restores the newest ones now, while there is room",
)

E = TypeVar("E")


@with_store
def backup(
    settings: CoreSettings,
    file: Annotated[Path, argument("FILE", "The file to write; with --verify, to read.")],
    project: ProjectOption = None,
    tree: TreeOption = None,
    secret: Annotated[
        bool | None,
        typer.Option(
            "--secret/--no-secret",
            metavar="",
            help="Include the store's secret, which opens sealed texts that clients keep. Default: only in a whole "
            "backup.",
            show_default=False,
        ),
    ] = None,
    resume: Annotated[bool, flag("--resume", "Continue an interrupted backup.")] = False,
    verify: Annotated[bool, flag("--verify", "Check the file instead, without a store.")] = False,
    turns_per_second: Pace = 0,
    as_json: AsJson = False,
) -> int:
    """Write all conversations, in memory and in the archive, to one file, while the service runs.

    The file is an archive with a digest over its whole content. It contains the words of users and models, so only you
    may read it. Until it is complete its name is FILE.partial, and --resume continues it. An existing file is never
    replaced. A backup changes nothing in the store, and reading doesn't count as use.

    The file lacks event logs, running responses and waiting webhooks. docs/operating.md has the details and a line for
    cron. The exit status is 0 for a complete file; 1 if some turns could not be read, or with --verify if the file is
    damaged; 2 if there is no file; 5 if there is none because Redis or the archive doesn't answer.
    """

    async def save(store: ConversationHistoryStore, archive: Archive | None) -> BackupHeader:
        asked = BackupScope(project, tree, secret if secret is not None else not (project or tree))
        backup = Backup(store, archive, turns_per_second=turns_per_second)
        return await last_of(backup.run(file, asked, release=str(this_build()), resume=resume), BackupHeader)

    async def look() -> BackupHeader:
        async with reading(file) as (opened, size):
            return await last_of(Contents(opened, size).check(), BackupHeader)

    with asking(f"can't {'check' if verify else 'make'} the backup", EXIT_UNABLE):
        try:
            found = asyncio.run(look()) if verify else on_both(settings, save)
        except BadBackup as error:
            fail(f"{file}: {error}", EXIT_FAILED if verify else EXIT_UNABLE)
        except ArchiveUnavailable as error:
            if verify or not error.disk_full:
                raise
            fail(f"the disk of {file} has no room for the rest of it. Make room, and add --resume", EXIT_UNABLE)
    show(_about(file, found), _sentences(file, found), as_json=as_json)
    return EXIT_FAILED if not verify and (found.broken or found.unsettled) else 0


@with_store
def restore(
    settings: CoreSettings,
    file: Annotated[Path, argument("FILE", "A file that `harmonium backup` wrote.")],
    project: ProjectOption = None,
    tree: TreeOption = None,
    turns_per_second: Pace = 0,
    as_json: AsJson = False,
) -> int:
    """Store the conversations of a backup again, under their ids, while the service runs.

    The whole file is checked first; if it is damaged, nothing is restored. With an archive, everything goes there and
    returns to memory when a request names it; turns that the archive has as deleted stay deleted. Without an archive,
    memory is filled, the most recently used first, and nothing is evicted. An existing turn stays as it is; if it
    differs from the backup's, it is reported. You can repeat an interrupted restore. Where there is no store yet,
    restore makes it in `--data-dir`, whose parent folder has to exist.

    The exit status is 0 if everything is restored, 1 if there was no room for some turns or some were refused, 2 if the
    restore could not begin or end, 5 if Redis or the archive doesn't answer.
    """

    async def bring(store: ConversationHistoryStore, archive: Archive | None) -> Restored:
        restore = Restore(store, archive, turns_per_second=turns_per_second)
        return await last_of(restore.run(file, release=str(this_build()), tenant=project, tree=tree), Restored)

    with asking(f"can't restore {file}", EXIT_UNABLE):
        try:
            with file.open("rb"):  # before a server is started for it
                pass
            done = on_both(settings, bring, makes=True)
        except (ArchiveUnavailable, StoreUnavailable) as error:
            status = EXIT_UNREACHABLE if is_away(error) else EXIT_UNABLE
            fail(f"the restore is not complete: {error}. Run it again for the rest", status)
    fields = msgspec.to_builtins(done) | {"backup": _about(file, done.backup)}
    lines = [
        f"{many(done.restored, 'turn')} restored, {done.kept:,} already stored, of {done.backup.turns:,} in "
        f"{many(done.backup.trees, 'conversation')}, {done.seconds:.1f} s",
        *left_out(done),
    ]
    if done.files:
        lines.append(f"{many(done.files, 'file')} restored")
    if done.files_left:
        lines.append(f"{many(done.files_left, 'file')} not restored: no room, or the backup lacks parts of them")
    if done.removed:
        lines.append(f"{many(done.removed, 'turn')} deleted in the store, because they are deleted in the backup")
    if done.archived and done.restored:
        lines += WHERE_RESTORED
    show(fields, [*lines, *filter(None, [SECRETS.get(done.secret)])], as_json=as_json)
    return 0 if done.whole else EXIT_FAILED


async def last_of(
    steps: AsyncGenerator[Any], kind: type[E], told: Callable[[Any], BackupProgress | None] = lambda step: step
) -> E:
    """The last of the steps, which is of a `kind`. A bar shows how far the others are, as `told` says, or None."""
    with bar_on() as bar:
        task = bar.add_task("", total=None)
        async with aclosing(steps):
            step = await anext(steps)
            async for later in steps:
                if at := told(step):
                    bar.update(task, description=at.doing, completed=at.at, total=at.of or None)
                step = later
    assert isinstance(step, kind), f"it ends with a {kind.__name__}"
    return step


def bar_on() -> Bar:
    """A bar on stderr that is gone in the end; nothing where that is no terminal."""
    console = Console(stderr=True)
    shown = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeElapsedColumn())
    return Bar(*shown, console=console, transient=True, disable=not console.is_terminal)


def _about(path: Path, found: BackupHeader) -> dict[str, Any]:
    """The contents of a file, by name."""
    times = {"created": _moment(found.created), "finished": _moment(found.finished)}
    return {"file": str(path), **msgspec.structs.asdict(found), **times}


def _sentences(path: Path, found: BackupHeader) -> list[str]:
    """The contents of a file, for people."""
    lines = [
        f"{path}: {many(found.turns, 'turn')} in {many(found.trees, 'conversation')} of "
        f"{many(found.tenants, 'project')}, {decimal(found.bytes)}",
        f"made {_moment(found.created)} by {found.release}, {many(found.shards, 'shard')}, format {found.version}",
        f"content {found.content}",
    ]
    if found.tenant or found.tree:
        lines.append("of " + " and ".join(filter(None, [found.tenant and f"project {found.tenant}", found.tree])))
    if found.secret:
        lines.append("It contains the store's secret: keep it as safe as the store")
    if found.broken:
        lines.append(
            f"{found.broken:,} turns, files or values could not be read, with their continuations: see `harmonium "
            "fsck`, and `harmonium archive verify`"
        )
    if found.unsettled:
        lines.append(f"{many(found.unsettled, 'conversation')} changed all the time: their newest turns may be missing")
    return lines


def left_out(done: Refilled) -> list[str]:
    """The turns and conversations that are not there as they were asked for, for people."""
    lines: list[str] = []
    if done.conflicts:
        lines.append(
            f"{many(done.conflicts, 'turn')} not restored: the store has other turns with their ids, or before them:"
        )
        lines += [f"  {each.tenant} {each.id}" for each in done.refused[:SHOWN]]
        lines += ["  …"] if done.conflicts > SHOWN else []
    if done.deleted:
        lines.append(f"still deleted, because they were deleted since: {many(done.deleted, 'turn')}")
    if done.lost:
        lines.append(f"{many(done.lost, 'turn')} not restored: the turns before them were deleted in the store")
    if done.no_room:
        lines.append(f"No room for {many(done.no_room, 'conversation')}: nothing is evicted for them")
    if done.unreadable:
        lines.append(f"{done.unreadable:,} could not be read: see `harmonium archive verify`")
    return lines


def _moment(micros: int) -> str:
    return datetime.fromtimestamp(micros / 1e6, UTC).isoformat(timespec="seconds")
