"""The worker: claims the background responses that are next, and makes them, as many at once as it may.

    listen ─▶ claim ─▶ attempt ─▶ (room again) ─▶ claim ...

A channel says that jobs wait. The worker also looks by itself every `poll_seconds`, into the shards where something is
under way, and by turns into the others: so a lost message costs no more than such a round. It renews its leases; that a
response was cancelled it hears at once by the channel, or learns from the next write that is refused; that it was
steered, by the channel or the next renewal. When the engine
is away it claims no job for a while, so that they wait in the queue for other workers. While others wait for the engine
it claims none that has hours, and one that runs gives way to any that waits here. A job on its last try, because
its workers died before they got any further, may be what killed them, as may the other jobs that they had: such jobs
are tried one at a time. A tenant that has all places when another one waits gives some back. Never work on a job whose
lease is lost.
"""

import asyncio
import logging
import random
from collections import Counter
from collections.abc import Callable, Sequence
from contextlib import suppress
from functools import partial

from service import logs
from service.background.attempt import Attempt, AttemptOutcome
from service.background.timing import TIMING, Timing
from service.engine.port import EngineError
from service.loans import renew_for_ever
from service.responses.service import Service
from service.settings.core import RENEWALS
from store.errors import StoreError
from store.jobs.model import LEVELS, WINDOWS, Job, Priority, WaitingTenant
from store.turn import Status

logger = logging.getLogger(__name__)

CANCELLED, STEERED = b"cancelled", b"steered"
"""The word on a control channel before the name of a job that was cancelled or steered. Without one, a job waits."""


