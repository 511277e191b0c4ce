"""`harmonium fsck`: goes over the conversations of the settings' Redis, and some of their archive, and shows what is
wrong with them.

store/fsck/check.py and store/backup/upkeep/verifying.py find and repair faults; this prints them. Shown are ids,
projects and numbers, never what anybody said.
"""

from contextlib import suppress
from functools import partial
from textwrap import fill, indent
from typing import Annotated, Any

import msgspec
from rich.console import Console
from rich.text import Text

from service.commands.arguments import EXIT_FAILED, EXIT_UNREACHABLE, flag, many
from service.commands.options import EXIT_UNABLE, AsJson, Pace, asking, is_away, show, with_store
from service.commands.stores import server_url
from service.features.archive.archive_command import SAMPLE, lines_of, log_repairs, object_of, outcome, verify
from service.features.archive.backup_command import last_of
from service.features.archive.opening import on_both, with_archive
from service.features.archive.settings import NO_ARCHIVE, SQLITE
from service.settings.core import CoreSettings
from store.archive.archive import Archive
from store.backup import ownership
from store.backup.archiving.archived_turns import ArchivedTurns
from store.backup.upkeep.backup_file import BackupProgress as Shown
from store.backup.upkeep.verifying import Verified
from store.embedded import ARCHIVE
from store.errors import ArchiveForeign, ArchiveUnavailable, StoreError
from store.files.files import Files, archived_files
from store.fsck.check import Archived, CheckProgress, CheckReport, Fsck
from store.fsck.faults import MEANINGS, Fault
from store.history.history import ConversationHistoryStore
from store.redis.connection import connect

SHOWN = 100
"""The most faults that are shown one by one; JSON has them all."""

INDENT = "    "


@with_store
def fsck(
    settings: CoreSettings,
    repair: Annotated[bool, flag("--repair", "Repair all faults, and check again.")] = False,
    turns_per_second: Pace = 0,
    as_json: AsJson = False,
) -> int:
    """Check that every turn is complete and every counter right; with an archive, compare a sample of both. `archive
    verify --all` compares everything.

    fsck can run while the service does, and without --repair it changes nothing. It never reports a sound turn, checks
    counters only if nothing changed meanwhile, and prints no texts. docs/operating.md lists all faults. A repair
    removes an incomplete turn and its continuations from memory, so that they return from the archive. Without an
    archive it removes only unreadable turns, and names them. It derives places, counts and indexes from the turns.

    The exit status is 0 if nothing is wrong or everything was repaired, 1 if something is wrong or was lost, 2 if the
    check failed, 5 if Redis or the archive doesn't answer.
    """
    with asking("can't check the store", EXIT_UNABLE), server_url(settings) as url:
        here = settings.model_copy(update={"redis_url": url})
        archive_url = with_archive(settings).archive_url if repair and _has_archive(settings) else NO_ARCHIVE
        work = partial(_check_store, here, repair, turns_per_second)
        report = on_both(here.model_copy(update={"archive_url": archive_url}), work)
        log_repairs(here, "store.fsck_repaired", report.faults, report.left)
    verified, failure = _checked_archive(settings, repair, turns_per_second)
    if as_json:
        show(_fields_of(report, verified, failure), (), as_json=True)
    else:
        _print(report, verified, failure, Console(), repair=repair)
    if failure and is_away(failure):
        return EXIT_UNREACHABLE
    if report.newer or failure or (verified and verified.newer):
        return EXIT_UNABLE
    return EXIT_FAILED if report.left or report.lost or (verified and verified.left) else 0


def _has_archive(settings: CoreSettings) -> bool:
    """Whether there is an archive with these settings, which is not made for a check."""
    known = with_archive(settings)
    return known.has_archive and (known.archive_url != SQLITE or (known.data_dir / ARCHIVE).exists())


def _checked_archive(
    settings: CoreSettings, repair: bool, turns_per_second: float
) -> tuple[Verified | None, Exception | None]:
    """The result for a sample of the settings' archive, compared with Redis, or why there is none; neither without an
    archive.
    """
    if not _has_archive(settings):
        return None, None
    try:
        return verify(settings, most=SAMPLE, repair=repair, alone=False, turns_per_second=turns_per_second), None
    except (StoreError, OSError, ValueError, TypeError) as error:
        return None, error


def _fields_of(report: CheckReport, verified: Verified | None, failure: Exception | None) -> dict[str, Any]:
    """All of a report as one object."""
    archived = {"failure": str(failure)} if failure else None if verified is None else object_of(verified)
    return {
        "shards": report.shards,
        "turns": report.turns,
        "found": report.found,
        "left": report.left,
        "complaints": [{**msgspec.structs.asdict(each), "mended": mended} for each, mended in report.faults.items()],
        "counters_judged": not report.unjudged,
        "shards_not_judged": report.unjudged,
        "turns_to_sweep": report.unneeded,
        "turns_of_a_later_release": report.newer,
        "unknown_keys": report.unknown,
        "lost": [{"project": tenant, "id": id} for tenant, id in report.lost],
        "seconds": round(report.seconds, 3),
        "archive": archived,
    }


