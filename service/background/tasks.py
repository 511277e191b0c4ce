"""The work of a process beside requests: background responses, webhooks, sweeps and the archive.

`harmonium serve` and `harmonium worker` do the same here. Every process may do all of it. It holds its
claims by a lease, and another process does the rest of its work when it dies. Swept records can't be found any more, so
a store that can't be reached only frees its memory later.
"""

import asyncio
import logging
import random
from collections.abc import Awaitable, Callable, Generator
from contextlib import contextmanager
from typing import TYPE_CHECKING

from service import logs
from service.api.response import decode_response
from service.background.timing import TIMING, Timing
from service.background.worker import Worker
from service.backoff import Backoff
from service.process import know_ids, open_layout
from service.responses.service import Service
from service.settings.settings import Settings
from service.settings.units import DAY_SECONDS
from service.settings.webhooks import WebhookSettings
from service.tenants.limits import spent_in
from store.backup.archiving.shards import end_archive
from store.backup.archiving.store_archive import StoreArchive
from store.backup.upkeep.expiring import expire_daily
from store.errors import (
    ArchiveDamaged,
    ArchiveForeign,
    ArchiveRefused,
    ArchiveUnavailable,
    ArchiveUnfit,
    LayoutMismatch,
    NewerFormat,
    NotFound,
    StoreError,
)
from store.history.history import ConversationHistoryStore
from store.jobs.outbox import Outbox
from store.layout import Layout
from store.limits import MOST_DUE, DueReservation, Limits, Unspent

if TYPE_CHECKING:
    from service.webhooks import Deliverer

logger = logging.getLogger(__name__)

AGREE_SECONDS = 0.5
"""How often a store that is away at the start, or contradicts this process, is asked for its layout record."""

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

MOST_ROUNDS = 200
"""The most rounds of one look at due limits. A tenant may have thousands of responses that wait; none of them may lose
its place among those at once meanwhile, nor be in the way of what others reserved."""

AWAY = Backoff(1.0, 30.0)
"""The pauses in seconds while the archive is away."""


class Background:
    """The work of one process beside requests. `run` it until `stop`."""

    def __init__(self, service: Service, *, works: bool, timing: Timing = TIMING) -> None:
        """`works` is whether it takes background responses."""
        settings = Settings.of(service.settings)
        self._service = service
        self.layout = open_layout(settings, service.store.server)
        self._deliverer = _deliverer(service, settings) if settings.webhook_url else None
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
        service, settings = self._service, Settings.of(self._service.settings)
        parts = [("sweeping", sweep_for_ever(service, self.layout))]
        if settings.has_limits:
            limiter = service.tenants.limiter
            parts += [("limits", limiter.hold_for_ever()), ("settling", settle_for_ever(limiter.limits))]
        if (archive := service.archive) is not None:
            parts.append(("archiving", archive_for_ever(service, archive, settings.archive_after_seconds)))
            parts.append(("noting", note_for_ever(self.layout, archive)))
            parts.append(("expiring", expire_for_ever(archive, settings.archive_days)))
        if self._deliverer is not None:
            parts.append(("webhooks", self._deliverer.deliver_for_ever()))
        async with asyncio.TaskGroup() as group:
            beside = [group.create_task(self._guard(name, work, on_fault)) for name, work in parts]
            if self.worker is not None:
                await self._guard("worker", self.worker.work(), on_fault)
            await self._stopped.wait()
            for task in beside:
                task.cancel()

    async def _guard(self, part: str, work: Awaitable[None], on_fault: Callable[[], None]) -> None:
        try:
            await work
        except Exception:
            self.broken = True
            logger.exception("a bug ended a part of the background work", extra={"fields": {"part": part}})
            on_fault()


def _deliverer(service: Service, settings: WebhookSettings) -> "Deliverer":
    """The deliverer of webhooks."""
    from service.webhooks import RETRY_SECONDS, Deliverer, Receiver  # its HTTP client is for who has a receiver

    count = service.metrics.webhooks.labels
    outbox, receiver = Outbox(service.store), Receiver(settings)
    return Deliverer(outbox, receiver, RETRY_SECONDS, count=lambda outcome: count(outcome).inc())


@contextmanager
def _tolerate(store: ConversationHistoryStore, refused: str) -> Generator[None]:
    """The block, after which it goes on where the store fails. The log says so, unless it has said once that the store
    is away, or contradicts this process.
    """
    try:
        yield
    except LayoutMismatch:
        pass
    except StoreError as error:
        if store.server.health.away is None:
            logs.event(logger, logging.WARNING, refused, reason=str(error))


