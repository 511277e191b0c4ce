"""`harmonium archive`: what an operator does with an archive, and how it is printed. Never show what was said.

The archive alone is opened where that is enough, so these work while there is no Redis. Else the settings' Redis is
asked, or the embedded server, which may run.
"""

import asyncio
import logging
import os
import re
import sys
import time
from collections import Counter
from collections.abc import Awaitable, Callable, Mapping
from contextlib import AbstractContextManager, ExitStack, aclosing
from functools import partial
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import IO, Annotated, Any, TypeVar

import msgspec
import typer
import zstandard

from service.build import this_build
from service.commands.arguments import EXIT_FAILED, SINCE, Yes, amount, flag, many, moment_of, option
from service.commands.options import (
    EXIT_UNABLE,
    PROJECT_HELP,
    AsJson,
    Pace,
    ProjectOption,
    Row,
    SettingsCommand,
    asking,
    be_sure,
    fail,
    show,
    with_store,
)
from service.commands.stores import on_store
from service.features.archive.backup_command import bar_on, last_of, left_out
from service.features.archive.opening import check_kept, on_both, open_archive, with_archive
from service.features.archive.settings import ArchiveSettings
from service.features.catalogue.opening import make_whole
from service.logs import event
from service.process import features, open_layout
from service.settings.core import CoreSettings
from service.settings.group import display
from store.archive.archive import Archive
from store.backup import ownership
from store.backup.archiving.marks import Marks
from store.backup.archiving.shards import Failed, Waiting, failed_trees, waiting
from store.backup.heads import Heads
from store.backup.upkeep.backup import Backup, BackupScope
from store.backup.upkeep.backup_file import BackupHeader, BackupProgress, reading
from store.backup.upkeep.erasing import TREES_AT_ONCE, Erased
from store.backup.upkeep.erasing import erase as erase_all
from store.backup.upkeep.exporting import Export, Exported
from store.backup.upkeep.refilling import Refill, Refilled, newest
from store.backup.upkeep.verifying import MEANINGS, ArchiveFault, Verified, Verify
from store.backup.upkeep.walking import Counts, counts, trees_of
from store.catalogue.cataloguing import Cataloguer
from store.errors import ArchiveForeign, ArchiveUnfit, ArchiveWentBack, NoStore, StoreError, StoreUnavailable
from store.fsck.faults import Fault
from store.history.history import ConversationHistoryStore
from store.history.listing import TreeListing
from store.keys import HEX_DIGITS, checked_tenant, digits_of, id_of

logger = logging.getLogger(__name__)

ZST = ".zst"

FAILED = 100
"""How many of the trees that could not be archived are named."""

SHOWN = 100
"""The most faults that are shown one by one; JSON has up to a thousand."""

SAMPLE = 1_000
"""How many trees `verify` looks at unless it is told otherwise."""

T = TypeVar("T")


class NoArchive(NoStore):
    """The settings name no archive."""

    def __init__(self) -> None:
        super().__init__("there is none: set HARMONIUM_ARCHIVE_URL")


class ArchiveStatus(msgspec.Struct):
    """The state of an archive: why it can't be used, if so, its warnings, and the counts of what is `stored`; in Redis
    the trees that wait, by shard, and some that could not be archived, or why those aren't known.
    """

    archive: str
    usable: bool = True
    unfit: str | None = None
    warnings: list[str] = []
    redis: str | None = None
    shards: list[Waiting] = []
    failed: list[Failed] = []
    stored: Counts | None = None

    def refuse(self, why: object) -> None:
        """Note why it can't be used."""
        self.usable, self.unfit = False, str(why)


archive = typer.Typer(
    no_args_is_help=True,
    help=(
        "The archive behind Redis: its status, check, export, restore, erase, hold. It uses the settings of `serve`. "
        "Every command can run while the service does."
    ),
)

ProjectId = Annotated[str, option("--project", "ID", PROJECT_HELP)]
Work = Callable[[Archive, ConversationHistoryStore], Awaitable[T]]


