"""A response under way whose event log grows at will: written by the worker's own LogSink, without a worker's pace.

What the log is like depends on how many tokens come into a batch: two where a model makes 100 a second, many where an
engine is fast. The snapshots are the LogSink's. Nothing here may measure.
"""

from itertools import cycle
from typing import Self

from bench._background.processes import submit
from bench._prepared import HEADER, PROSE_WORDS
from service.background.log_sink import SNAPSHOT_EVENTS, LogSink
from service.features.demo.prose import story
from service.harmony import tokens
from service.responses.drive import machine_of
from service.responses.output.machine import Machine
from service.responses.plan import decode
from service.responses.run import Taken
from service.responses.service import Service
from store.jobs.model import Job

STORE_SECONDS = 10.0


class Growing:
    """A response that was claimed by this process, and is written in batches of `size` tokens."""

    def __init__(self, job: Job, machine: Machine, sink: LogSink, size: int) -> None:
        self.job = job
        self.id = job.lease.id
        self.tokens = 0
        self.events = 0
        self._machine = machine
        self._sink = sink
        self._size = size
        self._since_snapshot = 0
        self._header: list[int] = list(HEADER)
        self._prose = cycle(tokens.encode("".join(story(PROSE_WORDS))))

    @classmethod
    async def begin(cls, service: Service, size: int) -> Self:
        """A new response, with nothing said so far. Nobody else may have submitted any."""
        id = await submit(service, "Write.")
        (job,) = (await service.jobs.claim(0, 1)).jobs
        if job.lease.id != id:
            raise RuntimeError("somebody else's job was claimed")
        machine = machine_of(await decode(await service.jobs.spec(job.lease), service.readings.restore))
        machine.queue()
        sink = LogSink(
            service=service,
            lease=job.lease,
            machine=machine,
            on_tokens=lambda: None,
            patience=lambda: STORE_SECONDS,
        )
        sink.put(Taken(machine.start()))
        sink.start(lambda: None)
        return cls(job, machine, sink, size)

    async def grow(self, count: int) -> None:
        """Write until at least `count` tokens are there, and on until the next write would take a snapshot: what a
        reader has to fold is longest then."""
        while self.tokens < count or self._since_snapshot + self._size < SNAPSHOT_EVENTS:
            ids = [*self._header, *(next(self._prose) for _ in range(self._size - len(self._header)))]
            self._header = []
            taken = Taken(self._machine.feed(ids), ids)
            self._sink.put(taken)
            await self._sink.flush()
            if self._sink.failure is not None:
                raise self._sink.failure
            self.tokens += len(ids)
            self.events += len(taken.events)
            self._since_snapshot += len(taken.events)
            if self._since_snapshot >= SNAPSHOT_EVENTS:
                self._since_snapshot = 0

    async def close(self) -> None:
        """Write no more."""
        await self._sink.close()
