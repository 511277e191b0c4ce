"""Following: the events of a background response, from any of them on, as they are written; by any process.

    subscribe ─▶ read the log ─▶ listen ─▶ (silence, a gap, or something missed: read the log) ─▶ ... ─▶ the last event

The log counts, and its channel only makes it quick: known entries are dropped, missing ones are read, and a
follower that hears nothing reads the log's tail, as a message may be lost. So each number comes out once and in order
whatever happens to the channel. Never write here: a follower that disconnects, or lags, costs the response nothing.

`find` gives a response as it stands while it is under way, folded from its log. The last snapshot spares most of the
log. A response that ends in between is read as it was stored.
"""

import asyncio
from collections.abc import AsyncGenerator, Awaitable, Callable, Iterable, Sequence
from contextlib import AsyncExitStack, suppress
from dataclasses import dataclass, field
from time import monotonic
from typing import TypeVar

import msgspec

from service.api.events import Event, Terminal
from service.api.response import Response, ResponseStatus, decode_response
from service.backoff import Backoff
from service.responses.output.fold import Fold
from service.responses.output.journal import decode_batch
from service.steps import BRIEFLY
from service.store_away import PAUSES
from store.errors import StoreUnavailable, StoreUnconfirmed
from store.jobs.jobs import Jobs
from store.jobs.log import EventLog, LogEntry, parse_message
from store.listening import Listener, Listening

QUIET_SECONDS = 1.0
"""For how long no message may come before the log's tail is read."""

AWAY_SECONDS = 30.0
"""For how long a store that is away is asked again."""

READ_ENTRIES = 32
"""The most entries that are read at once."""

BATCH_EVENTS = 2_000
"""The most events that are handed on at once, unless one entry has more: a few milliseconds' work, and half a MiB as
server-sent events. Entries beyond that are not decoded; they wait in the log."""

T = TypeVar("T")


class LogGone(Exception):
    """The events are not there: they were deleted, or have expired."""

    reason = "are gone"

    def __init__(self, id: str) -> None:
        super().__init__(f"the events of {id!r} {self.reason}")
        self.id = id


class EndGone(LogGone):
    """A server lost the end of the log, of which events were handed over, and the response ended otherwise.

    The follower has events that no other will see, and none that says how the response ended.
    """

    reason = "end before what was handed over, as the store lost some"


