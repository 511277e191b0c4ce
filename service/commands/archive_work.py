"""The work of an archive's commands, and its progress: results as values, for archive.py to print; and a check of
an archive as lines and as one object, for `archive verify` and `fsck`. Never show what was said.

The archive alone is opened where that is enough, so these work while there is no Redis. Else the settings' Redis is
asked, or the embedded server, which may run.
"""

import asyncio
import logging
import time
from collections import Counter
from collections.abc import AsyncGenerator, Awaitable, Callable
from contextlib import aclosing
from pathlib import Path
from typing import IO, Any, NamedTuple, TypeVar

import msgspec
import zstandard
from rich.console import Console
from rich.progress import MofNCompleteColumn, TextColumn

from service.commands.backup import bar_on
from service.commands.doctor import server_url, with_archive
from service.logs import event
from service.process import open_archive, open_directory, open_layout, open_store
from service.settings.settings import Settings
from service.tenants.audit import COMMAND_LINE, Actor, AuditEvent, note
from store.backup import ownership
from store.backup.archiving.marks import Marks
from store.backup.archiving.retrieving import Retriever
from store.backup.archiving.returning import Returner
from store.backup.deletions import Deletions
from store.backup.upkeep.erasing import Erased, OnHold, clear, forget_all
from store.backup.upkeep.exporting import Export, Exported
from store.backup.upkeep.faults import MEANINGS, Verified
from store.backup.upkeep.looking import Failed, Stored, Waiting, failed, stored, waiting
from store.backup.upkeep.places import Alone, Both
from store.backup.upkeep.refilling import Refilled, refill
from store.backup.upkeep.verifying import Verify
from store.errors import ArchiveForeign, ArchiveUnfit, StoreError, StoreUnavailable
from store.keys import checked_tenant, digits_of
from store.registry.registry import ADMINISTRATORS

logger = logging.getLogger(__name__)

ZST = ".zst"

FAILED = 100
"""How many of the trees that could not be archived are named."""

T = TypeVar("T")

SHOWN = 100
"""The most faults that are shown one by one; JSON has up to a thousand."""


class NoArchive(StoreError):
    """The settings name no archive."""

    def __init__(self) -> None:
        super().__init__("there is none: set HARMONIUM_ARCHIVE_URL")


class Status(NamedTuple):
    """The state of an archive: its warnings, or why it can't be used; the trees that wait in Redis, with some that
    could not be archived, or why those aren't known; and its contents, unless they were not asked for.
    """

    warnings: list[str]
    unfit: str | None
    waiting: list[Waiting]
    failed: list[Failed]
    unreached: str | None
    stored: Stored | None


class Gone(NamedTuple):
    """The erased values of a tenant in the archive, and its trees in Redis, of which some may be under way."""

    archive: Erased
    trees: int
    under_way: int


def settled(settings: Settings) -> Settings:
    """The settings with the archive that the service has with them. Raises NoArchive."""
    found = with_archive(settings)
    if not found.has_archive:
        raise NoArchive
    return found


def on_archive(settings: Settings, work: Callable[[Alone], Awaitable[T]]) -> T:
    """Do something with the settings' archive alone. Raises StoreError, and ValueError for a URL that names none."""

    async def do() -> T:
        archive = open_archive(settled(settings))
        if archive is None:
            raise NoArchive
        try:
            return await work(Alone(archive))
        finally:
            await archive.close()

    return asyncio.run(do())


def on_both(settings: Settings, work: Callable[[Both], Awaitable[T]], *, own: bool = True) -> T:
    """Do something with the settings' archive and their Redis. Raises StoreError, OSError, ValueError; ArchiveForeign
    where the archive isn't the store's `own`, unless that doesn't matter.
    """

    async def do(url: str) -> T:
        reached = known.model_copy(update={"redis_url": url})
        archive, store = open_archive(reached), open_store(reached)
        try:
            if archive is None:
                raise NoArchive
            await open_layout(reached, store.server).check(limits=False)
            if own:
                await ownership.check(store.server, store.keyspace, archive)
            return await work(Both(archive, store))
        finally:
            await store.close()
            if archive is not None:
                await archive.close()

    known = settled(settings)  # before a server is started for it
    with server_url(settings) as url:
        return asyncio.run(do(url))


