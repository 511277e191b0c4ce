"""Webhooks: an HTTP request to the receiver for each background response that ended.

    due ─▶ taken ─▶ accepted: done
     ▲       ├────▶ given up: too old, or refused for good (410)
     └───────┴ not accepted, or the process that took it died

What is due waits in the outbox (store/jobs/outbox.py). A process that takes a webhook holds it for longer than a
delivery may take, so each is sent at least once, whatever dies, and seldom twice. Every process delivers, as every
process sweeps. Never take more than can be sent at once: what waits, waits in the outbox.
"""

import asyncio
import logging
import time
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from typing import Literal

from service.backoff import Backoff
from service.logs import event
from service.webhooks.receiver import NotAccepted, Receiver, event_type
from store.errors import StoreError
from store.jobs.outbox import Outbox, Webhook
from store.keys import ShardKeys

logger = logging.getLogger(__name__)

RETRY_SECONDS = 86_400.0
"""For how long a webhook that is not accepted is sent again."""

AT_ONCE = 32
"""Deliveries that one process has under way."""


@dataclass(frozen=True, kw_only=True, slots=True)
class DeliveryTiming:
    """How long a deliverer waits for what."""

    poll_seconds: float = 1.0
    """How often a shard is asked for what is due, on average. What ends in this process needn't wait for that."""

    polled_shards: int = 8
    """How many shards in which nothing is due are asked in that time: with more, each is asked more seldom."""

    store_away: Backoff = Backoff(2.0, 30.0)
    """How long a shard that can't be asked is left alone."""

    retry: Backoff = Backoff(2.0, 3600.0)
    """The pauses before a webhook that was not accepted is sent again."""

    margin_seconds: float = 5.0
    """For how long a webhook is held beyond the time for its delivery: enough to note how that went."""

    leave_seconds: float = 2.0
    """What a process that ends leaves to deliveries under way. One that is cancelled is sent again after its hold."""


TIMING = DeliveryTiming()

Outcome = Literal["delivered", "failed", "given_up"]
"""What became of a delivery; one that failed is tried again."""


class Deliverer:
    """Takes what is due from the outboxes of all shards to the receiver."""

    def __init__(
        self,
        outbox: Outbox,
        receiver: Receiver,
        retry_seconds: float,
        *,
        count: Callable[[Outcome], None] = lambda outcome: None,
        timing: DeliveryTiming = TIMING,
        at_once: int = AT_ONCE,
        now: Callable[[], float] = time.time,
    ) -> None:
        """A webhook is tried again until its response has ended `retry_seconds` ago.

        `count` is told of each delivery, of which `at_once` may be under way.
        """
        self._outbox = outbox
        self._receiver = receiver
        self._hold_ms = round((receiver.seconds + timing.margin_seconds) * 1000)
        self._retry_seconds = retry_seconds
        self._count = count
        self._now = now
        self._timing = timing
        self._room = asyncio.Semaphore(at_once)
        self._due = {shard.outbox: asyncio.Event() for shard in outbox.shards}
        self._under_way: set[asyncio.Task[None]] = set()

    def wake(self, id: str) -> None:
        """A response has ended in this process: its webhook is due now."""
        self._due[self._outbox.shard(id).outbox].set()

    async def deliver_for_ever(self) -> None:
        """Deliver what is due, until cancelled. No failure of the store or of the receiver ends it."""
        try:
            async with asyncio.TaskGroup() as group:
                for shard in self._outbox.shards:
                    group.create_task(self._serve(shard))
        finally:
            await self._leave()

    async def _serve(self, shard: ShardKeys) -> None:
        """Deliver what is due in a shard, one after the other; then again when woken, or at the next poll."""
        due, failures, idle = self._due[shard.outbox], 0, 0
        seconds = self._timing.poll_seconds
        polls = Backoff(seconds, seconds * max(1.0, len(self._due) / self._timing.polled_shards))
        while True:
            due.clear()
            try:
                more, failures = await self._deliver_next(shard), 0
            except StoreError as error:
                if not failures:
                    event(logger, logging.WARNING, "webhooks can't be read", reason=str(error))
                more, failures = False, failures + 1
            idle = 0 if more else idle + 1
            if not more:
                poll = polls.seconds(idle)
                with suppress(TimeoutError):
                    async with asyncio.timeout(self._timing.store_away.seconds(failures) if failures else poll):
                        await due.wait()

    async def _deliver_next(self, shard: ShardKeys) -> bool:
        """Begin to send what is due next, once there is room for it; whether anything was."""
        await self._room.acquire()
        taken: list[Webhook] = []
        try:
            taken = await self._outbox.take(shard, 1, self._hold_ms)
        finally:
            if not taken:
                self._room.release()
        for webhook in taken:
            task = asyncio.create_task(self._deliver(webhook))
            self._under_way.add(task)
            task.add_done_callback(self._end)
        return bool(taken)

    def _end(self, task: asyncio.Task[None]) -> None:
        self._under_way.discard(task)
        self._room.release()
        if not task.cancelled() and (error := task.exception()) is not None:
            logger.error("webhook failed by a bug", exc_info=error)

    async def _leave(self) -> None:
        """Wait a little for deliveries under way, and cancel the rest."""
        if self._under_way:
            _, late = await asyncio.wait(self._under_way, timeout=self._timing.leave_seconds)
            for task in late:
                task.cancel()
            await asyncio.gather(*late, return_exceptions=True)

    async def _deliver(self, webhook: Webhook) -> None:
        """Send a webhook, and store the outcome; where that fails, it is sent again when its hold is over."""
        facts = {
            "tenant": webhook.tenant,
            "response_id": webhook.id,
            "type": event_type(webhook),
            "tries": webhook.tries,
        }
        try:
            try:
                await self._receiver.send(webhook)
            except NotAccepted as error:
                await self._put_off(webhook, error, facts)
            else:
                self._count("delivered")
                event(logger, logging.INFO, "webhook delivered", **facts)
                await self._outbox.done(webhook)
        except StoreError as error:
            event(logger, logging.WARNING, "outcome of a webhook not stored", **facts, reason=str(error))

    async def _put_off(self, webhook: Webhook, error: NotAccepted, facts: dict[str, str | int]) -> None:
        left = webhook.ended + self._retry_seconds - self._now()
        if error.final or left <= 0:
            await self._outbox.done(webhook)
            self._count("given_up")
            event(logger, logging.WARNING, "webhook given up", **facts, reason=str(error))
            return
        delay = min(left, max(self._timing.retry.seconds(webhook.tries), error.wait_seconds))
        self._count("failed")
        event(logger, logging.INFO, "webhook not accepted", **facts, reason=str(error), seconds=delay)
        await self._outbox.later(webhook, max(1, round(delay * 1000)))
