"""One attempt at a background response: from a job as it was claimed to its end, or to where somebody else goes on.

    replay ─▶ sample ─▶ end ─▶ finish

Tokens that earlier attempts sampled are read from the log and fed to a new machine, which then stands where theirs
stood; the engine goes on behind it. So an attempt that dies costs time, and no token that anybody has seen. The process
that cancels a response ends it in the same way: its attempt has nothing to sample. Every write carries the lease, and
the first one that is refused ends the attempt at once.
"""

import asyncio
import logging
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, field
from enum import Enum
from functools import partial
from time import monotonic

import msgspec

from service import logs, spans
from service.api.outcome import Outcome as ToolOutcome
from service.api.response import Response, ResponseError, decode_response
from service.background.log_sink import LogSink
from service.background.timing import TIMING, Timing
from service.engine.port import (
    EngineBroke,
    EngineRefused,
    EngineUnavailable,
    Generation,
    NotServed,
    Sampling,
    TokenLogprobs,
)
from service.responses.drive import Driver, machine_of
from service.responses.make import tools_of, use_up_for
from service.responses.output.journal import decode_sampled
from service.responses.output.machine import Ending, Machine
from service.responses.output.next_step import ending_of
from service.responses.output.phases import Phase
from service.responses.output.reading import Cached, Piece
from service.responses.output.rules import Rules
from service.responses.pictures import Pictures
from service.responses.plan import Plan, decode
from service.responses.prepare import SPARE_PRIORITY
from service.responses.run import Taken, error_of
from service.responses.seal import seal_for
from service.responses.service import Service
from service.spans import UNTRACED, Fact, SpanSide
from service.steps import BRIEFLY, in_steps
from service.store_away import retry
from service.tools.port import Runner
from store.errors import LeaseLost, LogBehind, LogFull, NewerFormat, StoreError, StoreUnavailable
from store.jobs.jobs import SPEC_PIECE_BYTES
from store.jobs.model import Job
from store.spent import Over
from store.turn import Status

logger = logging.getLogger(__name__)

QUEUED_EVENTS = 2
"""How many events the log has before a worker begins: response.created and response.queued."""

MAX_QUEUED_SECONDS = 86_400.0
"""How long a background response waits before it fails: until it begins, and each time that it goes on later. After a
day nobody waits for it any more."""

READ_ENTRIES = 256
"""The most entries of a log that are read and decoded at once: a millisecond's work or two."""

UNREADABLE = "No worker could read this job. Send the request again."


STRANDED = (
    "Its worker stopped in the middle of an answer, which can't be continued: the model's server accepts only whole "
    "messages. Send the request again."
)

NO_ROOM = "The server has no room for more of its events (HARMONIUM_MAX_EVENT_LOG_BYTES). It has the output so far."


class AttemptOutcome(Enum):
    """The outcome of an attempt."""

    ENDED = "ended"  # the response has ended, and is stored
    HANDED_BACK = "handed_back"  # the process is leaving, or the log lost its end, and somebody else goes on
    ENGINE_AWAY = "engine_away"  # the engine is down or has no room, and somebody goes on when it is back
    ENGINE_FAILED = "engine_failed"  # the engine failed with this one, or a bug has struck, and somebody tries again
    LOST = "lost"  # somebody else has the lease, or the response has ended