class Worker:
    """A worker over a service's store and engine. `work` until `stop`."""

    def __init__(self, service: Service, *, ended: Callable[[str], None], timing: Timing = TIMING) -> None:
        """`ended` is called with the id of each response that ended here."""
        self._service = service
        self._ended = ended
        self._timing = timing
        self._most = service.settings.worker_concurrency
        self._attempts: dict[str, Attempt] = {}
        """The attempts under way, by TENANT/DIGITS."""
        self._tasks: set[asyncio.Task[None]] = set()
        self._waits = dict.fromkeys(range(service.jobs.shards), 0)
        """The shards in which jobs may wait, each with the first level at which one may."""
        self._under_way: set[int] = set()
        """The shards in which a job waited or was worked on when they last answered, and those that did not answer."""
        self._given: Counter[tuple[int, str]] = Counter()
        """How many places were given back for a tenant that waits in a shard, which is asked before all others."""
        self._next_shard = 0
        self._awake = asyncio.Event()
        self._stopping = False
        self._failures = 0
        self._paused_until = 0.0
        self._suspect: Attempt | None = None
        """The attempt at a job that may kill this process, until it gets further."""
        self._alone_until = 0.0

    @property
    def running(self) -> int:
        """How many attempts are under way."""
        return len(self._attempts)

    @property
    def paused(self) -> bool:
        """Whether no job is taken for the moment, as the engine is away."""
        return asyncio.get_running_loop().time() < self._paused_until

    def stop(self) -> None:
        """Take no new job, and hand back attempts under way. Never blocks; `work` then returns."""
        self._stopping = True
        for attempt in self._attempts.values():
            attempt.leave()
        self._awake.set()

    async def work(self) -> None:
        """Work until `stop`, and then until everything is handed back, for `shutdown_seconds` at most.

        A bug that ends the renewal of leases ends the work too.
        """
        shards = range(self._service.jobs.shards)
        try:
            async with asyncio.TaskGroup() as group:
                every = self._service.jobs.limits.lease_seconds / RENEWALS
                beside = [group.create_task(renew_for_ever(self._renew_all, every))]
                beside += [group.create_task(self._listen_for_ever(shard)) for shard in shards]
                await self._claim_until_stopped()
                if self._tasks:
                    await asyncio.wait(self._tasks, timeout=self._service.settings.shutdown_seconds)
                for task in beside:
                    task.cancel()
        finally:
            for task in self._tasks:
                task.cancel()
            await asyncio.gather(*self._tasks, return_exceptions=True)

    async def _claim_until_stopped(self) -> None:
        loop = asyncio.get_running_loop()
        poll = loop.time()
        while not self._stopping:
            self._awake.clear()
            if loop.time() >= poll:  # in any case: a message may have been lost
                poll = loop.time() + self._timing.poll_seconds * random.uniform(0.5, 1)
                self._look_again()
                for attempt in self._attempts.values():
                    if attempt.overdue and not attempt.leaving and attempt.can_give_way:
                        attempt.give_way()
                if not self._takes:
                    for shard in list(self._waits):
                        await self._claim_from(shard, LEVELS - 1, 0)
            while self._takes and loop.time() < poll and min(self._waits.values(), default=LEVELS) <= self._last_level:
                await self._claim()
            with suppress(TimeoutError):
                async with asyncio.timeout_at(poll):
                    await self._awake.wait()

    def _look_again(self) -> None:
        """Doubt what is known of the shards where something is under way, and of some others, by turns."""
        shards = self._service.jobs.shards
        self._waits |= dict.fromkeys(self._under_way, 0)
        for _ in range(min(shards, self._timing.polled_shards)):
            self._waits[self._next_shard] = 0
            self._next_shard = (self._next_shard + 1) % shards

    @property
    def _takes(self) -> bool:
        suspect = self._suspect
        alone = suspect is not None and not suspect.further and asyncio.get_running_loop().time() < self._alone_until
        return bool(self._room) and not self.paused and not alone

    @property
    def _last_level(self) -> int:
        """The last level from which jobs are taken: those that have hours wait while others wait for the engine."""
        return Priority.FLEX if self._service.engine.waiting else LEVELS - 1

    @property
    def _room(self) -> int:
        return 0 if self._stopping else max(0, self._most - self.running)

    def _give_way(self, shard: int, waiting: Sequence[WaitingTenant]) -> None:
        """Have tenants with the most places here give some back to those that have waited for a while and have fewer.

        A response that gives way goes on later behind the last token, so it costs time alone. None does where that
        would only swap the two tenants: then they take turns. One that has hours gives way to all that haven't.
        """
        places = Counter(each.job.lease.tenant for each in self._attempts.values() if not each.leaving)
        for (_, tenant), given in self._given.items():
            places[tenant] += given
        for one in waiting:
            if one.seconds < self._timing.give_way_seconds:
                continue
            for _ in range(one.jobs):
                attempt = self._to_give_way(one, places)
                if attempt is None:
                    break
                tenant = attempt.job.lease.tenant
                places[tenant] -= 1
                places[one.tenant] += 1
                self._given[shard, one.tenant] += 1
                attempt.give_way()
                message = "response paused for another tenant's"
                logs.event(logger, logging.INFO, message, response_id=attempt.id, tenant=tenant, to_tenant=one.tenant)

    def _to_give_way(self, one: WaitingTenant, places: Counter[str]) -> Attempt | None:
        """The newest attempt of the tenant with the most places, whose priority isn't above the waiting job's; one that
        had begun waits as an ordinary one does, and all that have hours are alike.
        """
        spares = one.level in WINDOWS
        return max(
            (
                each
                for each in self._attempts.values()
                if not each.leaving
                and each.can_give_way
                and (each.spares or each.job.priority >= (one.level or Priority.DEFAULT))
                and (places[each.job.lease.tenant] >= places[one.tenant] + 2 or (each.spares and not spares))
            ),
            key=lambda each: (each.spares and not spares, places[each.job.lease.tenant], each.began),
            default=None,
        )

    async def _claim(self) -> None:
        """Take as many jobs as there is room for, level by level: no shard's flex jobs before another's urgent ones.

        Places given back for some tenants are not for others, which may have jobs in many more shards.
        """
        for shard, tenant in list(self._given):
            if not self._takes:
                return
            places = self._given[shard, tenant]
            taken = await self._claim_from(shard, LEVELS - 1, places)
            if 0 < taken < places:
                self._given[shard, tenant] = places - taken
            else:
                del self._given[shard, tenant]
        for level in range(Priority.PRIORITY, self._last_level + 1):
            shards = [shard for shard, first in self._waits.items() if first <= level]
            for shard in random.sample(shards, len(shards)):
                if not self._takes:
                    return
                # where no other one is asked, it may give all that it has
                await self._claim_from(shard, level if len(self._waits) > 1 else self._last_level, self._room)

    async def _claim_from(self, shard: int, level: int, most: int) -> int:
        """Take the jobs that wait in a shard, up to a level, and note its state; the number taken.

        With `most` 0 no job is claimed, but those whose lease ran out go back into the queue, for workers with room. A
        job that was cancelled by a process that died is ended: that takes neither room nor an engine. Where there is no
        room, some may give way.
        """
        self._waits.pop(shard, None)  # before it is asked: jobs that come meanwhile are announced again
        try:
            if self._failures and most:
                await self._service.engine.check()
            claim = await self._service.jobs.claim(shard, min(self._room, most), level)
        except EngineError as failure:
            self._waits[shard] = 0
            self._pause(str(failure))
            return 0
        except StoreError as failure:
            self._under_way.add(shard)
            if self._service.store.server.health.away is None:  # else the log has said so once
                logs.event(logger, logging.WARNING, "no jobs can be claimed", shard=shard, reason=str(failure))
            return 0
        if claim.first is not None:
            self._waits.setdefault(shard, claim.first)
        if claim.first is not None or claim.running:
            self._under_way.add(shard)
        else:
            self._under_way.discard(shard)
        self._service.metrics.jobs_rescued.inc(claim.rescued)
        await self._begin_all(shard, await self._sorted_out(shard, claim.jobs))
        if not most and not self._room and not self._stopping:
            self._give_way(shard, claim.waiting)
        return len(claim.jobs)

    async def _begin_all(self, shard: int, jobs: list[Job]) -> None:
        """Begin the claimed job: from the renewal on it counts as a try, and nobody else takes it."""
        if not jobs:
            return
        try:
            lost, steered = await self._service.jobs.renew([job.lease for job in jobs])
        except StoreError as failure:
            logs.event(logger, logging.WARNING, "claimed jobs left to other workers", shard=shard, reason=str(failure))
            return
        for job in jobs:
            if job.lease not in lost:
                self._begin(job, steered=job.lease in steered)

    async def _sorted_out(self, shard: int, jobs: list[Job]) -> list[Job]:
        """The jobs to begin with: of the suspected one at most, and the others go back, untried."""
        suspects = [job for job in jobs if self._suspected(job)]
        for job in suspects[1:]:
            try:
                await self._service.jobs.hand_back(job.lease, failed=False)
            except StoreError as failure:
                reason = str(failure)
                logs.event(
                    logger, logging.WARNING, "job left to another worker", response_id=job.lease.id, reason=reason
                )
            self._waits[shard] = 0
        return [job for job in jobs if job not in suspects[1:]]

    def _suspected(self, job: Job) -> bool:
        return job.status is not Status.CANCELLED and 1 < job.tries >= self._service.settings.max_attempts

    def _begin(self, job: Job, *, steered: bool) -> None:
        metrics = self._service.metrics
        metrics.jobs_claimed.inc()
        if job.epoch == 1 and job.priority not in WINDOWS:
            metrics.queue_seconds.observe(job.waited_seconds)
        attempt = Attempt(
            self._service,
            job,
            on_progress=self._awake.set,
            on_engine_away=partial(self._pause, "it could not go on with a response"),
            timing=self._timing,
        )
        name = f"{job.lease.tenant}/{job.lease.id[5:]}"
        self._attempts[name] = attempt
        if self._suspected(job):
            self._suspect = attempt
            self._alone_until = asyncio.get_running_loop().time() + self._timing.alone_seconds
        if self._stopping:
            attempt.leave()
        if steered:
            attempt.steer()
        task = asyncio.create_task(self._make(name, attempt))
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def _make(self, name: str, attempt: Attempt) -> None:
        """Make one attempt. If anything fails, the job is not lost: its lease runs out."""
        try:
            with await self._service.tenants.pacing.begin(attempt.job.lease.tenant, hurry=attempt.stopped):
                outcome = await attempt.make()
        except StoreError as failure:
            logs.event(logger, logging.WARNING, "attempt given up", response_id=attempt.id, reason=str(failure))
        except Exception:
            logger.exception("attempt failed", extra={"fields": {"response_id": attempt.id}})
        else:
            self._note(attempt, outcome)
        finally:
            if self._attempts.get(name) is attempt:
                del self._attempts[name]
            if self._suspect is attempt:
                self._suspect = None
            self._awake.set()

    def _note(self, attempt: Attempt, outcome: AttemptOutcome) -> None:
        status = attempt.response.status.value if attempt.response else None
        logs.event(
            logger,
            logging.INFO,
            "attempt",
            response_id=attempt.id,
            tenant=attempt.job.lease.tenant,
            outcome=outcome.value,
            response_status=status,
            attempt_number=attempt.job.epoch,
            waited_ms=round(attempt.job.waited_seconds * 1000, 1),
        )
        if outcome is AttemptOutcome.ENDED:
            self._failures = 0
            self._ended(attempt.id)

    def _pause(self, reason: str) -> None:
        """Claim no job for a while. Failures meanwhile have the same cause."""
        if self.paused:
            return
        self._failures += 1
        pause = self._timing.engine_away.seconds(self._failures)
        loop = asyncio.get_running_loop()
        self._paused_until = loop.time() + pause
        loop.call_later(pause, self._awake.set)
        self._service.metrics.engine_pauses.inc()
        logs.event(logger, logging.WARNING, "the engine is unavailable", pause_seconds=round(pause, 1), reason=reason)

    async def _renew_all(self) -> None:
        """Renew all leases, those of all shards at the same time: a slow shard must not cost the leases of others."""
        by_shard: dict[int, list[Attempt]] = {}
        for attempt in self._attempts.values():
            by_shard.setdefault(self._service.jobs.shard_of(attempt.job.lease), []).append(attempt)
        await asyncio.gather(*(self._renew(shard, attempts) for shard, attempts in by_shard.items()))

    async def _renew(self, shard: int, attempts: list[Attempt]) -> None:
        """Renew the leases of one shard, and stop the attempts that have lost theirs, or steer them."""
        try:
            lost, steered = await self._service.jobs.renew([attempt.job.lease for attempt in attempts])
        except StoreError as failure:
            logs.event(logger, logging.WARNING, "leases not renewed", shard=shard, reason=str(failure))
            return
        for attempt in attempts:
            if attempt.job.lease in lost:
                attempt.lose()
            elif attempt.job.lease in steered:
                attempt.steer()

    async def _listen_for_ever(self, shard: int) -> None:
        """Listen for jobs and cancels in a shard; without the channel, polling and refused writes have to do."""
        while True:
            with suppress(StoreError):
                async with self._service.store.listening.channel(self._service.jobs.control(shard)) as control:
                    while True:
                        messages = await control.messages(self._timing.poll_seconds)
                        if messages != []:
                            self._hear(shard, messages or [])
            await asyncio.sleep(self._timing.poll_seconds)

    def _hear(self, shard: int, messages: list[bytes]) -> None:
        for message in messages:
            kind, _, name = message.partition(b" ")
            attempt = self._attempts.get(name.decode())
            if attempt is not None and kind == CANCELLED:
                attempt.lose(cancelled=True)
            elif attempt is not None and kind == STEERED:
                attempt.steer()
        self._waits[shard] = 0
        self._awake.set()
