"""What a worker writes to a job's event log: the events of its steps, in batches, each with the tokens that made it.

A batch is what came in BATCH_SECONDS, so that a stream costs Redis little and followers wait no longer than that. While
the store is away the writer tries again, and the run waits for it: nothing is sampled that can't be kept. A server that
comes back may lack what it was told last, as it writes to disk once a second, and so may the replica that takes its
place: it is told again. Once the lease is lost nothing more is written; somebody else goes on from what is there.
"""

import asyncio
import logging
import random
from collections import deque
from collections.abc import Awaitable, Callable
from typing import NamedTuple, TypeVar

import msgspec

from service.api.events import Event
from service.api.response import Response
from service.engine.port import TokenLogprobs
from service.logs import event
from service.metrics.counters import Metrics
from service.responses.output.journal import Batch, encode_batch, journaled
from service.responses.output.usage import Cached
from service.responses.sampler import Step
from store.errors import LeaseLost, LogBehind, LogFull, StoreUnavailable
from store.jobs.jobs import Jobs
from store.jobs.log import Entry
from store.jobs.model import Lease

BATCH_SECONDS = 0.02
"""How long an event waits for others, before they go into the log together."""

MAX_WAITING_EVENTS = 2_000
"""The most events that wait to be written, before the run waits for that: some 2 ms of encoding."""

SNAPSHOT_EVENTS = 1_000
"""After so many events a snapshot spares readers the log before it: what is left to read takes some milliseconds."""

KEPT_SECONDS = 4.0
"""For how long an entry is kept after it was written, to be written again. A server that syncs once a second loses two
seconds at most."""

FIRST_PAUSE_SECONDS = 0.05
MAX_PAUSE_SECONDS = 1.0
"""The longest pause before the store is tried again for the first time; each further one may be twice as long, up to
the maximum."""

logger = logging.getLogger(__name__)

_JSON = msgspec.json.Encoder()

T = TypeVar("T")
Snapshot = Callable[[], Response]


class _Written(NamedTuple):
    """An entry of the log: when it was written, by the loop's clock, and what it comes behind."""

    at: float
    after: int
    entry: Entry
    progress: bool


