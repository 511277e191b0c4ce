"""The work of a process beside requests: background responses, webhooks, sweeps and the archive.

`harmonium serve` and `harmonium worker` do the same here. Every process may do all of it. It holds its
claims by a lease, and another process does the rest of its work when it dies. Swept records can't be found any more, so
a store that can't be reached only frees its memory later.
"""

import asyncio
import logging
import random
from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING

from service import logs
from service.background.settling import settle_for_ever
from service.background.timing import TIMING, Timing
from service.background.worker import Worker
from service.backoff import Backoff
from service.process import expire_archive, know_ids, without_archive
from service.responses.service import Service
from service.settings.sources import DAY_SECONDS
from store.errors import ArchiveForeign, ArchiveRefused, ArchiveUnavailable, ArchiveUnfit, LayoutMismatch, StoreError
from store.jobs.outbox import Outbox

if TYPE_CHECKING:
    from service.webhooks import Deliverer

logger = logging.getLogger(__name__)

AGREE_SECONDS = 0.5
"""How often a store that is away at the start is asked for its layout record."""

SWEEP_SECONDS = 60.0
"""How often what is deleted, or was not used for too long, is swept: it is counted in days."""

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


class Background:
    """The work of one process beside requests. `run` it until `stop`."""

    def __init__(self, service: Service, *, works: bool, timing: Timing = TIMING) -> None:
        """`works` is whether it takes background responses."""
        self._service = service
        self._deliverer = _deliverer(service) if service.settings.webhook_url else None
        self.worker = Worker(service, ended=self.ended, timing=timing) if works else None
        self._stopped = asyncio.Event()
        self.broken = False
        """Whether a bug has ended a part of it."""

    def ended(self, id: str) -> None:
        """A response has ended in this process: its webhook needn't wait."""
        if self._deliverer is not None:
            self._deliverer.wake(id)

    @property
    def state(self) -> str | None:
        """The worker's state in `/ready`: `ok`, `paused` while the engine is away, `broken` once a
        bug has ended it, or what goes on beside it; else None where there is none.
        """
        if self.worker is None or self.broken:
            return "broken" if self.broken else None
        return "paused" if self.worker.paused else "ok"

    @property
    def stopping(self) -> bool:
        """Whether this process is about to end."""
        return self._stopped.is_set()

    def stop(self) -> None:
        """Take nothing new, and hand back jobs under way, for others to go on at once. Never blocks."""
        if self.worker is not None:
            self.worker.stop()
        self._stopped.set()

    async def run(self, on_fault: Callable[[], None] = lambda: None) -> None:
        """Work until `stop`, and then until all is handed back.

        A part that a bug ends, ends alone: the others go on, this is `broken`, and `on_fault` is called.
        """
        service = self._service
        doubted = service.metrics.expiry_doubted.labels
        sweeping = sweep_for_ever(service, SWEEP_SECONDS, lambda why: doubted(why).inc())
        parts = [("sweeping", sweeping)]
        if service.settings.has_limits:
            parts += [("limits", service.limiter.hold_for_ever()), ("settling", settle_for_ever(service))]
        if service.archive is not None:
            parts += [("archiving", archive_for_ever(service)), ("noting", note_for_ever(service))]
            if service.settings.archive_days:
                parts.append(("expiring", expire_for_ever(service)))
        if self._deliverer is not None:
            parts.append(("webhooks", self._deliverer.deliver_for_ever()))
        async with asyncio.TaskGroup() as group:
            beside = [group.create_task(self._guarded(name, work, on_fault)) for name, work in parts]
            if self.worker is not None:
                await self._guarded("worker", self.worker.work(), on_fault)
            await self._stopped.wait()
            for task in beside:
                task.cancel()

    async def _guarded(self, part: str, work: Awaitable[None], on_fault: Callable[[], None]) -> None:
        try:
            await work
        except Exception:
            self.broken = True
            logger.exception("a bug ended a part of the background work", extra={"fields": {"part": part}})
            on_fault()


def _deliverer(service: Service) -> "Deliverer":
    """The deliverer of webhooks."""
    from service.webhooks import RETRY_SECONDS, Deliverer, Receiver  # its HTTP client is for who has a receiver

    settings, count = service.settings, service.metrics.webhooks.labels
    outbox, receiver = Outbox(service.store), Receiver(settings)
    return Deliverer(outbox, receiver, RETRY_SECONDS, count=lambda outcome: count(outcome).inc())