def status(settings: Settings, progress: Console, *, quick: bool) -> Status:
    """How an archive is. A Redis that can't be asked is told of, and no error, and so is an archive that isn't its."""

    async def look(alone: Alone) -> tuple[list[str], str | None, Stored | None]:
        try:
            warnings = list(await alone.archive.probe())
        except ArchiveUnfit as error:
            return [], str(error), None
        return warnings, None, None if quick else await _counted(alone, progress)

    async def wait(both: Both) -> tuple[str | None, list[Waiting], list[Failed]]:
        server, keyspace, other = both.store.server, both.store.keyspace, unfit
        if unfit is None:
            try:
                await ownership.check(server, keyspace, both.archive)
            except ArchiveForeign as error:
                other = str(error)
        deletions = Deletions(server, keyspace, both.archive) if unfit is None else None
        here = await waiting(server, keyspace, deletions, fences=not quick)
        return other, here, await failed(server, keyspace, FAILED)

    warnings, unfit, found = on_archive(settings, look)
    try:
        return Status(warnings, *on_both(settings, wait, own=False), None, found)
    except (StoreUnavailable, OSError) as error:
        return Status(warnings, unfit, [], [], str(error), found)


def verify(
    settings: Settings, progress: Console, *, most: int | None, repair: bool, alone: bool, turns_per_second: float
) -> Verified:
    """Check the archive, and compare it with Redis unless it is to be checked `alone`."""

    async def check(verify: Verify) -> Verified:
        with bar_on(progress, TextColumn("{task.completed:,} trees")) as bar:
            task = bar.add_task("checking", total=None)
            return await _last(
                verify.run(most=most, repair=repair),
                lambda step: bar.update(task, completed=step.trees + step.compared),
            )

    def compared(both: Both) -> Awaitable[Verified]:
        return check(Verify(both.archive, both.store, turns_per_second=turns_per_second))

    found = (
        on_archive(settings, lambda alone: check(Verify(alone.archive, None))) if alone else on_both(settings, compared)
    )
    repaired = Counter(fault.what for fault, done in found.faults.items() if done)
    if repaired:
        _note(
            settings,
            AuditEvent("archive.repaired", settings.key_prefix, data={"repaired": dict(repaired), "left": found.left}),
        )
    return found


def export(settings: Settings, file: IO[bytes], tenant: str, tree: str | None, progress: Console) -> Exported:
    """Write the lines of what a tenant has, or of one tree."""

    async def write(alone: Alone) -> Exported:
        export = Export(alone.archive, checked_tenant(tenant))
        with bar_on(progress, TextColumn("{task.completed:,} turns")) as bar:
            task = bar.add_task("exporting", total=None)
            async with aclosing(export.lines(None if tree is None else digits_of(tree))) as lines:
                async for line in lines:
                    file.write(line + b"\n")
                    bar.update(task, completed=export.done.turns)
        return export.done

    return on_archive(settings, write)


def packed(file: IO[bytes], path: Path) -> IO[bytes]:
    """The file itself, or what compresses into it where its name says so."""
    return zstandard.ZstdCompressor().stream_writer(file, closefd=True) if path.suffix == ZST else file


def fill(settings: Settings, progress: Console, *, tenant: str | None, since: float) -> Refilled:
    """Bring back into Redis what there is room for."""

    async def bring(both: Both) -> Refilled:
        archive, store = both
        retriever = Retriever(store.server, store.keyspace, archive)
        returner = Returner(store, retriever, after_seconds=settings.archive_after_seconds)
        with bar_on(progress, MofNCompleteColumn(), TextColumn("trees")) as bar:
            task = bar.add_task("bringing back", total=None)
            return await _last(
                refill(store, archive, returner, tenant=tenant, since=since),
                lambda step: bar.update(task, completed=step.trees + step.no_room + step.unreadable, total=step.wanted),
            )

    return on_both(settings, bring)