@archive.command("status", cls=SettingsCommand)
@with_store
def status(
    settings: CoreSettings,
    quick: Annotated[bool, flag("--quick", "Skip the size.")] = False,
    as_json: AsJson = False,
) -> int:
    """Show the archive's address, its health, the waiting changes, and its size.

    It writes and reads a test value. Counting lists all keys, one request per thousand, and all keys of Redis for
    deletions of the last minute. It names trees that could not be archived, with the reasons.

    The exit status is 0 for a usable archive, 1 for an unfit one, 2 if there is none, 5 if it doesn't answer.
    """

    async def look(archive: Archive) -> None:
        try:
            found.warnings = list(await archive.probe())
        except ArchiveUnfit as error:
            found.refuse(error)
        else:
            if not quick:
                steps = counts(archive)
                found.stored = await last_of(
                    steps, Counts, lambda step: BackupProgress(step.values, 0, "listing values")
                )

    async def wait(archive: Archive, store: ConversationHistoryStore) -> None:
        server, keyspace, heads = store.server, store.keyspace, None
        if found.usable:
            heads = Heads(server, keyspace, archive)
            try:
                await ownership.check(server, keyspace, archive)
            except ArchiveForeign as error:
                found.refuse(error)
        found.shards = await waiting(server, keyspace, heads, fences=not quick)
        found.failed = await failed_trees(server, keyspace, FAILED)

    with _asking():
        found = ArchiveStatus(str(display(settings_with_archive(settings))["archive_url"]))
        _on_archive(settings, look)
        try:
            _on_both(settings, wait, own=False)
        except (StoreUnavailable, OSError) as error:
            found.redis = str(error)
    lines = [f"archive: {found.archive}", f"probe: {found.unfit or 'passed'}"]
    lines += [*(f"warning: {each}" for each in found.warnings), *_waiting(found)]
    lines += [f"not archived: project {each.tenant}, {each.root}: {each.reason}" for each in found.failed]
    if (has := found.stored) is not None:
        lines.append(
            f"in the archive: {many(has.trees, 'tree')}, {many(has.values, 'value')}, {many(has.bytes, 'byte')}"
        )
    show(msgspec.to_builtins(found), lines, as_json=as_json)
    return 0 if found.usable else EXIT_FAILED


@archive.command("verify", cls=SettingsCommand)
@with_store
def verify_archive(
    settings: CoreSettings,
    whole: Annotated[bool, flag("--all", "Check all trees, in the archive and in Redis.")] = False,
    sample: Annotated[
        int,
        amount(1, 1_000_000, "About how many random trees of each to check", "--sample"),
    ] = SAMPLE,
    alone: Annotated[bool, flag("--alone", "Check the archive alone, without Redis.")] = False,
    repair: Annotated[bool, flag("--repair", "Repair what can be repaired.")] = False,
    turns_per_second: Pace = 0,
    as_json: AsJson = False,
) -> int:
    """Check that the archive is readable and complete, and agrees with Redis.

    Without `--repair` it changes nothing. A repair copies a damaged value below v1/damaged/ and replaces it with an
    empty one, lets the service archive missing turns again, and repeats deletions in Redis. docs/archive.md lists the
    faults. It prints no texts.

    The exit status is 0 if nothing is wrong, 1 if something is, 2 if the check failed or a later release wrote some of
    it, 5 if Redis or the archive doesn't answer.
    """
    most = None if whole else sample
    with _asking():
        found = verify(settings, most=most, repair=repair, alone=alone, turns_per_second=turns_per_second)
    lines = lines_of(found, repair=repair)
    if found.unjudged and not alone:
        numbers = ", ".join(f"{number:02x}" for number in found.unjudged)
        lines.append(f"Redis was not compared in shard {numbers}: it has no archive there yet, or not for all of it")
    if found.moved:
        lines.append(f"Damaged values that were moved away: {found.moved:,}")
    if found.left and not repair:
        lines.append("`harmonium archive verify --repair` repairs these if possible; see docs/archive.md")
    show(object_of(found), lines, as_json=as_json)
    return EXIT_UNABLE if found.newer else EXIT_FAILED if found.left else 0


