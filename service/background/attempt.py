"""One attempt at a background response: from a job as it was claimed to its end, or to where somebody else goes on.

    replay ─▶ sample ─▶ end ─▶ finish

What earlier attempts sampled is read from the log and fed to a new machine, which then stands where theirs stood; the
engine goes on behind it. So an attempt that dies costs time, and no token that anybody has seen. Cancelling ends in
the same way, by whoever cancelled: its attempt has nothing to sample. Every write carries the lease, and the first one
that is refused ends the attempt without another word.
"""

import asyncio
import logging
from collections.abc import Callable
from contextlib import aclosing, suppress
from enum import Enum
from functools import partial
from time import monotonic

import msgspec

from service import logs
from service.api.response import Response, ResponseError
from service.background.closing import give_up
from service.background.log_sink import LogWriter, persistently
from service.engine.port import EngineBroke, EngineError, EngineRefused, EngineUnavailable
from service.metrics.counters import Pace
from service.responses.course import ended
from service.responses.output.items.emitter import Seal
from service.responses.output.journal import Batch, Odds, decode_sampled, encode_batch
from service.responses.output.machine import Ending, Machine
from service.responses.output.usage import Cached
from service.responses.plan import JobSpec, decode, generation_of, machine_of
from service.responses.prepare import sealing
from service.responses.sampler import Sampler, error_of
from service.responses.service import Service
from service.steps import BRIEFLY, in_steps
from store.errors import LeaseLost, LogBehind, LogFull, NewerFormat, StoreError
from store.jobs.log import Entry
from store.jobs.model import Job
from store.turn import Status, Turn

logger = logging.getLogger(__name__)

QUEUED_EVENTS = 2
"""How many events the log has before a worker begins: response.created and response.queued."""

READ_ENTRIES = 256
"""The most entries of a log that are read and decoded at once: a millisecond's work or two."""

RETRY_SECONDS = 0.5
"""How long a job is kept from the next attempt when the engine has failed with it, so that a fault isn't asked for
again and again as fast as that goes."""

_JSON = msgspec.json.Encoder()


class Outcome(Enum):
    """What became of an attempt."""

    ENDED = "ended"  # the response has ended, and is stored
    HANDED_BACK = "handed back"  # the process is leaving, or the log lost its end, and somebody else goes on
    ENGINE_AWAY = "engine away"  # the engine is down or has no room, and somebody goes on when it is back
    ENGINE_FAILED = "engine failed"  # the engine failed with this one, and somebody tries again
    LOST = "lost"  # somebody else has the lease, or the response has ended


