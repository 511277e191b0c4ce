"""EventLog: the events of a background response, entry by entry, in a Redis stream.

An entry is a batch of events. Its id is the number of its last event plus one, then `-0`; its one field holds the
batch's bytes, which the store never reads. Numbers have no gaps and a log keeps its beginning, so a reader continues
from the last event that it has seen. The scripts of jobs write (lua/logs.lua), and publish
each entry on a channel as they write it; a live reader subscribes first (listening.py), and then reads here.

Raw replies about streams are read here and nowhere else. Never write here.
"""

import asyncio
from collections.abc import Sequence
from typing import Any, cast

import msgspec

from store.errors import StoreUnavailable
from store.history.history import ConversationHistoryStore
from store.keys import Key, shard_of

PAGE_ENTRIES = 256
"""The most entries that one command asks for."""

GATHER_SECONDS = 0.05
"""How long tails without hurry are gathered: read together, each costs less than alone."""

MOST_TAILS = 64

GONE = b"gone"
"""The message on a log's channel when the log is deleted."""


class LogEntry(msgspec.Struct, frozen=True):
    """Some events that follow each other."""

    last: int
    """The sequence number of the last of them."""
    blob: bytes
    """The events, and the tokens that made them."""


class EventLog:
    """The event logs of a store."""

    def __init__(self, history: ConversationHistoryStore) -> None:
        self._server = history.server
        self._keyspace = history.keyspace
        self._gathered: dict[int, list[tuple[Key, asyncio.Future[LogEntry | None]]]] = {}
        """The tails that are about to be read, by their shard."""
        self._tasks = set[asyncio.Task[None]]()

    async def read(self, tenant: str, id: str, after: int, limit: int) -> list[LogEntry]:
        """The entries with events after number `after`, -1 for all; at most `limit`, oldest first.

        The first may begin earlier: it has the event after `after`. Empty where there are no more, or no log. Raises
        NotFound for an id that can't exist, StoreUnavailable.
        """
        key = self._key(tenant, id)
        found: list[LogEntry] = []
        async with self._server.operation() as operation:
            while (wanted := min(PAGE_ENTRIES, limit - len(found))) > 0:
                page = await operation.command("XRANGE", key, f"({after + 1}-0", "+", "COUNT", wanted)
                found += map(_entry, page)
                if len(page) < wanted:
                    break
                after = found[-1].last
        return found

    async def tail(self, tenant: str, id: str) -> LogEntry | None:
        """The last entry; None where there is no log. Raises NotFound for an id that can't exist, StoreUnavailable."""
        return _last(await self._server.command(*_tail(self._key(tenant, id))))

    def tail_soon(self, tenant: str, id: str) -> asyncio.Future[LogEntry | None]:
        """As `tail`, some GATHER_SECONDS later and together with others of the shard, unless it is cancelled before.

        Raises StoreUnavailable also where another one of them could not be read. Raises NotFound at once.
        """
        key = self._key(tenant, id)
        asked: asyncio.Future[LogEntry | None] = asyncio.get_running_loop().create_future()
        gathered = self._gathered.setdefault(shard_of(self._keyspace.digits(id)), [])
        gathered.append((key, asked))
        if len(gathered) == 1:
            task = asyncio.create_task(self._read_tails(gathered))
            self._tasks.add(task)
            task.add_done_callback(self._tasks.discard)
        return asked

    async def _read_tails(self, gathered: list[tuple[Key, asyncio.Future[LogEntry | None]]]) -> None:
        try:
            await asyncio.sleep(GATHER_SECONDS)
            for shard in [shard for shard, each in self._gathered.items() if each is gathered]:
                del self._gathered[shard]
            while some := [each for each in gathered if not each[1].done()][:MOST_TAILS]:
                await self._answer(some)
        finally:
            for _, asked in gathered:
                asked.cancel()

    async def _answer(self, some: Sequence[tuple[Key, asyncio.Future[LogEntry | None]]]) -> None:
        try:
            replies = await self._server.row(*(_tail(key) for key, _ in some), at=some[0][0], ahead=True)
        except StoreUnavailable as error:
            for asked in [asked for _, asked in some if not asked.done()]:
                asked.set_exception(error)
            return
        for (_, asked), reply in zip(some, replies, strict=True):
            if not asked.done():
                asked.set_result(_last(reply))

    def channel(self, tenant: str, id: str) -> str:
        """The channel that gets each new entry, for `parse_message`. Raises NotFound for an impossible id."""
        return self._keyspace.turn(tenant, id).key("events")

    def _key(self, tenant: str, id: str) -> Key:
        return self._keyspace.turn(tenant, id).key("log")


def parse_message(message: bytes) -> LogEntry | None:
    """The entry in a message of the log's channel; None for GONE."""
    if message == GONE:
        return None
    number, _, blob = message.partition(b" ")
    return LogEntry(int(number) - 1, blob)


def _tail(key: Key) -> tuple[str | int, ...]:
    return ("XREVRANGE", key, "+", "-", "COUNT", 1)


def _last(found: Any) -> LogEntry | None:
    return _entry(found[0]) if found else None


def _entry(raw: Any) -> LogEntry:
    """The entry in a server's `[b"N-0", [b"b", blob]]`."""
    id, (_, blob) = cast(tuple[bytes, tuple[bytes, bytes]], raw)
    return LogEntry(int(id.partition(b"-")[0]) - 1, blob)
