"""`harmonium fsck`: goes over the conversations of the settings' Redis, and some of their archive, and shows what is
wrong with them.

store/fsck/check.py and store/backup/upkeep/verifying.py find and repair faults; this prints them. Shown are ids,
tenants and numbers, never what anybody said.
"""

import asyncio
import json
from collections import Counter
from collections.abc import Callable
from contextlib import aclosing
from textwrap import fill, indent
from typing import Any, NamedTuple

from rich.console import Console
from rich.progress import MofNCompleteColumn, TaskID, TextColumn
from rich.progress import Progress as Bar
from rich.text import Text

from service.commands.archive import SAMPLE
from service.commands.archive_work import add_to_log, lines_of, object_of, verify
from service.commands.backup import bar_on
from service.commands.doctor import server_url, with_archive
from service.settings.core import SQLITE
from service.settings.settings import Settings
from service.tenants.audit import AuditEvent
from store.backup.upkeep.faults import Verified
from store.embedded import ARCHIVE
from store.errors import StoreError
from store.fsck.check import Fsck, Progress, Report
from store.fsck.faults import MEANINGS
from store.redis.connection import connect

SHOWN = 100
"""The most faults that are shown one by one; JSON has them all."""

INDENT = "    "

EXIT_CLEAN = 0
EXIT_FAULTS = 1
EXIT_UNCHECKED = 2


class Archived(NamedTuple):
    """The result of a check of the archive, or why there was none; neither without an archive."""

    verified: Verified | None = None
    failure: str = ""

    @property
    def shown(self) -> dict[str, Any] | None:
        """The result as one object."""
        if self.failure:
            return {"failure": self.failure}
        return None if self.verified is None else object_of(self.verified)


def check(settings: Settings, *, repair: bool, turns_per_second: float, progress: Console) -> Report:
    """Check the settings' Redis, and repair it if asked to; a bar on `progress` where that is a terminal.

    Raises LayoutMismatch where it can't be judged with these settings, StoreUnavailable where it can't be asked, and
    OSError where an embedded server doesn't start.
    """
    with server_url(settings) as url, bar_on(progress, MofNCompleteColumn(), TextColumn("turns")) as bar:
        task = bar.add_task("", total=None)
        return asyncio.run(
            _check(url, settings, repair, turns_per_second, lambda step: _show(bar, task, step, settings))
        )


def check_archive(settings: Settings, *, repair: bool, turns_per_second: float, progress: Console) -> Archived:
    """Check a sample of the settings' archive, where there is one, and compare it with Redis."""
    known = with_archive(settings)
    if not known.has_archive or (known.archive_url == SQLITE and not (known.data_dir / ARCHIVE).exists()):
        return Archived()
    try:
        return Archived(
            verify(*(settings, progress), most=SAMPLE, repair=repair, alone=False, turns_per_second=turns_per_second)
        )
    except (StoreError, OSError, ValueError, TypeError) as error:
        return Archived(failure=str(error))


def exit_status(report: Report, archive: Archived) -> int:
    """0 when nothing is wrong, 1 when faults are left, 2 when something can't be judged by this release, or the archive
    could not be asked.
    """
    verified = archive.verified
    if report.newer or archive.failure or (verified and verified.newer):
        return EXIT_UNCHECKED
    return EXIT_FAULTS if report.left or (verified and verified.left) else EXIT_CLEAN


def as_json(report: Report, archive: Archived) -> str:
    """All of a report as one object."""
    complaints = [
        {
            "shard": each.shard,
            "tenant": each.tenant,
            "id": each.id,
            "what": each.what,
            "detail": each.detail,
            "mended": repaired,
        }
        for each, repaired in report.faults.items()
    ]
    return json.dumps(
        {
            "shards": report.shards,
            "turns": report.turns,
            "found": report.found,
            "left": report.left,
            "complaints": complaints,
            "counters_judged": not report.unjudged,
            "shards_not_judged": report.unjudged,
            "turns_to_sweep": report.unneeded,
            "turns_of_a_later_release": report.newer,
            "unknown_keys": report.unknown,
            "seconds": round(report.seconds, 3),
            "archive": archive.shown,
        },
        indent=2,
    )