def _print(
    report: CheckReport, verified: Verified | None, failure: Exception | None, console: Console, *, repair: bool
) -> None:
    """Print the faults, and the result in sentences. An id stands on a line of its own, never broken."""
    for each, repaired in list(report.faults.items())[:SHOWN]:
        done = f"; {'repaired' if repaired else 'not repaired'}" if repair else ""
        place = f"shard {each.shard:02x}{f', project {each.tenant}' if each.tenant else ''}"
        console.print(Text(each.id or "no turn", "bold"), soft_wrap=True)
        detail = f": {each.detail}" if each.detail else ""
        for line in (f"{each.what}: {MEANINGS[each.what]}{detail}", f"{place}{done}"):
            filled = fill(line, console.width - len(INDENT), break_long_words=False, break_on_hyphens=False)
            console.print(Text(indent(filled, INDENT)), soft_wrap=True)
    if report.found > min(SHOWN, len(report.faults)):
        console.print(f"… and more: {report.found:,} faults in all")
    for line in _lines(report, repair):
        console.print(Text(line))
    if failure:
        console.print(Text(f"The archive was not checked: {failure}"))
    elif verified:
        for line in lines_of(verified, repair=repair):
            console.print(Text(line), soft_wrap=True)
        if verified.left or verified.trees >= SAMPLE:
            console.print(Text("`harmonium archive verify --all` checks all of both; see docs/archive.md"))


async def _check_store(
    settings: CoreSettings,
    repair: bool,
    turns_per_second: float,
    store: ConversationHistoryStore,
    archive: Archive | None,
) -> CheckReport:
    """The report on a store. A repair asks the archive whether it has a turn, where there is one that can be asked."""

    def show_step(step: CheckProgress) -> Shown:
        action = "checking" if not step.round else f"repairing, round {step.round},"
        return Shown(step.turns, step.total, f"{action} turns of shard {step.shard + 1} of {settings.shards}")

    archived: Archived | None = None
    if archive is not None:
        turns = ArchivedTurns(store, archive)

        async def has(tenant: str, digits: str) -> bool:
            return await turns.found(tenant, digits, remains=True) is not None

        with suppress(ArchiveForeign, ArchiveUnavailable):
            await ownership.check(store.server, store.keyspace, archive)
            archived = has
    fsck = Fsck(
        connect(settings.redis_url, timeout_seconds=settings.store_timeout_seconds),
        prefix=settings.redis_prefix,
        shards=settings.shards,
        timeout_seconds=settings.store_timeout_seconds,
        turns_per_second=turns_per_second,
        archived=archived,
    )
    try:
        report = await last_of(fsck.run(repair=repair), CheckReport, show_step)
    finally:
        await fsck.close()
    return await _with_files(report, Files(store, None if archived is None else archive), repair=repair)


async def _with_files(report: CheckReport, files: Files, *, repair: bool) -> CheckReport:
    """The report with what is wrong with files. A repair deletes one that lacks a piece, and knows one again."""
    faults = {
        Fault(files.shard_number(tenant), f"file-{word}", tenant, record.id): repair
        async for tenant, record, word in files.faults()
    }
    for fault in faults if repair else ():
        if fault.what == "file-piece":
            await files.delete(fault.tenant or "", fault.id or "")
    if repair and files.archive is not None:
        async for tenant, record in archived_files(files.archive, faults=[]):
            await files.adopt(tenant, record)
    left = 0 if repair else len(faults)
    found = {"faults": report.faults | faults, "found": report.found + len(faults), "left": report.left + left}
    return msgspec.structs.replace(report, **found)


def _lines(report: CheckReport, repair: bool) -> list[str]:
    """The report in sentences."""
    result = outcome(report.found, report.left, repair=repair)
    lines = [f"{many(report.turns, 'turn')} in {many(report.shards, 'shard')}, {report.seconds:.1f} s: {result}"]
    if report.left and not repair:
        lines.append("`harmonium fsck --repair` repairs them; see docs/operating.md")
    elif report.left:
        waits = "for the archive, for a response, or for you to delete it"
        lines.append(f"The remaining faults wait {waits}; see docs/operating.md")
    if report.lost:
        lines.append(f"Unreadable turns without a copy in an archive: {len(report.lost):,} were removed:")
        lines += [f"{INDENT}{id}, project {tenant}" for tenant, id in report.lost[:SHOWN]]
    if report.unjudged:
        shards = ", ".join(f"{number:02x}" for number in report.unjudged)
        lines.append(f"Counters of shard {shards}: not checked, because the store was changing all the time")
    if report.unneeded:
        lines.append(f"Deleted turns that the next sweep will remove: {report.unneeded:,}")
    if report.unknown:
        lines.append(f"Unknown keys under the prefix, not changed: {report.unknown:,}")
    if report.newer:
        lines.append(f"Turns of a later release: {report.newer:,}. Check and repair with that release")
    return lines