@dataclass(eq=False)
class Attempt:
    """An attempt at a job whose lease this process holds. Call `make` once."""

    service: Service
    job: Job
    own_patience: float | None = field(default=None, kw_only=True)
    """For how many seconds the end is tried to be stored while the store is away; None is for as long as the response
    may take."""
    on_progress: Callable[[], None] = field(default=lambda: None, kw_only=True)
    """Called once tokens are in the log that were not there before."""
    on_engine_away: Callable[[], None] = field(default=lambda: None, kw_only=True)
    """Called when the engine is away, before the job is given back: every worker with room may take it then."""
    timing: Timing = field(default=TIMING, kw_only=True)

    def __post_init__(self) -> None:
        self.id = self.job.lease.id
        self.settings = self.service.settings
        self.response: Response | None = None
        """The response, once it has ended."""
        self.further = False
        """Whether tokens are in the log that were not there before."""
        self._driver: Driver | None = None
        self._lost = False
        self.stopped = asyncio.Event()
        """Set once somebody wants it to stop."""
        self._cancelled = self._gives_way = self._steered = False
        self.leaving = False
        """Whether it stops soon, for somebody else to go on."""
        self._span = self._claim = UNTRACED
        self.began = monotonic()
        self.spares = bool(self.job.spare_seconds)
        """Whether it has hours, so that all others go before it."""

    def lose(self, *, cancelled: bool = False) -> None:
        """Somebody else has the lease, or cancelled the response: stop at once, and write no more. Never blocks."""
        self._lost = True
        self._cancelled = self._cancelled or cancelled
        self._stop()

    def leave(self) -> None:
        """Stop soon, write down the sampled tokens, and let somebody else go on. Where nobody could, it goes on to its
        end, for as long as the process does. Never blocks.
        """
        self.leaving = True
        if self.can_give_way:
            self._stop()

    def steer(self) -> None:
        """Something was said to the response: end it at its next boundary, so that another one goes on from it. Never
        blocks.
        """
        self._steered = True
        if self._driver is not None:
            self._driver.steer()

    @property
    def can_give_way(self) -> bool:
        """Whether somebody else could go on with it where it stands."""
        return self._driver is None or not _stranded(self._driver.machine)

    @property
    def overdue(self) -> bool:
        """Whether it has no hours any more, and waits for the engine as one that does."""
        left = self.job.spare_seconds
        return self.spares and not self.further and left is not None and monotonic() - self.began >= left

    def give_way(self) -> None:
        """Leave, and wait again at the level of its priority, behind other tenants' responses. Never blocks."""
        self._gives_way = True
        self.leave()

    def _stop(self) -> None:
        self.stopped.set()
        if self._driver is not None:
            self._driver.stop()

    def _get_further(self) -> None:
        if not self.further:
            self.further = True
            self.on_progress()

    async def make(self) -> AttemptOutcome:
        """Make the attempt. Raises StoreUnavailable where the store stayed away; the lease then ends by itself."""
        try:
            outcome = await self._outcome()
            self._span.note({"harmonium.attempt.outcome": outcome.value})
            if outcome not in (AttemptOutcome.ENDED, AttemptOutcome.HANDED_BACK):
                self._span.fail(outcome.value.replace(" ", "_"), fault=outcome is not AttemptOutcome.LOST)
            return outcome
        except BaseException as error:
            self._span.fail(spans.kind_of(error), fault=spans.is_fault(error))
            raise
        finally:
            self._claim.end()
            self._span.end()

    async def _outcome(self) -> AttemptOutcome:
        """The outcome, also where the lease or the log's end is lost."""
        try:
            return await self._make()
        except LeaseLost:
            if not await self._is_cancelled():
                self.service.metrics.leases_lost.inc()
            return AttemptOutcome.LOST
        except LogBehind as gap:
            logs.event(logger, logging.WARNING, "the end of an event log is lost", response_id=self.id, reason=str(gap))
            await self._let_go(failed=False)
            return AttemptOutcome.HANDED_BACK

    def _trace(self, plan: Plan) -> None:
        """Trace it from its claim on, linked to where the response was submitted. The span of the claim is sent early,
        as a process that dies never tells of its end. The end of a cancelled one belongs to the request for it.
        """
        tracer, job = self.service.tracer, self.job
        if not tracer.on or job.status is Status.CANCELLED:
            return
        facts: dict[str, Fact] = {
            **plan.facts,
            "harmonium.attempt.number": job.epoch,
            "harmonium.attempt.waited_seconds": round(job.waited_seconds, 3),
        }
        submitted = plan.generation.trace
        self._span = tracer.attempt(submitted, facts, seconds=monotonic() - self.began)
        self._claim = self._span.child("claim", SpanSide.CONSUMER, facts, linked=submitted)
        spans.current.set(self._span)

    async def _is_cancelled(self) -> bool:
        """Whether the lease went because the response was cancelled, of which a refused write may be the first sign."""
        if self._cancelled or self.job.status is Status.CANCELLED:
            return True
        try:
            return (await self.service.store.find(self.job.lease.tenant, self.id)).status is Status.CANCELLED
        except StoreError:  # nobody knows
            return False

    async def _make(self) -> AttemptOutcome:
        job = self.job
        if job.tries > self.settings.max_attempts + 1:  # it can't even be read without dying of it
            return await self._give_up()
        try:
            plan = await decode(await self._spec(), self.service.readings.restore)
        except NewerFormat:
            return await self._leave_to_later_releases()
        except StoreUnavailable as failure:
            logs.event(logger, logging.WARNING, "a job can't be read", response_id=self.id, reason=str(failure))
            await self._let_go(failed=False)
            return AttemptOutcome.HANDED_BACK
        self._trace(plan)
        seals, tenant = self.service.seals, job.lease.tenant
        seal = await retry(lambda: seal_for(seals, tenant, plan.rules), self._patience)
        machine = machine_of(plan, seal, self.service.toolbox.cite)
        machine.queue()
        try:
            await self._replay(machine)
        except NewerFormat:
            return await self._leave_to_later_releases()
        self._claim.end()
        diverged = machine.next_number != job.last + 1
        if diverged:
            machine.diverge(job.last + 1)
        verdict = self._verdict(machine, plan, diverged=diverged)
        starts = job.last < QUEUED_EVENTS and job.status is not Status.CANCELLED
        tools = await retry(lambda: tools_of(self.service.toolbox, seals, tenant, plan), self._patience)
        driver, sink = self._driver_of(plan, machine, tools)
        sink.put(Taken(machine.start() if starts else []))
        if verdict is not None:
            return await self._finish(driver, sink, *verdict)
        return await self._sample(driver, sink)

    async def _leave_to_later_releases(self) -> AttemptOutcome:
        """Hand back, after a while, a job that this release can't read. It counts as no try."""
        logs.event(logger, logging.WARNING, "a job needs a later release", response_id=self.id)
        await self._rest(self.settings.lease_seconds / 2)
        await self._let_go(failed=False)
        return AttemptOutcome.HANDED_BACK

    async def _spec(self) -> bytes:
        """The spec of the response, read in pieces: together, the waiting specs may be too much for the store's link.

        Raises LeaseLost where the response has ended, and StoreUnavailable.
        """
        jobs, blob = self.service.jobs, bytearray()
        while True:
            patience = min(self._patience, self.settings.lease_seconds)
            piece = await retry(partial(jobs.spec, self.job.lease, len(blob)), patience)
            blob += piece
            if not blob:
                raise LeaseLost(self.id)
            if len(piece) < SPEC_PIECE_BYTES:
                return bytes(blob)

    def _driver_of(self, plan: Plan, machine: Machine, tools: Runner | None = None) -> tuple[Driver, LogSink]:
        """The driver of the rest, and its sink."""
        service, job = self.service, self.job
        # the engine may not have noticed yet that the last attempt is over
        id = f"{plan.generation.id}-{job.epoch}" if job.epoch > 1 else plan.generation.id
        priority = max(plan.generation.priority, SPARE_PRIORITY) if self.spares else plan.generation.priority
        generation = msgspec.structs.replace(plan.generation, id=id, tenant=job.lease.tenant, priority=priority)
        plan = msgspec.structs.replace(plan, generation=generation)
        sink = LogSink(
            service=service,
            lease=job.lease,
            machine=machine,
            on_tokens=self._get_further,
            patience=lambda: self._patience,
            timing=self.timing,
        )
        driver = Driver(
            plan=plan,
            machine=machine,
            finish=sink.finish,
            engine=service.engine,
            metrics=service.metrics,
            mode="background",
            since=self.began,
            seconds=self._seconds,
            clock=service.store.clock,
            tracing=service.tracing,
            tools=tools,
            use_up=use_up_for(service, job.lease.tenant, plan, job.lease.token),
            pictures=Pictures(service.pictured, service.store, job.lease.tenant, plan.id, (), self._patience),
        )
        return driver, sink

    async def _replay(self, machine: Machine) -> None:
        """Bring the machine to where the log ends."""
        sampled, logprobs, outcomes = bytearray(), list[TokenLogprobs](), list[ToolOutcome]()
        pieces = list[Piece]()
        after = QUEUED_EVENTS - 1
        cached: Cached = None
        if self.job.last > after:
            machine.start()
        while after < self.job.last:
            read = partial(self.service.jobs.log.read, self.job.lease.tenant, self.id, after, READ_ENTRIES)
            entries = await retry(read, self._patience)
            if not entries:
                break
            for entry in entries:
                part = decode_sampled(entry.blob)
                sampled += part.tokens
                logprobs += part.logprobs
                outcomes += part.outcomes
                pieces += part.pieces
                cached = cached if part.cached_tokens is None else part.cached_tokens
            after = entries[-1].last
            await asyncio.sleep(BRIEFLY)
        await in_steps(machine.replay(bytes(sampled), logprobs or None, outcomes, pieces))
        machine.stretches.note_again(cached)
        self.service.metrics.tokens_replayed.inc(machine.stretches.sampled)

    def _verdict(self, machine: Machine, plan: Plan, *, diverged: bool) -> tuple[Ending, ResponseError | None] | None:
        """How the response ends without another token; None where it goes on. It has `diverged` where its log is
        one that this machine would not have written.
        """
        job, settings = self.job, self.settings
        if job.status is Status.CANCELLED:
            return Ending.ABORT, None
        ending = None if diverged else ending_of(machine, plan.generation.sampling.max_tokens)
        if ending is not None:
            return ending, None
        if diverged:
            reason = "Its events so far were made by another release, and this one can't continue them."
        elif _stranded(machine):
            reason = STRANDED
        elif job.tries > settings.max_attempts:
            self.service.metrics.attempts_exhausted.inc()
            reason = f"{settings.max_attempts} workers in a row died or failed on it without getting any further."
        elif (job.age_seconds if job.last < QUEUED_EVENTS else job.waited_seconds) > MAX_QUEUED_SECONDS:
            reason = f"It waited for longer than {MAX_QUEUED_SECONDS:g} s. Try again later."
        elif self._seconds <= 0:
            return Ending.TIMEOUT, error_of(Ending.TIMEOUT, None, settings.max_run_seconds)
        else:
            return None
        return Ending.ERROR, ResponseError("server_error", reason)

    @property
    def _seconds(self) -> float:
        """The seconds left of the time that the response may take, over all attempts."""
        return self.settings.max_run_seconds - self._run_seconds

    @property
    def _patience(self) -> float:
        """The seconds for which calls are tried again while the store is away."""
        if self.own_patience is not None:
            return self.own_patience
        return max(self._seconds, self.settings.lease_seconds)

    @property
    def _run_seconds(self) -> float:
        """For how long the response has been under way, over all attempts."""
        return self.job.run_seconds + monotonic() - self.began

    async def _sample(self, driver: Driver, sink: LogSink) -> AttemptOutcome:
        """Sample the rest, writing it down as it comes."""
        replayed, self._driver = driver.machine.stretches.sampled, driver
        if self._lost or self.leaving:
            driver.stop()
        if self._steered:
            driver.steer()
        sink.start(driver.stop)
        try:
            await driver.sample(sink)
        finally:
            await sink.close()
        if self._lost or isinstance(sink.failure, LeaseLost):
            raise LeaseLost(self.id)
        if sink.failure is not None and not isinstance(sink.failure, LogFull):
            raise sink.failure
        return await self._after_sampling(driver, sink, further=driver.machine.stretches.sampled > replayed)

    async def _after_sampling(self, driver: Driver, sink: LogSink, *, further: bool) -> AttemptOutcome:
        """The generation has ended: so has the response, or somebody else goes on with it."""
        ending, failure = driver.run.ending, driver.run.failure
        if isinstance(sink.failure, LogFull):
            logs.event(logger, logging.WARNING, "an event log is full", response_id=self.id, reason=str(sink.failure))
            return await self._finish(driver, sink, Ending.ERROR, ResponseError("server_error", NO_ROOM))
        if self.leaving and ending is Ending.ABORT:
            await self._hand_back(sink, failed=False)
            return AttemptOutcome.HANDED_BACK
        broke_off = driver.machine.fault is None and ending in (Ending.ABORT, Ending.ERROR)
        if broke_off and not _stranded(driver.machine) and not self._final(failure, further):
            if self._serves_others(failure, driver.plan.generation.model):
                await self._rest(self.timing.model_away_seconds)
                self._gives_way = True  # to those whose models can be had
                await self._hand_back(sink, failed=False)
                return AttemptOutcome.HANDED_BACK
            away = ending is Ending.ABORT or isinstance(failure, EngineUnavailable)
            if away:
                self.on_engine_away()
            else:
                await self._rest(self.timing.retry_seconds)
            await self._hand_back(sink, failed=not away or isinstance(failure, EngineBroke))
            return AttemptOutcome.ENGINE_AWAY if away else AttemptOutcome.ENGINE_FAILED
        ending = Ending.ERROR if ending is Ending.ABORT else ending
        return await self._finish(driver, sink, ending, error_of(ending, failure, self.settings.max_run_seconds))

    def _serves_others(self, failure: Exception | None, model: str) -> bool:
        """Whether the model alone can't be had here, where others can: no reason to take no more jobs."""
        if isinstance(failure, EngineBroke) or not isinstance(failure, EngineUnavailable):
            return False
        return isinstance(failure, NotServed) or self.service.engine.others_serve(model)

    def _final(self, failure: Exception | None, further: bool) -> bool:
        """Whether there is no use in another attempt after the engine has failed."""
        if isinstance(failure, EngineUnavailable) and not isinstance(failure, EngineBroke):
            return False
        return isinstance(failure, EngineRefused) or (self.job.tries >= self.settings.max_attempts and not further)

    async def _rest(self, seconds: float) -> None:
        """Wait, unless somebody wants it to stop."""
        with suppress(TimeoutError):
            async with asyncio.timeout(seconds):
                await self.stopped.wait()

    async def _hand_back(self, sink: LogSink, *, failed: bool) -> None:
        await sink.flush()
        if isinstance(sink.failure, LeaseLost):
            raise sink.failure
        await self._let_go(failed=failed)
        self.service.metrics.jobs_handed_back.inc()

    async def _let_go(self, *, failed: bool) -> None:
        """Put the job back into the queue, also where the store is away for a while: its lease keeps others from it."""
        hand_back = partial(self.service.jobs.hand_back, self.job.lease, failed=failed, gives_way=self._gives_way)
        await retry(hand_back, self.settings.lease_seconds)

    async def _finish(
        self, driver: Driver, sink: LogSink, ending: Ending, error: ResponseError | None
    ) -> AttemptOutcome:
        """End the response: the last events of its log, and its turn."""
        await driver.end(sink, ending, error)
        self.response = driver.response
        if driver.plan.reserved:
            self.service.tenants.entrance.settle(self.job.lease.tenant, Over(driver.plan.id, driver.spent))
        if self._driver is not None or self.job.last >= QUEUED_EVENTS:  # it has begun, here or elsewhere
            self.service.metrics.run_seconds.observe(self._run_seconds)
        return AttemptOutcome.ENDED

    async def _give_up(self) -> AttemptOutcome:
        """End a job that no worker can read, from the turn that the store holds of it.

        A fault in its plan or its log has ended attempt after attempt before anything of it was known. Without this it
        would do so for ever, and its callers would never learn.
        """
        job, store, tenant = self.job, self.service.store, self.job.lease.tenant
        accepted = decode_response((await store.find(tenant, self.id)).response)
        path = await store.lineage(tenant, self.id)
        plan = Plan(
            base=accepted,
            generation=Generation(self.id, (), Sampling(0)),
            parent=path[-2] if len(path) > 1 else None,
            stored=True,
            messages=(),
            items=(await store.items(tenant, [self.id]))[0][1],
            rules=Rules(),
        )
        machine = machine_of(plan)
        machine.diverge(job.last + 1)
        driver, sink = self._driver_of(plan, machine)
        logs.event(logger, logging.ERROR, "a job can't be read, and is given up", response_id=self.id, tries=job.tries)
        cancelled = job.status is Status.CANCELLED
        error = None if cancelled else ResponseError("server_error", UNREADABLE)
        return await self._finish(driver, sink, Ending.ABORT if cancelled else Ending.ERROR, error)


def _stranded(machine: Machine) -> bool:
    """Whether a response has said something that only the generation under way can go on from: its server takes words,
    and can't be asked to go on in the middle of a turn.
    """
    return machine.stretches.at_once and machine.phase is Phase.SAMPLING and bool(machine.stretches.tail)