async def sweep_for_ever(service: Service, layout: Layout) -> None:
    """At once, and then every SWEEP_SECONDS on average, delete a part of what is left of deleted conversations, of what
    nobody used for too long, and of event logs that were kept for long enough, until cancelled; and count what could
    not be counted before. Never in step with other processes.

    Where the store's layout record contradicts this process, it deletes nothing.
    """
    store, agreed = service.store, False
    while True:
        with _tolerate(store, "not swept"):
            await layout.agree()
            agreed = True
            if service.archive is None and await end_archive(store.server, store.keyspace):
                message = "the store has no archive any more: what left memory is out of reach"
                logs.event(logger, logging.WARNING, message)
            doubt = await store.sweep()  # at first before any wait: until then nobody has doubted the time
            if doubt is not None and doubt.trees:
                message = "unused conversations are kept: the clock is in doubt"
                logs.event(logger, logging.WARNING, message, why=doubt.why, conversations=doubt.trees)
                service.metrics.expiry_doubted.labels(doubt.why).inc()
            await service.jobs.expire_logs()
            await service.tenants.tally.settle()
            await know_ids(store, service.archive)
        seconds = SWEEP_SECONDS if agreed else min(SWEEP_SECONDS, AGREE_SECONDS)
        await asyncio.sleep(seconds * random.uniform(0.5, 1.5))


async def archive_for_ever(service: Service, archive: StoreArchive, after_seconds: float) -> None:
    """Archive what changed `after_seconds` ago, again and again, until cancelled. Of all processes one does it for a
    shard.

    Turns that aren't archived stay in memory: an archive that is away loses nothing.
    """
    every, failures, told = min(ARCHIVE_SECONDS, max(0.1, after_seconds / 4)), 0, ""
    while True:
        with _tolerate(service.store, "not archived"):
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
                service.metrics.archive_waiting.set(left.trees)
                service.metrics.archive_lag_seconds.set(left.seconds)
                if failures:
                    logs.event(logger, logging.WARNING, "the archive is back")
                failures, told = 0, ""
        await asyncio.sleep(AWAY.seconds(failures) if failures else every * random.uniform(0.5, 1.5))


async def note_for_ever(layout: Layout, archive: StoreArchive) -> None:
    """Have the shards note what the archive lacks, also of what was there before it, until cancelled."""
    while True:
        seconds = ARCHIVE_SECONDS
        with _tolerate(archive.history, "not noted for the archive"):
            await layout.check()
            seconds = OLDER_SECONDS if await archive.note() else NOTE_SECONDS
        await asyncio.sleep(seconds * random.uniform(0.5, 1.5))


async def expire_for_ever(archive: StoreArchive, days: float) -> None:
    """Delete once a day turns in the archive that are older than ARCHIVE_DAYS, and what is left of those that were
    deleted long ago, until cancelled.
    """
    while True:
        with _tolerate(archive.history, "what is too old stays in the archive"):
            now, own = await archive.history.now(), archive.history.clock()
            gone = await expire_daily(archive, days, now=now, own=own)
            if gone:
                logs.event(logger, logging.INFO, "what was too old was deleted in the archive", deleted=gone)
        await asyncio.sleep(min(EXPIRE_SECONDS, days * DAY_SECONDS or EXPIRE_SECONDS) * random.uniform(0.5, 1.5))


async def settle_for_ever(limits: Limits) -> None:
    """Settle due reservations again and again, never in step with other processes, until cancelled."""
    while True:
        await asyncio.sleep(limits.held_seconds * random.uniform(0.5, 1))
        with _tolerate(limits.history, "limits are settled later"):
            await settle_due(limits)


async def settle_due(limits: Limits) -> int:
    """Settle limits that nobody settled: their process was killed, or the store was away, when the response ended.
    Returns how many were looked at. Raises StoreUnavailable.

    A stored response says how much it took. One that is under way is left alone. Of one that is gone nobody will ever
    know more, so all that was reserved for it counts.
    """
    looked_at = 0
    for _ in range(MOST_ROUNDS):
        due = await limits.due()
        for each in due:
            await _settle(limits, each)
        looked_at += len(due)
        if len(due) < MOST_DUE:
            break
    return looked_at


async def _settle(limits: Limits, due: DueReservation) -> None:
    tenant, id = due
    try:
        found = await limits.history.find(tenant, id, touches=False)
    except NotFound:
        await limits.settle(tenant, id, Unspent.UNKNOWN)
        return
    except (NewerFormat, ArchiveUnavailable, ArchiveDamaged):  # it is settled later; until then it is in nobody's way
        await limits.hold(tenant, [id])
        return
    if found.under_way:
        await limits.hold(tenant, [id])
        return
    response = await asyncio.to_thread(decode_response, found.response)
    await limits.settle(tenant, id, spent_in(response))
