"""The chores of an archive: turns go into it, its shards know of it, and what is too old in it is deleted; and its end
where the settings name none any more. The check of it is `/ready`'s.

Every process may do all of it. It holds its claims by a lease, and another process does the rest of its work when it
dies.
"""

import asyncio
import logging
import random
from collections.abc import Iterator
from contextlib import suppress
from functools import partial

from service import logs
from service.backoff import Backoff
from service.features.archive.settings import ArchiveSettings
from service.metrics.counters import Metrics
from service.ports import Chore, ReadyCheck, ReadyFinding
from service.settings.units import DAY_SECONDS
from service.store_away import tolerate
from store.backup.archiving.shards import end_archive, is_full, waiting
from store.backup.archiving.store_archive import StoreArchive
from store.backup.upkeep.expiring import expire_daily
from store.errors import (
    ArchiveForeign,
    ArchiveRefused,
    ArchiveUnavailable,
    ArchiveUnfit,
    NewerFormat,
    StoreUnavailable,
)
from store.history.history import ConversationHistoryStore
from store.layout import Layout

logger = logging.getLogger(__name__)

ARCHIVE_SECONDS = 5.0
"""How often the archiver looks for due turns, at least."""

NOTE_SECONDS = 60.0
"""How often the shards are told that there is an archive, as a server may have lost all that it had."""

OLDER_SECONDS = 0.5
"""After how long the next of the conversations from before the archive are noted."""

EXPIRE_SECONDS = 600.0
"""How often it is looked whether somebody has deleted today what is too old in the archive."""

END_SECONDS = 60.0
"""How often the shards are looked through for the notes of an archive that has ended."""

AGREE_SECONDS = 0.5
"""How often that is tried as long as the store is away, or contradicts this process."""

AWAY = Backoff(1.0, 30.0)
"""The pauses in seconds while the archive is away."""


def archive_chores(
    archive: StoreArchive, settings: ArchiveSettings, layout: Layout, metrics: Metrics
) -> Iterator[Chore]:
    """The work that an archive makes beside requests."""
    run = partial(archive_for_ever, archive, settings.archive_after_seconds, metrics)
    yield Chore("archiving", run, start=partial(open_archive, archive), close=archive.close)
    yield Chore("noting", partial(note_for_ever, layout, archive))
    yield Chore("expiring", partial(expire_for_ever, layout, archive, settings.archive_days))


def archive_check(archive: StoreArchive) -> ReadyCheck:
    """The check of an archive. One that is an older copy, or not the store's own, keeps requests away."""

    async def look() -> ReadyFinding:
        backlog = await _backlog(archive.history)
        usable = archive.foreign is None
        return ReadyFinding(usable, backlog and {"usable": usable} | backlog)

    return ReadyCheck("archive", look)


async def _backlog(store: ConversationHistoryStore) -> dict[str, object] | None:
    """How many trees wait to be archived, for how many seconds the first of them has, and that the archive takes none
    as its disk is full; None where nobody knows.
    """
    with suppress(StoreUnavailable):
        shards = await waiting(store.server, store.keyspace)
        full = await is_full(store.server, store.keyspace)
        return {
            "waiting": sum(each.trees for each in shards),
            "oldest_seconds": max(each.oldest_seconds for each in shards),
            **({"usable": False, "reason": "archive_full"} if full else {}),
        }
    return None


async def open_archive(archive: StoreArchive) -> None:
    """Open an archive. Raises as `StoreArchive.open`."""
    await archive.open()
    for warning in archive.warnings:
        logs.event(logger, logging.WARNING, "the archive may keep erased content", reason=warning)


async def end_for_ever(store: ConversationHistoryStore, layout: Layout) -> None:
    """End the archive of a store that has none by the settings, in all shards, until cancelled. Where the store's
    layout record contradicts this process, it ends nothing.
    """
    seconds = AGREE_SECONDS
    while True:
        with tolerate(store, "the archive is not ended"):
            await layout.agree()
            seconds = END_SECONDS
            if await end_archive(store.server, store.keyspace):
                message = "the store has no archive any more: archived conversations can't be read"
                logs.event(logger, logging.WARNING, message)
        await asyncio.sleep(seconds * random.uniform(0.5, 1.5))


async def archive_for_ever(archive: StoreArchive, after_seconds: float, metrics: Metrics) -> None:
    """Archive what changed some time ago, again and again, until cancelled. Of all processes one does it for a shard.

    Turns that aren't archived stay in memory: an archive that is away loses nothing.
    """
    every, failures, told = min(ARCHIVE_SECONDS, max(0.1, after_seconds / 4)), 0, ""
    while True:
        with tolerate(archive.history, "not archived"):
            try:
                left = await archive.archive_due()
            except (ArchiveUnavailable, ArchiveUnfit, ArchiveForeign, NewerFormat) as error:
                failures += 1
                passing = isinstance(error, ArchiveUnavailable) and not isinstance(error, ArchiveRefused)
                kind = "" if passing else str(error)
                if failures == 1 or kind != told:
                    logs.event(
                        logger, logging.ERROR, "archiving fails; conversations stay in memory", reason=str(error)
                    )
                told = kind
            else:
                metrics.archive_waiting.set(left.trees)
                metrics.archive_lag_seconds.set(left.seconds)
                if failures:
                    logs.event(logger, logging.WARNING, "the archive is back")
                failures, told = 0, ""
        await asyncio.sleep(AWAY.seconds(failures) if failures else every * random.uniform(0.5, 1.5))


async def note_for_ever(layout: Layout, archive: StoreArchive) -> None:
    """Have the shards note what the archive lacks, also of what was there before it, until cancelled."""
    while True:
        seconds = ARCHIVE_SECONDS
        with tolerate(archive.history, "not noted for the archive"):
            await layout.check()
            seconds = OLDER_SECONDS if await archive.note() else NOTE_SECONDS
        await asyncio.sleep(seconds * random.uniform(0.5, 1.5))


async def expire_for_ever(layout: Layout, archive: StoreArchive, days: float) -> None:
    """Delete once a day turns in the archive that are older than ARCHIVE_DAYS, and what is left of those that were
    deleted long ago, until cancelled. Where the store's layout record contradicts this process, it deletes nothing.
    """
    while True:
        with tolerate(archive.history, "what is too old stays in the archive"):
            await layout.check()
            now, own = await archive.history.now(), archive.history.clock()
            gone = await expire_daily(archive, days, now=now, own=own)
            if gone:
                logs.event(logger, logging.INFO, "old conversations were deleted in the archive", deleted=gone)
        await asyncio.sleep(min(EXPIRE_SECONDS, days * DAY_SECONDS or EXPIRE_SECONDS) * random.uniform(0.5, 1.5))