@archive.command("export", cls=SettingsCommand)
@with_store
def export(
    settings: CoreSettings,
    project: ProjectId,
    file: Annotated[
        str, typer.Argument(metavar="FILE", help="A new file, compressed if its name ends with .zst; - is stdout.")
    ] = "-",
    tree: Annotated[str | None, option("--tree", "ID", "Only the tree with this response.")] = None,
) -> int:
    """Write a project's turns as lines of JSON, one per turn, without deleted turns.

    It reads Redis and the archive like a backup, and needs as much room in the folder for temporary files. Without
    Redis it exports archived turns only. docs/archive.md explains the lines.

    The exit status is 0 for a complete export, 1 if something could not be read, 2 if there is none, 5 if the
    archive doesn't answer.
    """
    digits = None if tree is None else digits_of(tree)
    if digits is not None and not re.fullmatch(rf"[0-9a-f]{{{HEX_DIGITS}}}", digits):
        fail(f"--tree {str(tree)[:80]}: should be the id of a response, or of a conversation", EXIT_UNABLE)

    async def write(file: IO[bytes], archive: Archive) -> Exported:
        export = Export(archive, checked_tenant(project))
        with bar_on() as bar:
            task = bar.add_task("exporting turns", total=None)
            async with aclosing(export.lines(digits)) as lines:
                async for line in lines:
                    file.write(line + b"\n")
                    bar.update(task, completed=export.done.turns)
        return export.done

    async def save(store: ConversationHistoryStore, archive: Archive | None) -> BackupHeader:
        scope = BackupScope(project, digits and id_of(digits), secret=False)
        return await last_of(Backup(store, archive).run(saved, scope, release=str(this_build())), BackupHeader)

    async def write_saved(file: IO[bytes]) -> Exported:
        async with reading(saved) as (archive, _):
            return await write(file, archive)

    def drop(failure: type[BaseException] | None, *_: object) -> None:
        if failure is not None:
            Path(file).unlink()  # nothing is in it, or a part

    missing = ""
    with _asking(), ExitStack() as files:
        opened: IO[bytes] = sys.stdout.buffer
        if file != "-":
            opened = files.enter_context(open(file, "xb", opener=_own))
            files.push(drop)
        if file.endswith(ZST):
            opened = files.enter_context(zstandard.ZstdCompressor().stream_writer(opened, closefd=True))
        saved = Path(files.enter_context(TemporaryDirectory())) / "backup"
        settings_with_archive(settings)
        try:
            broken = on_both(settings, save).broken
        except StoreUnavailable as error:
            missing = f"{error}: the export lacks data that is only in Redis"
            done = _on_archive(settings, partial(write, opened))
        else:
            done = asyncio.run(write_saved(opened))
            done.unreadable += broken
    typer.echo(f"{many(done.turns, 'turn')} of {many(done.trees, 'tree')}", err=True)
    if done.unreadable:
        typer.echo(f"{done.unreadable:,} values could not be read: see `harmonium archive verify`", err=True)
    if missing:
        typer.echo(missing, err=True)
    return EXIT_FAILED if done.unreadable or missing else 0


@archive.command("restore", cls=SettingsCommand)
@with_store
def restore(
    settings: CoreSettings,
    into_memory: Annotated[bool, flag("--into-memory", "Bring trees back into Redis now, the newest first.")] = False,
    project: ProjectOption = None,
    since: Annotated[str | None, option("TIME", f"Only conversations archived {SINCE}")] = None,
    as_json: AsJson = False,
) -> int:
    """Return archived conversations to an empty Redis: each when it is read, or now with --into-memory.

    Point the service at an empty Redis and at the archive: each conversation returns when a request names its id.
    --into-memory returns the newest now, up to 100,000 trees, while there is room: it evicts nothing.

    The exit status is 0 if all have returned, 1 if some have not, 2 if the command failed, 5 if Redis or the archive
    doesn't answer.
    """
    try:
        first = 0 if since is None else moment_of(since)
    except ValueError as error:
        fail(f"--since {error}", EXIT_UNABLE)
    if not into_memory:
        with _asking():
            settings_with_archive(settings)
        lines = [
            "Nothing has to be copied: an archived conversation returns when a request names its id.",
            "`harmonium ls` and the console list it until then, too, marked `archived`.",
            "`harmonium archive restore --into-memory` restores the newest ones now, while there is room.",
        ]
        show(msgspec.to_builtins(Refilled()), lines, as_json=as_json)
        return 0

    async def bring(archive: Archive, store: ConversationHistoryStore) -> Refilled:
        trees = await newest(archive, project, first)
        steps = Refill(store, archive, after_seconds=ArchiveSettings.of(settings).archive_after_seconds).run(trees)
        return await last_of(
            steps, Refilled, lambda step: BackupProgress(step.looked, step.wanted, "bringing trees back")
        )

    with _asking():
        done = _on_both(settings, bring)
    there = f"{done.trees:,} of {done.wanted:,} trees are in Redis, with {done.restored + done.kept:,} turns"
    show(msgspec.to_builtins(done), [there, *left_out(done)], as_json=as_json)
    return 0 if done.whole else EXIT_FAILED