class Attempt:
    """An attempt at a job whose lease this process holds. Call `make` once."""

    def __init__(
        self,
        service: Service,
        job: Job,
        *,
        patience: float | None = None,
        on_progress: Callable[[], None] = lambda: None,
    ) -> None:
        """`patience` is for how many seconds the end is tried to be stored while the store is away: by default for as
        long as the response may take. `on_progress` is called once tokens are in the log that were not there before.
        """
        self.job = job
        self.id = job.lease.id
        self.response: Response | None = None
        """The response, once it has ended."""
        self.further = False
        """Whether tokens are in the log that were not there before."""
        self._on_progress = on_progress
        self._patience = patience
        self._service = service
        self._settings = service.settings
        self._sampler: Sampler | None = None
        self._lost = False
        self._told = asyncio.Event()
        """Set once somebody wants it to stop."""
        self._cancelled = False
        self._leaving = False
        self._began = monotonic()
        self._pace = Pace(self._began)

    def lose(self, *, cancelled: bool = False) -> None:
        """Somebody else has the lease, or cancelled the response: stop at once, and write no more. Never blocks."""
        self._lost = True
        self._cancelled = self._cancelled or cancelled
        self._stop()

    def leave(self) -> None:
        """Stop soon, write down what was sampled, and let somebody else go on. Never blocks."""
        self._leaving = True
        self._stop()

    def _stop(self) -> None:
        self._told.set()
        if self._sampler is not None:
            self._sampler.stop()

    def _get_further(self) -> None:
        if not self.further:
            self.further = True
            self._on_progress()

    async def make(self) -> Outcome:
        """Make the attempt. Raises StoreUnavailable where the store stayed away; the lease then ends by itself."""
        try:
            return await self._make()
        except LeaseLost:
            if not await self._is_cancelled():
                self._service.metrics.leases_lost.inc()
            return Outcome.LOST
        except LogBehind as gap:
            logs.event(logger, logging.WARNING, "the end of an event log is lost", response_id=self.id, reason=str(gap))
            await self._service.jobs.hand_back(self.job.lease, failed=False)
            return Outcome.HANDED_BACK

    async def _is_cancelled(self) -> bool:
        """Whether the lease went because the response was cancelled, of which a refused write may be the first word."""
        if self._cancelled or self.job.status is Status.CANCELLED:
            return True
        try:
            return (await self._service.store.look(self.job.lease.tenant, self.id)).status is Status.CANCELLED
        except StoreError:  # nobody knows
            return False

    async def _make(self) -> Outcome:
        if self.job.tries > self._settings.max_attempts + 1:  # it can't even be read without dying of it
            await give_up(self._service, self.job)
            return Outcome.ENDED
        try:
            spec = await decode(self.job.spec)
        except NewerFormat:
            logs.event(logger, logging.WARNING, "a job is for a later release", response_id=self.id)
            await self._rest(self._settings.lease_seconds / 2)
            await self._service.jobs.hand_back(self.job.lease, failed=False)
            return Outcome.HANDED_BACK
        machine = machine_of(spec, await self._seal(spec))
        machine.queued()
        await self._replay(machine)
        foreign = machine.next_number != self.job.last + 1
        if foreign:
            machine.go_on_at(self.job.last + 1)
        verdict = self._verdict(machine, spec, foreign=foreign)
        starts = self.job.last < QUEUED_EVENTS and self.job.status is not Status.CANCELLED
        begun = Batch(machine.start() if starts else [], b"", machine.cached_tokens)
        if verdict is not None:
            return await self._finish(spec, machine, begun, *verdict)
        return await self._sample(spec, machine, begun)

    async def _seal(self, spec: JobSpec) -> Seal | None:
        """What closes the parts of the response that are sealed."""
        rules, tenant = spec.rules, self.job.lease.tenant
        if rules is None:
            return None
        return await persistently(lambda: sealing(self._service, tenant, rules), self._keeps_on)

    async def _replay(self, machine: Machine) -> None:
        """Bring the machine to where the log ends."""
        sampled, logprobs, after = bytearray(), list[Odds](), QUEUED_EVENTS - 1
        cached: Cached = None
        if self.job.last > after:
            machine.start()
        while after < self.job.last:
            entries = await persistently(partial(self._read, after), self._keeps_on)
            if not entries:
                break
            for entry in entries:
                part = decode_sampled(entry.blob)
                sampled += part.tokens
                logprobs += part.logprobs
                cached = cached if part.cached_tokens is None else part.cached_tokens
            after = entries[-1].last
            await asyncio.sleep(BRIEFLY)
        await in_steps(machine.replay(bytes(sampled), logprobs or None))
        machine.stretches.note_again(cached)
        self._service.metrics.tokens_replayed.inc(machine.sampled)

    async def _read(self, after: int) -> list[Entry]:
        return await self._service.log.read(self.job.lease.tenant, self.id, after, READ_ENTRIES)

    def _verdict(self, machine: Machine, spec: JobSpec, *, foreign: bool) -> tuple[Ending, ResponseError | None] | None:
        """How the response ends without another token; None where it goes on. A `foreign` log is one that this machine
        would not have written.
        """
        job, settings = self.job, self._settings
        if job.status is Status.CANCELLED:
            return Ending.ABORT, None
        if foreign:
            reason = "Its events so far were made by another release, and this one can't continue them."
            return Ending.ERROR, ResponseError("server_error", reason)
        ending = ended(machine, spec.sampling.max_tokens)
        if ending is not None:
            return ending, None
        if job.tries > settings.max_attempts:
            self._service.metrics.attempts_exhausted.inc()
            reason = f"{settings.max_attempts} workers in a row died or failed on it without getting any further."
            return Ending.ERROR, ResponseError("server_error", reason)
        if job.last < QUEUED_EVENTS and job.age_seconds > settings.max_queued_seconds:
            reason = f"It waited for longer than {settings.max_queued_seconds:g} s. Try again later."
            return Ending.ERROR, ResponseError("server_error", reason)
        if self._seconds <= 0:
            return Ending.TIMEOUT, error_of(Ending.TIMEOUT, None, settings.max_run_seconds)
        return None

    @property
    def _seconds(self) -> float:
        """What is left of the time that the response may take, over all attempts."""
        return self._settings.max_run_seconds - self._run_seconds

    @property
    def _keeps_on(self) -> float:
        """For how many seconds what has to be done is tried while the store is away."""
        return max(self._seconds, self._settings.lease_seconds) if self._patience is None else self._patience

    @property
    def _run_seconds(self) -> float:
        """For how long the response has been under way, over all attempts."""
        return self.job.run_seconds + monotonic() - self._began

    async def _sample(self, spec: JobSpec, machine: Machine, begun: Batch) -> Outcome:
        """Sample what is left, writing it down as it comes."""
        service, replayed = self._service, machine.sampled
        generation = generation_of(spec)
        if self.job.epoch > 1:  # the engine may not have noticed yet that the last attempt is over
            generation = msgspec.structs.replace(generation, id=f"{self.id}-{self.job.epoch}")
        sampler = Sampler(service.engine, generation, machine, seconds=self._seconds)
        self._sampler = sampler
        if self._lost or self._leaving:
            sampler.stop()
        writer = LogWriter(
            service.jobs,
            self.job.lease,
            service.metrics,
            begun,
            snapshot=machine.snapshot,
            stop=sampler.stop,
            on_tokens=self._get_further,
            seconds=self._seconds,
        )
        try:
            async with aclosing(sampler.steps()) as steps:
                async for step in steps:
                    self._pace.note(step.events)
                    writer.add(step, sampler.cached_tokens)
                    await writer.room()
        finally:
            await writer.close()
        if self._lost or isinstance(writer.failure, LeaseLost):
            raise LeaseLost(self.id)
        if writer.failure is not None and not isinstance(writer.failure, LogFull):
            raise writer.failure
        return await self._over(spec, machine, sampler, writer, further=machine.sampled > replayed)

    async def _over(
        self, spec: JobSpec, machine: Machine, sampler: Sampler, writer: LogWriter, *, further: bool
    ) -> Outcome:
        """The generation is over: so is the response, or somebody else goes on with it."""
        ending, failure = sampler.ending, sampler.failure
        if isinstance(writer.failure, LogFull):
            logs.event(logger, logging.WARNING, "an event log is full", response_id=self.id, reason=str(writer.failure))
            return await self._finish(spec, machine, writer.take(), Ending.LENGTH, None, writer)
        if self._leaving and ending is Ending.ABORT:
            await self._hand_back(writer, failed=False)
            return Outcome.HANDED_BACK
        if failure is not None:
            self._service.metrics.engine_failed(failure)
        if machine.fault is None and ending in (Ending.ABORT, Ending.ERROR) and not self._final(failure, further):
            away = ending is Ending.ABORT or isinstance(failure, EngineUnavailable)
            if not away:
                await self._rest(RETRY_SECONDS)
            await self._hand_back(writer, failed=not away or isinstance(failure, EngineBroke))
            return Outcome.ENGINE_AWAY if away else Outcome.ENGINE_FAILED
        ending = Ending.ERROR if ending is Ending.ABORT else ending
        error = error_of(ending, failure, self._settings.max_run_seconds)
        return await self._finish(spec, machine, writer.take(), ending, error, writer)

    def _final(self, failure: EngineError | None, further: bool) -> bool:
        """Whether there is no use in another attempt after the engine has failed."""
        if isinstance(failure, EngineUnavailable) and not isinstance(failure, EngineBroke):
            return False
        return isinstance(failure, EngineRefused) or (self.job.tries >= self._settings.max_attempts and not further)

    async def _rest(self, seconds: float) -> None:
        """Wait, unless somebody wants it to stop."""
        with suppress(TimeoutError):
            async with asyncio.timeout(seconds):
                await self._told.wait()

    async def _hand_back(self, writer: LogWriter, *, failed: bool) -> None:
        await writer.write()
        if isinstance(writer.failure, LeaseLost):
            raise writer.failure
        await self._service.jobs.hand_back(self.job.lease, failed=failed)
        self._service.metrics.jobs_handed_back.inc()

    async def _finish(
        self,
        spec: JobSpec,
        machine: Machine,
        rest: Batch,
        ending: Ending,
        error: ResponseError | None,
        writer: LogWriter | None = None,
    ) -> Outcome:
        """Store the turn, with the last events of its log."""
        service = self._service
        events = rest.events + machine.end(ending)
        response = machine.result(ending, now=int(service.clock()), error=error)
        events += machine.terminal(response)
        entry = Entry(events[-1].sequence_number, encode_batch(msgspec.structs.replace(rest, events=events)))
        turn = Turn(
            id=self.id,
            parent=spec.parent,
            status=Status(response.status),
            messages=(*spec.messages, *machine.messages),
            response=_JSON.encode(response),
            items=spec.items,
        )
        after, announced = events[0].sequence_number - 1, bool(self._settings.webhook_url)
        dropped = await (persistently if writer is None else writer.whole)(
            lambda: service.jobs.finish(self.job.lease, turn, entry, after=after, announced=announced),
            self._keeps_on,
        )
        self.response = response
        service.metrics.webhooks.labels("given_up").inc(dropped)
        service.metrics.ended("background", response, self._pace)
        if self._sampler is not None or self.job.last >= QUEUED_EVENTS:  # it has begun, here or elsewhere
            service.metrics.run_seconds.observe(self._run_seconds)
        return Outcome.ENDED
