"""The chores of an archive: turns go into it, its shards know of it, and what is too old in it is deleted.

Every process may do all of it. It holds its claims by a lease, and another process does the rest of its work when it
dies.
"""

import asyncio
import logging
import random
from collections.abc import Iterator
from functools import partial

from service import logs
from service.backoff import Backoff
from service.metrics.counters import Metrics
from service.ports import Chore
from service.settings.archive import ArchiveSettings
from service.settings.units import DAY_SECONDS
from service.store_away import tolerate
from store.backup.archiving.store_archive import StoreArchive
from store.backup.upkeep.expiring import expire_daily
from store.errors import ArchiveForeign, ArchiveRefused, ArchiveUnavailable, ArchiveUnfit
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

AWAY = Backoff(1.0, 30.0)
"""The pauses in seconds while the archive is away."""


def archive_chores(
    archive: StoreArchive, settings: ArchiveSettings, layout: Layout, metrics: Metrics
) -> Iterator[Chore]:
    """The work that an archive makes beside requests."""
    yield Chore("archiving", partial(archive_for_ever, archive, settings.archive_after_seconds, metrics))
    yield Chore("noting", partial(note_for_ever, layout, archive))
    yield Chore("expiring", partial(expire_for_ever, archive, settings.archive_days))


async def archive_for_ever(archive: StoreArchive, after_seconds: float, metrics: Metrics) -> None:
    """Archive what changed some time ago, again and again, until cancelled. Of all processes one does it for a shard.

    Turns that aren't archived stay in memory: an archive that is away loses nothing.
    """
    every, failures, told = min(ARCHIVE_SECONDS, max(0.1, after_seconds / 4)), 0, ""
    while True:
        with tolerate(archive.history, "not archived"):
            try:
                left = await archive.archive_due()
            except (ArchiveUnavailable, ArchiveUnfit, ArchiveForeign) as error:
                failures += 1
                passing = isinstance(error, ArchiveUnavailable) and not isinstance(error, ArchiveRefused)
                kind = "" if passing else str(error)
                if failures == 1 or kind != told:
                    logs.event(logger, logging.ERROR, "nothing is archived, and stays in memory", reason=str(error))
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


async def expire_for_ever(archive: StoreArchive, days: float) -> None:
    """Delete once a day turns in the archive that are older than ARCHIVE_DAYS, and what is left of those that were
    deleted long ago, until cancelled.
    """
    while True:
        with tolerate(archive.history, "what is too old stays in the archive"):
            now, own = await archive.history.now(), archive.history.clock()
            gone = await expire_daily(archive, days, now=now, own=own)
            if gone:
                logs.event(logger, logging.INFO, "what was too old was deleted in the archive", deleted=gone)
        await asyncio.sleep(min(EXPIRE_SECONDS, days * DAY_SECONDS or EXPIRE_SECONDS) * random.uniform(0.5, 1.5))
