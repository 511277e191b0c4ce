"""EventLog: what happened to a background response, entry by entry, in a Redis stream.

An entry is a batch of events. Its id is the number of its last event plus one, then `-0`; its one field holds the
batch's bytes, which the store never reads. Numbers have no gaps and a log keeps its beginning, so a reader continues
from the last event that it has seen. The scripts of jobs write (lua/logs.lua), and publish
each entry on a channel as they write it; whoever wants it at once subscribes first (listening.py), and then reads here.

Raw replies about streams are read here and nowhere else. Never write here.
"""

from typing import Any, cast

import msgspec

from store.history.history import ConversationHistoryStore

PAGE_ENTRIES = 256
"""The most entries that one command asks for."""

GONE = b"gone"
"""The message on a log's channel when the log is deleted."""


class Entry(msgspec.Struct, frozen=True):
    """Some events that follow each other."""

    last: int
    """The sequence number of the last of them."""
    blob: bytes
    """The events, and the tokens that made them."""


class EventLog:
    """The event logs of a store."""

    def __init__(self, history: ConversationHistoryStore) -> None:
        """The logs in the same Redis as `history`, which closes it."""
        self._server = history.server
        self._keyspace = history.keyspace

    async def read(self, tenant: str, id: str, after: int, limit: int) -> list[Entry]:
        """The entries with events after number `after`, -1 for all; at most `limit`, oldest first.

        The first may begin earlier: it has the event after `after`. Empty where there are no more, or no log. Raises
        NotFound for an id that can't exist, StoreUnavailable.
        """
        key = self._key(tenant, id)
        found: list[Entry] = []
        async with self._server.operation() as operation:
            while (wanted := min(PAGE_ENTRIES, limit - len(found))) > 0:
                page = await operation.command("XRANGE", key, f"({after + 1}-0", "+", "COUNT", wanted)
                found += map(_entry, page)
                if len(page) < wanted:
                    break
                after = found[-1].last
        return found

    async def tail(self, tenant: str, id: str) -> Entry | None:
        """The last entry; None where there is no log. Raises NotFound for an id that can't exist, StoreUnavailable."""
        async with self._server.operation() as operation:
            found = await operation.command("XREVRANGE", self._key(tenant, id), "+", "-", "COUNT", 1)
        return _entry(found[0]) if found else None

    def channel(self, tenant: str, id: str) -> str:
        """Where each entry is published as it is added, for `parse_message`. Raises NotFound for an impossible id."""
        return self._keyspace.turn(tenant, id).key("events")

    def _key(self, tenant: str, id: str) -> str:
        return self._keyspace.turn(tenant, id).key("log")


def parse_message(message: bytes) -> Entry | None:
    """The entry in a message of the log's channel; None for GONE."""
    if message == GONE:
        return None
    number, _, blob = message.partition(b" ")
    return Entry(int(number) - 1, blob)


def _entry(raw: Any) -> Entry:
    """[b"N-0", [b"b", blob]] as a server gives it."""
    id, (_, blob) = cast(tuple[bytes, tuple[bytes, bytes]], raw)
    return Entry(int(id.partition(b"-")[0]) - 1, blob)