@archive.command("erase", cls=SettingsCommand)
@with_store
def erase(
    settings: CoreSettings,
    project: ProjectId,
    dry_run: Annotated[bool, flag("--dry-run", "Only count them.")] = False,
    yes: Yes = False,
    as_json: AsJson = False,
) -> int:
    """Erase all conversations of a project, in the archive and in Redis, irreversibly.

    A mark is set first: from then on the project's earlier conversations are neither archived nor returned. Later
    conversations, keys and limits stay; `harmonium projects archive` ends keys. If the command was interrupted, or a
    response was running, run it again. Conversations on hold are not erased.

    The exit status is 0 if all conversations are erased, or counted; 1 if some remain, or you said no; 2 if the command
    failed; 5 if Redis or the archive doesn't answer.
    """

    async def plan(archive: Archive, store: ConversationHistoryStore) -> Row:
        listing, there, values = TreeListing(store, project), 0, 0
        async for tree in trees_of(archive, project):
            values += len(tree.parts)
        while some := await listing.some(TREES_AT_ONCE):
            there += len(some)
        held = await Marks(archive).is_held(project)
        return {"project": project, "trees_in_redis": there, "values": values, "held": held}

    if dry_run or not yes:
        with _asking():
            found = _on_both(settings, plan)
        there = f"{many(found['trees_in_redis'], 'tree')} in Redis, {many(found['values'], 'value')} in the archive"
        if dry_run:
            held = ["the project is on hold: release it first"] if found["held"] else []
            show(found, [f"to erase: {there}", *held], as_json=as_json)
            return 0
        be_sure(f"Erase {there}, for ever?", yes)

    async def go(archive: Archive, store: ConversationHistoryStore) -> Erased:
        return await erase_all(archive, Marks(archive), project, await store.cut_time(), store)

    with _asking():
        gone = _on_both(settings, go)
        done = {"trees": gone.trees_in_redis, "values": gone.deleted, "under_way": gone.under_way}
        _add_to_log(settings, "archive.erased", project, done)
    lines = [f"erased: {many(gone.trees_in_redis, 'tree')} in Redis, {many(gone.deleted, 'value')} in the archive"]
    if gone.under_way:
        lines.append(f"{gone.under_way:,} trees have a running response: run this again when they have ended")
    show({"project": project, **msgspec.structs.asdict(gone)}, lines, as_json=as_json)
    return EXIT_FAILED if gone.under_way else 0


@archive.command("hold", cls=SettingsCommand)
@with_store
def hold(
    settings: CoreSettings,
    project: ProjectId,
    release: Annotated[bool, flag("--release", "End the hold.")] = False,
    as_json: AsJson = False,
) -> None:
    """Hold a project's archived conversations: they don't expire, and `erase` refuses.

    Users can still delete single responses and conversations. The exit status is 0 if it is done, 2 if the command
    failed, 5 if the archive doesn't answer.
    """

    async def mark(archive: Archive) -> bool:
        """Put the project on hold, or end that; whether it was on hold before."""
        marks = Marks(archive)
        if not release:
            return not await marks.hold(project, round(time.time() * 1e6))
        before = await marks.is_held(project)
        await marks.release(project)
        return before

    with _asking():
        before = _on_archive(settings, mark)
        if before == release:
            _add_to_log(settings, "archive.released" if release else "archive.held", project)
    words = ("was on hold already", "is on hold") if not release else ("is no longer on hold", "was not on hold")
    done = {"project": project, "held": not release, "changed": before == release}
    show(done, [f"project {project} {words[not before]}"], as_json=as_json)


