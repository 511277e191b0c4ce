"""Where the run of a background response is kept: its events in the job's log, and its turn in the store.

Events are written in batches, each with the tokens that made it. A batch is the events of `batch_seconds`, so that a
stream costs Redis little and followers wait no longer than that. While the store is away the sink tries again, and the
run waits for it: nothing is sampled that can't be kept. A server that comes back may lack the last writes, as it writes
to disk once a second, and so may the replica that takes its place: they are written again. Once the lease is lost
nothing more is written; somebody else goes on from the log.
"""

import asyncio
import logging
from collections import deque
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import NamedTuple, TypeVar

import msgspec

from service import spans
from service.api.events import Event
from service.api.response import Extensions, Response, ResponseStatus
from service.api.steer import NotSteered
from service.background.submit import give_back, succeed
from service.background.timing import TIMING, Timing
from service.logs import event
from service.responses.append import mark_unconfirmed
from service.responses.output.journal import Batch, batch_of, encode_batch
from service.responses.output.machine import Machine
from service.responses.plan import Plan, turn_of
from service.responses.refusals import refusal_of
from service.responses.run import Taken
from service.responses.service import Service
from service.store_away import retry
from store import errors
from store.jobs.log import LogEntry
from store.jobs.model import Lease, Steer, Successor

MAX_WAITING_EVENTS = 2_000
"""The most events that wait to be written, before the run waits for that: some 2 ms of encoding."""

SNAPSHOT_EVENTS = 1_000
"""After so many events a snapshot spares readers the log before it: reading the rest takes some milliseconds."""

logger = logging.getLogger(__name__)

T = TypeVar("T")


class _Written(NamedTuple):
    """An entry of the log: when it was written, by the loop's clock, and the event that it comes behind."""

    at: float
    after: int
    entry: LogEntry
    progress: bool


