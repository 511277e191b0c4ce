"""The work of a process beside requests: background responses, sweeps, and the chores of features.

`harmonium serve` and `harmonium worker` do the same here. Every process may do all of it. It holds its
claims by a lease, and another process does the rest of its work when it dies. Swept records can't be found any more, so
a store that can't be reached only frees its memory later.
"""

import asyncio
import logging
import random
from collections.abc import Awaitable, Callable

from service import logs
from service.background.timing import TIMING, Timing
from service.background.worker import Worker
from service.responses.service import Service
from service.store_away import tolerate
from store.layout import Layout

logger = logging.getLogger(__name__)

AGREE_SECONDS = 0.5
"""How often a store that is away at the start, or contradicts this process, is asked for its layout record."""

SWEEP_SECONDS = 60.0
"""How often what is deleted, or was not used for too long, is swept: it is counted in days."""


class Background:
    """The work of one process beside requests. `run` it until `stop`."""

    def __init__(self, service: Service, *, works: bool, timing: Timing = TIMING) -> None:
        """`works` is whether it takes background responses."""
        self._service = service
        self.layout = service.layout
        self.worker = Worker(service, ended=self.ended, timing=timing) if works else None
        self._stopped = asyncio.Event()
        self.broken = False
        """Whether a bug has ended a part of it."""

    def ended(self, id: str) -> None:
        """A response has ended in this process."""
        for chore in self._service.chores:
            chore.ended(id)

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
        parts = [("sweeping", sweep_for_ever(service, self.layout))]
        parts += [(chore.name, chore.run()) for chore in service.chores]
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


async def sweep_for_ever(service: Service, layout: Layout) -> None:
    """At once, and then every SWEEP_SECONDS on average, delete a part of what is left of deleted conversations, of what
    nobody used for too long, and of event logs that were kept for long enough, until cancelled.
    Never in step with other processes.

    Where the store's layout record contradicts this process, it deletes nothing.
    """
    store, agreed = service.store, False
    while True:
        with tolerate(store, "not swept"):
            await layout.agree()
            agreed = True
            doubt = await store.sweep()  # at first before any wait: until then nobody has doubted the time
            if doubt is not None and doubt.trees:
                message = "no conversation expires: the clock may be wrong"
                logs.event(logger, logging.WARNING, message, reason=doubt.why, conversations=doubt.trees)
                service.metrics.expiry_doubted.labels(doubt.why).inc()
            await service.jobs.expire_logs()
            await service.know_ids()
        seconds = SWEEP_SECONDS if agreed else min(SWEEP_SECONDS, AGREE_SECONDS)
        await asyncio.sleep(seconds * random.uniform(0.5, 1.5))
