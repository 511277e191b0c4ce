"""`harmonium backup` and `restore`: the conversations of the settings' Redis in a file, what is in such a file, and the
way back.

store/backup/ reads and writes; this asks it, shows how far it is, and what became of each turn. Never show what anybody
said.
"""

import asyncio
from collections.abc import AsyncGenerator, Callable
from contextlib import aclosing
from datetime import UTC, datetime
from pathlib import Path
from typing import Annotated, Any, TypeVar

import typer
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
from service.commands.client.options import argument, flag
from service.commands.doctor import server_url
from service.commands.options import (
    EXIT_FAILED,
    EXIT_UNABLE,
    AsJson,
    Pace,
    TenantOption,
    TreeOption,
    asking,
    fail,
    show,
    with_settings,
)
from service.settings.settings import Settings, variable
from store.backup.backup import Backup, BackupScope, Written
from store.backup.records import End
from store.backup.restore import Bounds, Checked, Done, Restore, Restored, check
from store.errors import BadBackup, DoesNotFit, StoreFull, StoreUnavailable
from store.redis.connection import connect

DAY_US = 86_400_000_000

SHOWN = 20
"""The most conflicts that are shown as lines; JSON has more."""

SECRETS = {
    "restored": "The store has the backup's secret now",
    "other": "The store keeps the secret that it has: what clients have kept sealed by the backup's can't be opened",
}

S = TypeVar("S")
E = TypeVar("E")


@with_settings("redis_url", "data_dir")
def backup(
    settings: Settings,
    file: Annotated[Path, argument("FILE", "The file to write; with --verify, to read.")],
    tenant: TenantOption = None,
    tree: TreeOption = None,
    secret: Annotated[
        bool | None,
        typer.Option(
            "--secret/--no-secret",
            metavar="",
            help="With the store's secret, to open what clients keep sealed. A whole backup has it unless told not to, "
            "one of a tenant or a conversation only if you ask for it.",
            show_default=False,
        ),
    ] = None,
    resume: Annotated[bool, flag("--resume", "Go on with what an interrupted backup has left.")] = False,
    verify: Annotated[bool, flag("--verify", "Check the file instead; needs no store.")] = False,
    turns_per_second: Pace = 0,
    as_json: AsJson = False,
) -> int:
    """Write all conversations to one file, while the service runs.

    The file has each conversation as it was at one moment, compressed, with checksums over every byte. It has what
    users wrote and models answered, so only you may read it. It appears under its name when it is complete: until then
    it is FILE.partial, and `--resume` goes on with that. A file that is there is never replaced. Nothing in the store
    changes, and nothing counts as used by it.

    Event logs, responses under way and webhooks that wait aren't in it; docs/operating.md has all of that, and a line
    for cron. The exit status is 0 for a file that has everything, 1 if some turns could not be read (or, with
    `--verify`, for a file that isn't whole), 2 if there is none.
    """

    async def run(url: str, hear: Callable[[Written], None]) -> End:
        backup = Backup(
            connect(url, timeout_seconds=settings.store_timeout_seconds),
            prefix=settings.key_prefix,
            shards=settings.shards,
            timeout_seconds=settings.store_timeout_seconds,
            turns_per_second=turns_per_second,
        )
        asked = BackupScope(tenant, tree, secret if secret is not None else not (tenant or tree))
        try:
            return await _last_of(backup.run(file, asked, release=str(this_build()), resume=resume), End, hear)
        finally:
            await backup.close()

    end: End | None = None
    with asking(f"can't {'check' if verify else 'make'} the backup", EXIT_UNABLE):
        try:
            if not verify:
                with server_url(settings) as url, bar_on(MofNCompleteColumn(), TextColumn("turns")) as bar:
                    task = bar.add_task("backing up", total=None)
                    end = asyncio.run(
                        run(url, lambda step: bar.update(task, completed=step.turns, total=max(step.turns, step.total)))
                    )
            with file.open("rb") as opened, bar_on(DownloadColumn()) as bar:
                task = bar.add_task("checking", total=None)
                found = asyncio.run(_last_of(check(opened), Checked, lambda step: _show_done(bar, task, step)))
        except BadBackup as error:
            fail(f"{file}: {error}", EXIT_FAILED if verify else EXIT_UNABLE)
    show(_about(file, found), _sentences(file, found), as_json=as_json)
    return EXIT_FAILED if end is not None and (end.broken or end.unsettled) else 0