@dataclass(eq=False)
class Following:
    """One follower of one response. Iterate `events` once."""

    log: EventLog
    channels: Listening
    tenant: str
    id: str
    after: int = -1
    """The number of the last event that was handed over, or that the client has."""
    begun: Sequence[Event] = field(default=(), kw_only=True)
    """Its first events, where they are known: they come at once, and the store may be away by then."""
    leaving: Callable[[], bool] = field(default=lambda: False, kw_only=True)
    """Whether this process is about to end: silence is then the end, as the worker may have been this process too, and
    the client goes on at another one."""
    settled: Callable[[], Awaitable[None]] | None = field(default=None, kw_only=True)
    """Returns once the end is safe, before it is handed over."""
    clock: Callable[[], float] = field(default=monotonic, kw_only=True)
    backoff: Backoff = field(default=PAUSES, kw_only=True)
    over: bool = field(default=False, init=False)
    """Whether the response has ended, and nothing comes behind the events handed over."""

    def __post_init__(self) -> None:
        if self.begun:
            self.after = self.begun[-1].sequence_number
        self._handed = self.after if self.begun else -1
        """The number of the last event that was handed over, -1 where none was."""
        self._newest: tuple[int, int] | None = None
        """The last entry that was decoded: its last event, and its hash."""
        self._to_read = READ_ENTRIES
        self._behind = False
        """Whether the log has more than was handed over."""
        self._patience = AWAY_SECONDS if self.begun else 0.0
        self._stopped = asyncio.Event()
        self._listener: Listener | None = None

    def stop(self) -> None:
        """End soon, as the client is gone. Never blocks."""
        self._stopped.set()
        if self._listener is not None:
            self._listener.wake()

    async def events(self) -> AsyncGenerator[list[Event], None]:
        """The events in order, each once, in batches as they come, until the response has ended.

        The first batch says that following has begun, and may be empty; no other is. Raises LogGone, and NewerFormat.
        Raises StoreUnavailable when the store is away for longer than AWAY_SECONDS, or without `begun` at first.
        """
        silent = not self.begun
        if self.begun:
            yield list(self.begun)
        channel = self.log.channel(self.tenant, self.id)
        async with AsyncExitStack() as stack:
            listener = await self._retry(lambda: stack.enter_async_context(self.channels.channel(channel)))
            self._listener = listener
            batch = await self._read()
            if not batch:
                await self._read_tail()
            self._patience = AWAY_SECONDS
            await self._settle()
            if batch or silent:
                yield batch
            while not (self.over or self._stopped.is_set()):
                batch = await (self._read() if self._behind else self._hear(listener))
                await self._settle()
                if batch:
                    yield batch

    async def _settle(self) -> None:
        """Wait until the end is safe, once it is there. Where it isn't in time, it is told all the same."""
        if self.over and self.settled is not None:
            with suppress(StoreUnconfirmed):
                await self._retry(self.settled)

    async def _hear(self, listener: Listener) -> list[Event]:
        """The next events of the channel, as far as they follow those that were handed over."""
        messages = await listener.messages(QUIET_SECONDS)
        if messages == [] and not self._stopped.is_set():
            messages = await self._look(listener)
        if messages is None:
            self._behind = True
            return []
        if not messages:
            if self.leaving() and not self._behind:
                self._stopped.set()
            return []
        entries = [parse_message(message) for message in messages]
        batch = self._take(entry for entry in entries if entry is not None)
        if not batch and None in entries:
            raise LogGone(self.id)
        return batch

    async def _read(self) -> list[Event]:
        """Some events behind those handed over, from the log."""
        entries = await self._retry(lambda: self.log.read(self.tenant, self.id, self.after, self._to_read))
        self._behind = False
        batch = self._take(entries)
        if self._behind and not batch:  # the log itself has a gap
            raise LogGone(self.id)
        self._behind = self._behind or len(entries) == self._to_read
        # no more than a batch has room for, so that few are read in vain
        taken = sum(entry.last <= self.after for entry in entries)
        self._to_read = taken if taken < len(entries) else min(READ_ENTRIES, 2 * self._to_read)
        return batch

    async def _look(self, listener: Listener) -> list[bytes] | None:
        """Look at the log's tail after a silence, unless messages come before that is read: these, as the listener has
        them."""
        asked = self.log.tail_soon(self.tenant, self.id)
        asked.add_done_callback(lambda _: listener.wake())
        try:
            messages = await listener.messages(QUIET_SECONDS)
        finally:
            in_vain = asked.cancel() or asked.cancelled() or asked.exception() is not None
        if messages == [] and not in_vain:
            self._compare(asked.result())
        elif messages == []:
            await self._read_tail()
        return messages

    async def _read_tail(self) -> None:
        """Find out by the log's tail whether there is more, or no more to come."""
        self._compare(await self._retry(lambda: self.log.tail(self.tenant, self.id)))

    def _compare(self, tail: LogEntry | None) -> None:
        """Compare the log's tail with the events so far. Raises LogGone, EndGone."""
        if tail is None:
            raise LogGone(self.id)
        if tail.last > self.after:
            self._behind = True
        elif _mark(tail) != self._newest:
            ended = _ends(decode_batch(tail.blob, tail.last).events)
            if ended and tail.last <= self._handed:  # the end itself was not handed over, or this would not be asked
                raise EndGone(self.id)
            self.over = ended
            self._newest = _mark(tail)

    def _take(self, entries: Iterable[LogEntry]) -> list[Event]:
        """The events of entries that follow those handed over, up to the first gap, or as many as go into a batch.
        Where that is not all, the log has more."""
        taken: list[Event] = []
        for entry in entries:
            last = entry.last
            if last <= self.after:
                continue
            if taken and len(taken) + last - self.after > BATCH_EVENTS:
                self._behind = True
                break
            batch = decode_batch(entry.blob, last).events
            first = batch[0].sequence_number
            if first > self.after + 1:
                self._behind = True
                break
            taken += batch[self.after + 1 - first :]
            self.after = self._handed = last
            self._newest = _mark(entry)
        self.over = _ends(taken)
        return taken

    async def _retry(self, ask: Callable[[], Awaitable[T]]) -> T:
        """The store's answer, asked for again while it is away, for `_patience` seconds."""
        give_up: float | None = None
        failures = 0
        while True:
            try:
                return await ask()
            except StoreUnconfirmed:  # which has taken its own time
                raise
            except StoreUnavailable:
                now, failures = self.clock(), failures + 1
                give_up = now + self._patience if give_up is None else give_up
                if now >= give_up or self._stopped.is_set() or self.leaving():
                    raise
            with suppress(TimeoutError):
                async with asyncio.timeout(self.backoff.seconds(failures)):
                    await self._stopped.wait()


def _mark(entry: LogEntry) -> tuple[int, int]:
    """The identity of an entry."""
    return entry.last, hash(entry.blob)


def _ends(batch: Sequence[Event]) -> bool:
    """Whether a response ends with these events."""
    return bool(batch) and isinstance(batch[-1], Terminal)


FOLDED_ENTRIES = 256
"""The most entries that are read and folded at once: a millisecond's work or two."""

TRIES = 3
"""How often a response is read whose log is gone: it has ended just then, so one more is enough."""


async def find(jobs: Jobs, tenant: str, id: str) -> bytes:
    """A response as JSON: as served, or while it is under way with its output so far.

    Raises NotFound, StoreUnavailable.
    """
    found = await jobs.history.find(tenant, id)
    for _ in range(TRIES):
        if not found.under_way:
            break
        response = await _fold_log(jobs, tenant, id)
        if response is not None:
            return msgspec.json.encode(msgspec.structs.replace(response, status=ResponseStatus(found.status)))
        found = await jobs.history.find(tenant, id)
    return found.response


async def _fold_log(jobs: Jobs, tenant: str, id: str) -> Response | None:
    """The response as the fold of its log; None where there is no log any more."""
    snapshot = await jobs.snapshot(tenant, id)
    after, fold = -1, Fold()
    if snapshot is not None:
        after, fold = snapshot[0], Fold.resume(decode_response(snapshot[1]), snapshot[0])
    empty = snapshot is None
    while entries := await jobs.log.read(tenant, id, after, FOLDED_ENTRIES):
        for entry in entries:
            fold.add(decode_batch(entry.blob, entry.last).events)
        after, empty = entries[-1].last, False
        if len(entries) < FOLDED_ENTRIES:
            break
        await asyncio.sleep(BRIEFLY)
    return None if empty else fold.response