@archive.command("accept", cls=SettingsCommand)
@with_store
def accept(
    settings: CoreSettings,
    dry_run: Annotated[bool, flag("--dry-run", "Only print how old it is.")] = False,
    yes: Yes = False,
    as_json: AsJson = False,
) -> int:
    """Accept an archive that is an older copy of the store's.

    No service starts with an older copy: it lacks later turns, and still has turns that were deleted later. Put the
    newest copy in its place, if there is one. Otherwise accept this copy: the service archives everything in memory
    again. Turns that have left memory since are lost, and later deletions have to be repeated.

    The exit status is 0 if the archive is accepted, or isn't an older copy; 1 for an older copy that isn't; 2 if the
    command failed; 5 if Redis or the archive doesn't answer.
    """

    async def look(archive: Archive, store: ConversationHistoryStore) -> list[ArchiveWentBack]:
        return await ownership.older_shards(store.server, store.keyspace, archive)

    async def go(archive: Archive, store: ConversationHistoryStore) -> list[ArchiveWentBack]:
        return await ownership.accept(store.server, store.keyspace, archive)

    with _asking():
        older = _on_both(settings, look, own=False)
    if older and not dry_run:
        be_sure(f"Accept an archive whose shard {older[0].shard:02x} is {older[0].age}?", yes)
        with _asking():
            _on_both(settings, go, own=False)
            since = min(each.at for each in older)
            _add_to_log(settings, "archive.accepted", settings.redis_prefix, {"since_us": since})
    rows = [{"shard": each.shard, "since_us": each.at} for each in older]
    lines = [f"shard {each.shard:02x} is {each.age}" for each in older] or ["the archive is not an older copy"]
    show({"accepted": bool(older) and not dry_run, "shards": rows}, lines, as_json=as_json)
    return EXIT_FAILED if older and dry_run else 0


@archive.command("catalogue", cls=SettingsCommand)
@with_store
def catalogue(settings: CoreSettings, as_json: AsJson = False) -> None:
    """Rebuild the list of the archive's conversations. The service can run meanwhile.

    The service replaces a lost list by itself. `archive verify` reports whether you need this command. The exit status
    is 0 if the list is complete, 2 if the command failed, 5 if the archive doesn't answer.
    """

    async def go(archive: Archive) -> int:
        listener = archive.listener
        return await make_whole(listener, anew=True) if isinstance(listener, Cataloguer) else 0

    with _asking():
        made = _on_archive(settings, go)
    show({"conversations": made}, [f"{made:,} conversations are listed"], as_json=as_json)


def _asking() -> AbstractContextManager[None]:
    """Something is asked of an archive in the block."""
    return asking("the archive", EXIT_UNABLE)


def settings_with_archive(settings: CoreSettings) -> ArchiveSettings:
    """The settings with the archive that the service has with them. Raises NoArchive."""
    found = with_archive(settings)
    if not found.has_archive:
        raise NoArchive
    return found


def _on_archive(settings: CoreSettings, work: Callable[[Archive], Awaitable[T]]) -> T:
    """Do something with the settings' archive alone. Raises StoreError, and ValueError for a URL that names none."""

    async def do() -> T:
        found = settings_with_archive(settings)
        check_kept(found)
        archive = open_archive(found)
        assert archive is not None, "the settings name one"
        try:
            return await work(archive)
        finally:
            await archive.close()

    return asyncio.run(do())


def _on_both(settings: CoreSettings, work: Work[T], *, own: bool = True) -> T:
    """Do something with the settings' archive and their Redis. Raises StoreError, OSError, ValueError; ArchiveForeign
    where the archive isn't the store's `own`, unless that doesn't matter.
    """

    async def do(store: ConversationHistoryStore, archive: Archive | None) -> T:
        assert archive is not None
        await open_layout(settings, store).check(limits=False)
        if own:
            await ownership.check(store.server, store.keyspace, archive)
        return await work(archive, store)

    settings_with_archive(settings)  # before a server is started for it
    return on_both(settings, do)