class LogWriter:
    """The writer of one attempt at one job: enter it, `add` what comes, then `close` it."""

    def __init__(
        self,
        jobs: Jobs,
        lease: Lease,
        metrics: Metrics,
        begun: Batch,
        *,
        snapshot: Snapshot,
        stop: Callable[[], None],
        on_tokens: Callable[[], None],
        seconds: float,
    ) -> None:
        """`begun` is what there is already, `snapshot` gives the response as it stands, `stop` ends the run, and
        `on_tokens` is told each time that tokens were written. The store may be away for `seconds`.
        """
        self._jobs = jobs
        self._lease = lease
        self._metrics = metrics
        self._snapshot = snapshot
        self._stop = stop
        self._on_tokens = on_tokens
        self._seconds = seconds
        self._events: list[Event] = []
        self._tokens: list[int] = []
        self._logprobs: list[TokenLogprobs] = []
        """One a token, or none at all."""
        self._cached = begun.cached_tokens
        self._since_snapshot = 0
        self._kept: deque[_Written] = deque()
        """What was written last."""
        self._timer: asyncio.TimerHandle | None = None
        self._due = asyncio.Event()
        self._written = asyncio.Event()
        self._closed = False
        self._task = asyncio.create_task(self._write_for_ever())
        self.add(Step([], begun.events), None)
        self.failure: LeaseLost | LogBehind | LogFull | StoreUnavailable | None = None
        """Why nothing more can be written, once that is so."""

    def add(self, step: Step, cached_tokens: Cached) -> None:
        """Take what came of a chunk, to be written soon, and how much of the prompt was cached, where that is known."""
        self._tokens += step.tokens
        self._logprobs += step.logprobs or ()
        self._events += step.events
        if cached_tokens is not None:
            self._cached = cached_tokens
        if self._timer is None and self._events:
            self._timer = asyncio.get_running_loop().call_later(BATCH_SECONDS, self._due.set)

    async def room(self) -> None:
        """Wait until not too much waits to be written, or nobody writes any more, which `close` tells of."""
        while len(self._events) > MAX_WAITING_EVENTS and self.failure is None and not self._task.done():
            self._due.set()
            self._written.clear()
            await self._written.wait()

    async def close(self) -> None:
        """Write no more than what is being written; the rest is the caller's, to `write` or to `take`."""
        self._closed = True
        self._due.set()
        await self._task

    async def _write_for_ever(self) -> None:
        """Write what is due, until closed or refused. A write that has begun is never broken off: it may be carried
        out all the same, and whoever writes next has to know."""
        try:
            while not self._closed and self.failure is None:
                await self._due.wait()
                self._due.clear()
                if not self._closed:
                    await self.write()
        except BaseException:
            self._stop()
            raise
        finally:
            self._written.set()

    async def write(self) -> None:
        """Write what waits, if there are events. What can't be written waits on; it is `failure`, and ends the run."""
        if not self._events:
            return
        events, ids, logprobs = self._events, self._tokens, self._logprobs
        batch = self.take()
        entry = Entry(batch.events[-1].sequence_number, encode_batch(batch))
        after, progress = batch.events[0].sequence_number - 1, bool(batch.tokens)
        self._since_snapshot += len(batch.events)
        snapshot = b""
        if self._since_snapshot >= SNAPSHOT_EVENTS:
            self._since_snapshot, snapshot = 0, _JSON.encode(self._snapshot())
        try:
            await self.whole(
                lambda: self._jobs.write(self._lease, entry, after=after, progress=progress, snapshot=snapshot),
                self._seconds,
            )
        except (LeaseLost, LogBehind, LogFull, StoreUnavailable) as failure:
            self.failure = failure
            self._events, self._tokens = events + self._events, ids + self._tokens
            self._logprobs = logprobs + self._logprobs
            self._stop()
        else:
            self._metrics.log_entries.inc()
            self._metrics.log_bytes.inc(len(entry.blob))
            self._keep(_Written(asyncio.get_running_loop().time(), after, entry, progress))
            if progress:
                self._on_tokens()
        finally:
            self._written.set()

    async def whole(self, work: Callable[[], Awaitable[T]], seconds: float) -> T:
        """Do persistently what adds to the log; where the log's end is lost, write that again first.

        Raises what `work` raises, and LogBehind where more is lost than is known here.
        """
        try:
            return await persistently(work, seconds)
        except LogBehind as gap:
            lost = [each for each in self._kept if each.entry.last > gap.last]
            if not lost or lost[0].after != gap.last:
                raise
            event(logger, logging.WARNING, "the end of an event log is written again", reason=str(gap))
        for each in lost:
            await persistently(
                lambda each=each: self._jobs.write(self._lease, each.entry, after=each.after, progress=each.progress),
                seconds,
            )
        return await persistently(work, seconds)

    def _keep(self, written: _Written) -> None:
        self._kept.append(written)
        while self._kept[0].at < written.at - KEPT_SECONDS:
            self._kept.popleft()

    def take(self) -> Batch:
        """What waits, which is then the caller's to write."""
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        batch = Batch(self._events, journaled(self._tokens), self._cached, tuple(self._logprobs))
        self._events, self._tokens, self._logprobs = [], [], []
        return batch


async def persistently(work: Callable[[], Awaitable[T]], seconds: float) -> T:
    """Do what is harmless to repeat, again while the store is away, for so long. Raises what `work` raises."""
    loop = asyncio.get_running_loop()
    give_up, pause = loop.time() + seconds, FIRST_PAUSE_SECONDS
    while True:
        try:
            return await work()
        except StoreUnavailable:
            if loop.time() >= give_up:
                raise
        await asyncio.sleep(pause * random.uniform(0.5, 1))
        pause = min(MAX_PAUSE_SECONDS, 2 * pause)