def show(report: Report, archive: Archived, console: Console, *, repair: bool) -> None:
    """The faults, if there are any, and the result in sentences. An id stands on a line of its own, never broken."""
    for each, repaired in list(report.faults.items())[:SHOWN]:
        done = f"; {'repaired' if repaired else 'not repaired'}" if repair else ""
        place = f"shard {each.shard:02x}{f', tenant {each.tenant}' if each.tenant else ''}"
        console.print(Text(each.id or "no turn", "bold"), soft_wrap=True)
        detail = f": {each.detail}" if each.detail else ""
        for line in (f"{each.what}: {MEANINGS[each.what].says}{detail}", f"{place}{done}"):
            filled = fill(line, console.width - len(INDENT), break_long_words=False, break_on_hyphens=False)
            console.print(Text(indent(filled, INDENT)), soft_wrap=True)
    if report.found > min(SHOWN, len(report.faults)):
        console.print(f"… and more: {report.found:,} faults in all")
    for line in _lines(report, repair):
        console.print(Text(line))
    if archive.failure:
        console.print(Text(f"The archive was not checked: {archive.failure}"))
    elif archive.verified:
        for line in lines_of(archive.verified, repair=repair):
            console.print(Text(line), soft_wrap=True)
        if archive.verified.left or archive.verified.trees >= SAMPLE:
            console.print(Text("`harmonium archive verify --all` checks all of both; see docs/archive.md"))


async def _check(
    url: str, settings: Settings, repair: bool, turns_per_second: float, hear: Callable[[Progress], None]
) -> Report:
    fsck = Fsck(
        connect(url, timeout_seconds=settings.store_timeout_seconds),
        prefix=settings.key_prefix,
        shards=settings.shards,
        timeout_seconds=settings.store_timeout_seconds,
        turns_per_second=turns_per_second,
    )
    try:
        async with aclosing(fsck.run(repair=repair)) as steps:
            async for step in steps:
                if isinstance(step, Progress):
                    hear(step)
                elif isinstance(step, Report):
                    if repair and any(step.faults.values()):
                        await _note(settings.model_copy(update={"redis_url": url}), step)
                    return step
    finally:
        await fsck.close()
    raise AssertionError("a check ends with its report")


async def _note(settings: Settings, report: Report) -> None:
    """Have the audit log say that the store was repaired, and how many faults of each kind it had."""
    kinds = Counter(fault.what for fault, repaired in report.faults.items() if repaired)
    data = {"repaired": dict(kinds), "left": report.left}
    await add_to_log(settings, AuditEvent("store.fsck_repaired", settings.key_prefix, data=data))


def _show(bar: Bar, task: TaskID, step: Progress, settings: Settings) -> None:
    action = "checking" if not step.round else f"repairing, round {step.round},"
    description = f"{action} shard {step.shard + 1} of {settings.shards}"
    bar.update(task, description=description, completed=step.turns, total=step.total)


def _lines(report: Report, repair: bool) -> list[str]:
    """The report in sentences."""
    where = "1 shard" if report.shards == 1 else f"{report.shards} shards"
    result = "nothing is wrong" if not report.found else f"{report.found:,} faults"
    if report.found and repair:
        result += f", {report.left:,} of them left" if report.left else ", all repaired"
    lines = [f"{report.turns:,} turns in {where}, {report.seconds:.1f} s: {result}"]
    if report.left and not repair:
        lines.append("`harmonium fsck --repair` repairs them; see docs/operating.md")
    if report.unjudged:
        shards = ", ".join(f"{number:02x}" for number in report.unjudged)
        lines.append(f"Counters of shard {shards}: not judged, as the store was changing all the time")
    if report.unneeded:
        lines.append(f"Deleted turns that the next sweep takes away: {report.unneeded:,}")
    if report.unknown:
        lines.append(f"Keys under the prefix that this release does not know, left alone: {report.unknown:,}")
    if report.newer:
        lines.append(f"Turns that a later release wrote: {report.newer:,}. Check and repair with that release")
    return lines