@dataclass(eq=False, kw_only=True)
class LogSink:
    """The outlet and the end of one attempt at one job, whose lease this process holds."""

    service: Service
    lease: Lease
    machine: Machine
    on_tokens: Callable[[], None]
    """Called each time that tokens were written."""
    patience: Callable[[], float]
    """For how many seconds the store may be away."""
    timing: Timing = TIMING
    failure: errors.LeaseLost | errors.LogBehind | errors.LogFull | errors.StoreUnavailable | None = field(
        default=None, init=False
    )
    """Why nothing more can be written, once that is so."""

    def __post_init__(self) -> None:
        self._jobs, self._metrics = self.service.jobs, self.service.metrics
        self._pacing = self.service.tenants.pacing
        self._stop: Callable[[], None] = lambda: None
        self._steps: list[Taken] = []
        """The steps that wait to be written."""
        self._waiting = 0
        """How many events they have."""
        self._since_snapshot = 0
        self._kept: deque[_Written] = deque()
        """The batches written last."""
        self._timer: asyncio.TimerHandle | None = None
        self._writing = False
        self._due = asyncio.Event()
        self._written = asyncio.Event()
        self._closed = False
        self._task: asyncio.Task[None] | None = None

    def start(self, stop: Callable[[], None]) -> None:
        """Write events from now on as soon as they are due, until `close`; `stop` ends the run where no more can be
        kept.
        """
        self._stop = stop
        self._task = asyncio.create_task(self._write_for_ever())

    def put(self, taken: Taken) -> bool:
        """See Outlet. `close` raises the error of a writer that failed."""
        self._steps.append(taken)
        self._waiting += len(taken.events)
        if self._timer is None and self._waiting:
            self._timer = asyncio.get_running_loop().call_later(self.timing.batch_seconds, self._due.set)
        return self._waiting <= MAX_WAITING_EVENTS and not self._pacing.crowded(self.lease.tenant)

    async def room(self) -> None:
        """See Outlet. Nothing is sampled that can't be kept."""
        await self._pacing.go_on(self.lease.tenant)
        await self._write_while(lambda: self._waiting > MAX_WAITING_EVENTS)

    async def settle(self) -> None:
        await self._write_while(lambda: self._waiting > 0 or self._writing)

    async def _write_while(self, condition: Callable[[], bool]) -> None:
        """Have batches written at once while the condition holds, unless nothing more can be written."""
        while condition() and self.failure is None and self._task is not None and not self._task.done():
            self._due.set()
            self._written.clear()
            await self._written.wait()

    async def close(self) -> None:
        """Write no more than the batch under way; the rest waits for `flush` or `finish`."""
        self._closed = True
        self._due.set()
        if self._task is not None:
            await self._task

    async def _write_for_ever(self) -> None:
        """Write due batches, until closed or refused. A write that has begun is never broken off: it may be carried
        out all the same, and the next write has to know."""
        try:
            while not self._closed and self.failure is None:
                await self._due.wait()
                self._due.clear()
                if not self._closed:
                    await self.flush()
        except BaseException:
            self._stop()
            raise
        finally:
            self._written.set()

    async def flush(self) -> None:
        """Write the waiting batch, if it has events. An error leaves it waiting, is `failure`, and ends the run."""
        if not self._waiting:
            return
        steps, batch, self._writing = self._steps, self._take(), True
        entry = LogEntry(batch.events[-1].sequence_number, encode_batch(batch))
        after, progress = batch.events[0].sequence_number - 1, bool(batch.tokens or batch.outcomes)
        self._since_snapshot += len(batch.events)
        snapshot = b""
        if self._since_snapshot >= SNAPSHOT_EVENTS:
            self._since_snapshot, snapshot = 0, msgspec.json.encode(self.machine.snapshot())
        try:
            await self._complete(
                lambda: self._jobs.write(self.lease, entry, after=after, progress=progress, snapshot=snapshot)
            )
        except (errors.LeaseLost, errors.LogBehind, errors.LogFull, errors.StoreUnavailable) as failure:
            self.failure = failure
            self._steps = steps + self._steps
            self._waiting += len(batch.events)
            self._stop()
        else:
            self._metrics.event_log_writes.inc()
            self._metrics.event_log_bytes.inc(len(entry.blob))
            now = asyncio.get_running_loop().time()
            self._kept.append(_Written(now, after, entry, progress))
            while self._kept[0].at < now - self.timing.kept_seconds:
                self._kept.popleft()
            if progress:
                self.on_tokens()
        finally:
            self._writing = False
            self._written.set()

    async def finish(self, plan: Plan, machine: Machine, response: Response) -> list[Event]:
        """Store the turn of a response that has ended, with the last events of its log; the terminal ones.

        Steers that came meanwhile are the input of another response that begins at the same moment, or are given back.
        A steer that comes before the write is done makes it start anew.
        """
        rest, steers = self._take(), list[Steer]()
        if machine.asked and response.status is not ResponseStatus.FAILED:
            asking = partial(self.service.toolbox.approvals.ask, self.lease.tenant, plan.id, machine.asked)
            await retry(asking, self.patience())
        while True:
            try:
                return await self._end(rest, plan, response, steers)
            except errors.Steered:
                steers = await retry(partial(self._jobs.steers, self.lease), self.patience())

    async def _end(self, rest: Batch, plan: Plan, response: Response, steers: list[Steer]) -> list[Event]:
        """End the response, to which `steers` were said; `rest` waits to be written. Raises Steered for others."""
        before: list[Event] = []
        if steers:
            try:
                async with succeed(
                    self.service, self.lease.tenant, plan, self.machine, response, steers, self.patience()
                ) as successor:
                    succeeded = Extensions.extend(response, succeeded_by=successor.turn.id)
                    return await self._store(rest, plan, succeeded, (), steers, successor)
            except NotSteered as why:
                before, response = give_back(response, steers, why)
            except (errors.QueueFull, errors.StoreFull, errors.TurnTooLarge, errors.NotContinuable) as refusal:
                why = NotSteered("successor_creation_failed", refusal_of(refusal).message)
                before, response = give_back(response, steers, why)
        return await self._store(rest, plan, response, before, steers)

    async def _store(
        self,
        rest: Batch,
        plan: Plan,
        response: Response,
        before: Sequence[Event],
        steers: list[Steer],
        successor: Successor | None = None,
    ) -> list[Event]:
        """Store the end, with `before` in front of the terminal events, and with a successor where there is one."""
        terminal = self.machine.terminal(response, before)
        batch = msgspec.structs.replace(rest, events=[*rest.events, *terminal])
        entry = LogEntry(batch.events[-1].sequence_number, encode_batch(batch))
        said = self.service.said_after(plan.said, response.output)
        turn, after = turn_of(plan, self.machine, response, said), batch.events[0].sequence_number - 1
        announced = self.service.announces and plan.announced
        store = self._jobs.finish if successor is None else partial(self._jobs.succeed, successor=successor)
        end = partial(store, self.lease, turn, entry, after=after, announced=announced, steers=steers)
        with spans.current.get().child("store.append"):
            try:
                finished = await self._complete(end)
            except errors.StoreUnconfirmed as lack:  # it has ended all the same
                mark_unconfirmed(response, lack)
            else:
                self._metrics.webhooks.labels("given_up").inc(finished.dropped)
                if reason := finished.unjoined:
                    event(logger, logging.INFO, "not added to its conversation", response_id=plan.id, reason=reason)
        self._note_steers(plan.id, steers, successor)
        return terminal

    def _note_steers(self, id: str, steers: list[Steer], successor: Successor | None) -> None:
        """Count and log the outcome of the steers, now that it is stored."""
        if not steers:
            return
        outcome, next_one = "failed", None
        if successor is not None:
            outcome, next_one = "applied", successor.turn.id
            self._metrics.jobs_submitted.inc()
        self._metrics.steers.labels("background", outcome).inc(len(steers))
        event(logger, logging.INFO, f"steers {outcome}", response_id=id, steers=len(steers), successor_id=next_one)

    async def _complete(self, work: Callable[[], Awaitable[T]]) -> T:
        """Do `work` on the log, again while the store is away; where the log's end is lost, write that again first.

        Raises what `work` raises, and LogBehind where more is lost than is known here.
        """
        try:
            return await retry(work, self.patience())
        except errors.LogBehind as gap:
            lost = [each for each in self._kept if each.entry.last > gap.last]
            if not lost or lost[0].after != gap.last:
                raise
            event(logger, logging.WARNING, "the end of an event log is written again", reason=str(gap))
        for each in lost:
            await retry(
                lambda each=each: self._jobs.write(self.lease, each.entry, after=each.after, progress=each.progress),
                self.patience(),
            )
        return await retry(work, self.patience())

    def _take(self) -> Batch:
        """The batch that waits, to be written by the caller."""
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        steps, self._steps, self._waiting = self._steps, [], 0
        return Batch(
            [event for step in steps for event in step.events],
            batch_of([token for step in steps for token in step.tokens]),
            self.machine.stretches.cached,
            [each for step in steps for each in step.logprobs or ()],
            [step.outcome for step in steps if step.outcome is not None],
            [piece for step in steps for piece in step.pieces],
        )