async def sweep_for_ever(service: Service, seconds: float, doubted: Callable[[str], None]) -> None:
    """At once, and then every `seconds` on average, delete a part of what is left of deleted conversations, of what
    nobody used for too long, and of event logs that were kept for long enough, until cancelled; and count what could
    not be counted before. Never in step with other processes.

    Where the store's layout record contradicts this process, it deletes nothing. `doubted` is called where unused
    conversations were kept, as the time is in doubt, with the reason.
    """
    agreed = False
    while True:
        try:
            await service.layout.agree()
            agreed = True
            await without_archive(service)
            doubt = await service.store.sweep()  # at first before any wait: until then nobody has doubted the time
            if doubt is not None and doubt.trees:
                message = "unused conversations are kept: the clock is in doubt"
                logs.event(logger, logging.WARNING, message, why=doubt.why, conversations=doubt.trees)
                doubted(doubt.why)
            await service.jobs.expire_logs()
            await service.tally.settle()
            await know_ids(service)
        except LayoutMismatch:  # which is told of once (service/responses/service.py)
            agreed = True
        except StoreError as error:
            if service.store.server.health.away is None:  # else the log has said so once
                logs.event(logger, logging.WARNING, "not swept", reason=str(error))
        await asyncio.sleep((seconds if agreed else min(seconds, AGREE_SECONDS)) * random.uniform(0.5, 1.5))


async def archive_for_ever(service: Service) -> None:
    """Archive what changed some time ago, again and again, until cancelled. Of all processes one does it for a shard.

    Turns that aren't archived stay in memory: an archive that is away loses nothing.
    """
    archive, metrics = service.archive, service.metrics
    assert archive is not None
    every, failures, told = min(ARCHIVE_SECONDS, max(0.1, service.settings.archive_after_seconds / 4)), 0, ""
    while True:
        try:
            left = await archive.archive_due()
            metrics.archive_waiting.set(left.trees)
            metrics.archive_lag_seconds.set(left.seconds)
            if failures:
                logs.event(logger, logging.WARNING, "the archive is back")
            failures, told = 0, ""
        except (ArchiveUnavailable, ArchiveUnfit, ArchiveForeign) as error:
            failures += 1
            kind = "" if isinstance(error, ArchiveUnavailable) and not isinstance(error, ArchiveRefused) else str(error)
            if failures == 1 or kind != told:
                logs.event(logger, logging.ERROR, "nothing is archived, and stays in memory", reason=str(error))
            told = kind
        except StoreError as error:
            if service.store.server.health.away is None:  # else the log has said so once
                logs.event(logger, logging.WARNING, "not archived", reason=str(error))
        await asyncio.sleep(AWAY.seconds(failures) if failures else every * random.uniform(0.5, 1.5))


async def note_for_ever(service: Service) -> None:
    """Have the shards note what the archive lacks, also of what was there before it, until cancelled."""
    archive = service.archive
    assert archive is not None
    while True:
        seconds = NOTE_SECONDS * random.uniform(0.5, 1.5)
        try:
            await service.layout.check()
            if await archive.note():
                seconds = OLDER_SECONDS
        except LayoutMismatch:  # which is told of once (service/responses/service.py)
            pass
        except StoreError as error:
            seconds = ARCHIVE_SECONDS
            if service.store.server.health.away is None:
                logs.event(logger, logging.WARNING, "not noted for the archive", reason=str(error))
        await asyncio.sleep(seconds)


async def expire_for_ever(service: Service) -> None:
    """Delete once a day turns in the archive that are older than ARCHIVE_DAYS, until cancelled."""
    seconds = min(EXPIRE_SECONDS, service.settings.archive_days * DAY_SECONDS)
    while True:
        try:
            gone = await expire_archive(service)
            if gone is not None:
                logs.event(logger, logging.INFO, "the archive was looked through for what is too old", deleted=gone)
        except StoreError as error:
            logs.event(logger, logging.WARNING, "what is too old stays in the archive", reason=str(error))
        await asyncio.sleep(seconds * random.uniform(0.5, 1.5))
