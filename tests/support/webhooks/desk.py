"""What the tests of webhooks share: a store with an outbox, and deliverers from it to a receiver of the test's own."""

import asyncio
from collections import Counter
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

from openai import OpenAI

from service.backoff import Backoff
from service.features.webhooks.deliver import AT_ONCE, Deliverer, DeliveryTiming, Outcome, Receiver
from service.process import Settings
from store.history.history import ConversationHistoryStore
from store.jobs.jobs import Jobs
from store.jobs.log import LogEntry
from store.jobs.outbox import Outbox
from store.redis.connection import Client, connect
from store.turn import Status, Turn
from tests.support.waiting import until
from tests.support.webhooks.inbox import Letter

TENANT = "acme"
SECRET = "whsec_" + "MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw"
RETRY_SECONDS = 60.0
DEADLINE_SECONDS = 30.0


QUICK = DeliveryTiming(poll_seconds=0.01, store_away=Backoff(0.02, 30.0), retry=Backoff(0.01, 3600.0))
"""Polls and repeats take next to no time."""


class Delivering:
    """A deliverer at work, and what became of its deliveries."""

    def __init__(self, *args: Any, **options: Any) -> None:
        self._outcomes: Counter[Outcome] = Counter()
        self._deliverer = Deliverer(*args, count=lambda each: self._outcomes.update([each]), **options)
        self.wake = self._deliverer.wake
        self.task = asyncio.create_task(self._deliverer.deliver_for_ever())

    @property
    def delivered(self) -> int:
        return self._outcomes["delivered"]

    @property
    def failed(self) -> int:
        """How many were not, and are to be tried again."""
        return self._outcomes["failed"]

    @property
    def given_up(self) -> int:
        """How many were not, and never are."""
        return self._outcomes["given_up"]

    async def settled(self, deliveries: int = 1) -> None:
        """Wait until so many are over."""
        await until(lambda: self._outcomes.total() >= deliveries, DEADLINE_SECONDS)


class Desk:
    """A store in which responses end, and whoever delivers what tells of that."""

    def __init__(self, redis_url: str, prefix: str) -> None:
        self.redis: Client = connect(redis_url)
        self.history = ConversationHistoryStore(connect(redis_url), prefix=prefix)
        self.outbox = Outbox(self.history)
        self._jobs = Jobs(self.history)

    async def end(self, *, status: Status = Status.COMPLETED) -> str:
        """The id of another response that has ended."""
        id = self.history.new_id()
        await self._jobs.submit(TENANT, Turn(id, None, Status.QUEUED, (), b"{}"), b"spec", LogEntry(0, b"accepted"))
        (job,) = (await self._jobs.claim(0, 1)).jobs
        if status is Status.CANCELLED:
            job = await self._jobs.cancel(TENANT, id)
            assert job
        await self._jobs.finish(job.lease, Turn(id, None, status, (), b"{}"), LogEntry(1, b"the end"), announced=True)
        return id

    async def waiting(self) -> int:
        return (await self._jobs.queue(0)).pending

    async def due_in_seconds(self) -> float:
        """For how long the only webhook rests."""
        ((_, due),) = await self.redis.zrange(self.outbox.shards[0].outbox, 0, -1, withscores=True)
        seconds, micros = await self.redis.time()
        return due / 1000 - seconds - micros / 1e6

    @asynccontextmanager
    async def delivering(
        self,
        url: str,
        *,
        retry_seconds: float = RETRY_SECONDS,
        timing: DeliveryTiming = QUICK,
        privately: bool = True,
        at_once: int = AT_ONCE,
        given: dict[str, Any] | None = None,
        **settings: Any,
    ) -> AsyncIterator[Delivering]:
        """A deliverer at work, to a receiver at `url` that is `given` these; it may be at private addresses."""
        wanted = {"webhook_url": f"private+{url}" if privately else url, "webhook_secret": SECRET, **settings}
        receiver = Receiver(Settings.model_validate(wanted), **given or {})
        delivering = Delivering(self.outbox, receiver, retry_seconds, timing=timing, at_once=at_once)
        try:
            yield delivering
            assert not delivering.task.done(), delivering.task
        finally:
            delivering.task.cancel()
            await asyncio.wait([delivering.task])

    async def close(self) -> None:
        await self.history.close()
        await self.redis.aclose()


def unwrapped(letter: Letter, secret: str = SECRET) -> Any:
    """The event that the official client takes from a request."""
    client = OpenAI(api_key="unused", webhook_secret=secret)
    return client.webhooks.unwrap(letter.body, letter.headers)