@with_settings("redis_url", "data_dir")
def restore(
    settings: Settings,
    file: Annotated[Path, argument("FILE", "A file that `harmonium backup` wrote.")],
    tenant: TenantOption = None,
    tree: TreeOption = None,
    turns_per_second: Pace = 0,
    as_json: AsJson = False,
) -> int:
    """Store the conversations of a backup again, under the ids that they had, while the service runs.

    The whole file is checked first, and that the store has room: else nothing of it is restored. Nothing is evicted for
    it. A turn that is there already stays as it is; where another one has its id, that one stays, and is reported. So
    an interrupted restore is run again. Restored conversations keep the order of their last uses, and have at least
    half of IDLE_DAYS before they expire.

    The exit status is 0 when everything is there, 1 if turns were refused, 2 if it could not be done, or not to the
    end.
    """

    async def run(url: str, hear: Callable[[Done], None]) -> Restored:
        restore = Restore(
            connect(url, timeout_seconds=settings.store_timeout_seconds),
            prefix=settings.key_prefix,
            shards=settings.shards,
            timeout_seconds=settings.store_timeout_seconds,
            bounds=Bounds(
                responses=settings.max_responses,
                trees=settings.max_trees,
                bytes=settings.max_bytes,
                idle_us=round(settings.idle_days * DAY_US),
            ),
            turns_per_second=turns_per_second,
            release=str(this_build()),
        )
        try:
            return await _last_of(restore.run(file, tenant=tenant, tree=tree), Restored, hear)
        finally:
            await restore.close()

    with asking(f"can't restore {file}", EXIT_UNABLE):
        try:
            with file.open("rb"):  # before a server is started for it
                pass
            with server_url(settings) as url, bar_on(DownloadColumn()) as bar:
                task = bar.add_task("checking", total=None)
                done = asyncio.run(run(url, lambda step: _show_done(bar, task, step)))
        except DoesNotFit as refusal:
            name = variable("shards" if refusal.what == "shards" else f"max_{refusal.what}")
            wanted = f"Set {name} to at least {refusal.wanted} for it"
            fail(f"{refusal}; nothing was restored. {wanted}", EXIT_UNABLE)
        except (StoreUnavailable, StoreFull) as error:
            fail(f"the restore is not complete: {error}. Run it again for the rest", EXIT_UNABLE)
    fields = {
        "restored": done.restored,
        "kept": done.kept,
        "conflicts": done.conflict,
        "lost": done.lost,
        "refused": [{"tenant": tenant, "id": id} for tenant, id in done.conflicts],
        "secret": done.secret,
        "seconds": round(done.seconds, 3),
        "backup": _about(file, done.checked),
    }
    show(fields, _outcome(done), as_json=as_json)
    return 0 if done.whole else EXIT_FAILED


async def _last_of(steps: AsyncGenerator[S | E], kind: type[E], hear: Callable[[S], None]) -> E:
    """The value that ends the steps, which is of a `kind` of its own; `hear` is told of the others."""
    async with aclosing(steps):
        async for step in steps:
            if isinstance(step, kind):
                return step
            hear(step)  # pyright: ignore[reportArgumentType]
    raise AssertionError(f"it ends with a {kind.__name__}")


def bar_on(*columns: ProgressColumn) -> Bar:
    """A bar on stderr that is gone in the end; nothing where that is no terminal."""
    console = Console(stderr=True)
    shown = (TextColumn("{task.description}"), BarColumn(), *columns, TimeElapsedColumn())
    return Bar(*shown, console=console, transient=True, disable=not console.is_terminal)


def _show_done(bar: Bar, task: TaskID, step: Done) -> None:
    """How far in the file it is."""
    bar.update(task, description="checking" if step.checking else "restoring", completed=step.at, total=step.of)


def _about(path: Path, found: Checked) -> dict[str, Any]:
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


def _sentences(path: Path, found: Checked) -> list[str]:
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
    if end.broken:
        lines.append(f"{end.broken:,} turns could not be read, with all that continue them: see `harmonium fsck`")
    if end.unsettled:
        lines.append(f"{_many(end.unsettled, 'conversation')} changed all the time: the newest turns may not be in it")
    return lines


def _outcome(done: Restored) -> list[str]:
    """The outcome of the turns, for people."""
    lines = [
        f"{done.restored:,} turns restored, {done.kept:,} were there, of {done.checked.turns:,} in "
        f"{done.checked.trees:,} conversations, {done.seconds:.1f} s"
    ]
    if done.conflict:
        lines.append(f"{done.conflict:,} turns not restored, as the store has others with these ids, or continue such:")
        lines += [f"  {tenant} {id}" for tenant, id in done.conflicts[:SHOWN]]
        lines += ["  …"] if done.conflict > SHOWN else []
    if done.lost:
        lines.append(f"{done.lost:,} turns not restored, as what they continue was deleted in the store")
    return [*lines, *filter(None, [SECRETS.get(done.secret)])]


def _many(number: int, what: str) -> str:
    return f"{number:,} {what}" if number == 1 else f"{number:,} {what}s"


def _moment(micros: int) -> str:
    return datetime.fromtimestamp(micros / 1e6, UTC).isoformat(timespec="seconds")