def verify(settings: CoreSettings, *, most: int | None, repair: bool, alone: bool, turns_per_second: float) -> Verified:
    """Check the archive, and compare it with Redis unless it is to be checked `alone`."""

    async def check(archive: Archive, store: ConversationHistoryStore | None = None) -> Verified:
        steps = Verify(archive, store, turns_per_second=turns_per_second).run(most=most, repair=repair)
        return await last_of(
            steps, Verified, lambda step: BackupProgress(step.trees + step.compared, 0, "checking trees")
        )

    found = _on_archive(settings, check) if alone else _on_both(settings, check)
    log_repairs(settings, "archive.repaired", found.faults, found.left)
    return found


def log_repairs(
    settings: CoreSettings, kind: str, faults: Mapping[ArchiveFault, bool] | Mapping[Fault, bool], left: int
) -> None:
    """Have the audit log say how many faults were repaired, if any were."""
    if repaired := Counter(fault.what for fault, done in faults.items() if done):
        data = {"repaired": dict(repaired), "left": left}
        _add_to_log(settings, kind, settings.redis_prefix, data)


def _add_to_log(settings: CoreSettings, type: str, id: str, data: Mapping[str, object] | None = None) -> None:
    """Have the audit log of the settings' Redis say what somebody has done on the command line. Where that can't be
    reached it is done all the same, and is logged.
    """

    async def add(store: ConversationHistoryStore) -> None:
        for feature in features():
            await feature.note(store, type, id, data)

    try:
        on_store(settings, add)
    except (StoreError, OSError) as error:
        message = "no entry was made in the audit log"
        event(logger, logging.WARNING, message, event_type=type, object_id=id, reason=str(error))


def _waiting(found: ArchiveStatus) -> list[str]:
    """Lines on the trees that wait to be archived, shard by shard."""
    if found.redis is not None:
        return [f"Redis: {found.redis}"]
    shards, lines = found.shards, list[str]()
    for each in shards:
        if not each.noted:
            lines.append(f"shard {each.shard:02x}: no service has told it of an archive yet")
        elif each.trees:
            waits = f"{many(each.trees, 'tree')} to archive, the oldest for {each.oldest_seconds:,.0f} s"
            failed = f", {each.failed:,} of them could not be archived" if each.failed else ""
            lines.append(f"shard {each.shard:02x}: {waits}{failed}")
        if each.behind:
            lines.append(f"shard {each.shard:02x}: it went back in time, and has what was deleted since")
        if each.fences:
            lines.append(f"shard {each.shard:02x}: {each.fences:,} deletions were archived within the last minute")
    where = many(len(shards), "shard")
    if not any(each.trees or not each.noted for each in shards):
        lines.insert(0, f"nothing waits to be archived, in {where}")
    return lines


def lines_of(found: Verified, *, repair: bool) -> list[str]:
    """The faults, each in three lines, and the result."""
    lines: list[str] = []
    for fault, repaired in list(found.faults.items())[:SHOWN]:
        done = f"; {'repaired' if repaired else 'not repaired'}" if repair else ""
        lines.append(fault.id or fault.key)
        detail = f": {fault.detail}" if fault.detail else ""
        lines.append(f"    {fault.what}: {MEANINGS[fault.what].says}{detail}")
        lines.append(f"    project {fault.tenant}, {fault.key}{done}")
    if found.found > min(SHOWN, len(found.faults)):
        lines.append(f"… and more: {many(found.found, 'fault')} in all")
    read = f"{many(found.trees, 'tree')} with {many(found.turns, 'turn')} in the archive"
    return [
        *lines,
        f"{read}, {many(found.compared, 'tree')} of Redis: {outcome(found.found, found.left, repair=repair)}",
    ]


def outcome(found: int, left: int, *, repair: bool) -> str:
    """The result of a check in words."""
    if not found:
        return "nothing is wrong"
    done = f", {left:,} of them left" if left else ", all repaired"
    return f"{many(found, 'fault')}{done if repair else ''}"


def object_of(found: Verified) -> dict[str, Any]:
    """All of it by names."""
    faults = [{**fault._asdict(), "repaired": repaired} for fault, repaired in found.faults.items()]
    return {**msgspec.structs.asdict(found), "left": found.left, "faults": faults}


def _own(path: str, flags: int) -> int:
    """A file that its owner alone may read: it has what was said."""
    return os.open(path, flags, 0o600)