def erase(settings: Settings, tenant: str) -> Gone:
    """Erase all of a tenant: marked first, then out of Redis, then out of the archive. Raises OnHold besides."""

    async def go(both: Both) -> Gone:
        archive, store = both
        marks, at = Marks(archive), round(time.time() * 1e6)
        if await marks.held(tenant):
            raise OnHold(tenant)
        await marks.erase(tenant, at)
        trees, under_way = await forget_all(store, tenant)
        await Deletions(store.server, store.keyspace, archive).count_everywhere()
        return Gone(await clear(archive, tenant, at), trees, under_way)

    gone = on_both(settings, go)
    done = {"trees": gone.trees, "values": gone.archive.deleted, "under_way": gone.under_way}
    _note(settings, AuditEvent("archive.erased", tenant, data=done))
    return gone


def hold(settings: Settings, tenant: str, *, release: bool) -> bool:
    """Put a tenant on hold, or end that; whether it was on hold before."""

    async def mark(alone: Alone) -> bool:
        marks = Marks(alone.archive)
        if release:
            before = await marks.held(tenant)
            await marks.release(tenant)
            return before
        return not await marks.hold(tenant, round(time.time() * 1e6))

    before = on_archive(settings, mark)
    if before == release:
        _note(settings, AuditEvent("archive.released" if release else "archive.held", tenant))
    return before


async def add_to_log(settings: Settings, happened: AuditEvent) -> None:
    """Have the audit log of the settings' Redis say what somebody has done on the command line."""
    store = open_store(settings)
    try:
        await note(open_directory(settings, store).registry, ADMINISTRATORS, Actor(COMMAND_LINE), happened)
    finally:
        await store.close()


def _note(settings: Settings, happened: AuditEvent) -> None:
    """The same, of what was done all the same where Redis can't be reached; that is logged."""
    try:
        with server_url(settings) as url:
            asyncio.run(add_to_log(settings.model_copy(update={"redis_url": url}), happened))
    except OSError as error:
        why = {"type": happened.type, "id": happened.id, "reason": str(error)}
        event(logger, logging.WARNING, "no entry was made in the audit log", **why)


async def _counted(alone: Alone, progress: Console) -> Stored:
    with bar_on(progress, TextColumn("{task.completed:,} values")) as bar:
        task = bar.add_task("listing", total=None)
        return await _last(stored(alone.archive), lambda step: bar.update(task, completed=step.values))


async def _last(steps: AsyncGenerator[T], hear: Callable[[T], None]) -> T:
    """The last of the steps, of which there is one at least."""
    async with aclosing(steps):
        step = await anext(steps)
        async for step in steps:
            hear(step)
        return step


def lines_of(found: Verified, *, repair: bool) -> list[str]:
    """The faults, each in three lines, and the result."""
    lines: list[str] = []
    for fault, repaired in list(found.faults.items())[:SHOWN]:
        done = f"; {'repaired' if repaired else 'not repaired'}" if repair else ""
        lines.append(fault.id or fault.key)
        detail = f": {fault.detail}" if fault.detail else ""
        lines.append(f"    {fault.what}: {MEANINGS[fault.what].says}{detail}")
        lines.append(f"    tenant {fault.tenant}, {fault.key}{done}")
    if found.found > min(SHOWN, len(found.faults)):
        lines.append(f"… and more: {found.found:,} faults in all")
    result = f"{found.found:,} faults" if found.found else "nothing is wrong"
    if found.found and repair:
        result += f", {found.left:,} of them left" if found.left else ", all repaired"
    read = f"{found.trees:,} trees with {found.turns:,} turns in the archive"
    return [*lines, f"{read}, {found.compared:,} trees of Redis: {result}"]


def object_of(found: Verified) -> dict[str, Any]:
    """All of it by names."""
    faults = [{**fault._asdict(), "repaired": repaired} for fault, repaired in found.faults.items()]
    fields = {name: field for name, field in msgspec.structs.asdict(found).items() if name != "faults"}
    return {**fields, "left": found.left, "faults": faults}
