"""Spending: tokens and requests by tenant, key, model and hour, for as long as that is kept.

The script that stores a response counts it (lua/spending.lua), and this module counts one that isn't stored: once, even
if the reply was lost. Hours are those of the shard's server. Never part of a backup: restored responses were spent
before, and perhaps elsewhere.
"""

from typing import NamedTuple

from store.history.append import spending
from store.history.history import ConversationHistoryStore
from store.redis import scripts
from store.turn import Expense

HOUR_SECONDS = 3600

MARKED_MS = 600_000
"""How long the mark of a counted response that isn't stored is kept: longer than anybody retries."""

MOST_HOURS = 200
"""The most hours that one call looks at."""

MOST_FIELDS = 500
"""After so many fields a call reads no further hour, as each may have 1,000 (lua/spending.lua)."""


class Spender(NamedTuple):
    """The tenant, key and model of an expense; all are empty for those for which an hour had no room."""

    tenant: str
    key: str
    model: str


class Sums(NamedTuple):
    """Sums of expenses: how many responses ended, and their tokens."""

    requests: int = 0
    input_tokens: int = 0
    cached_tokens: int = 0
    output_tokens: int = 0
    reasoning_tokens: int = 0

    def plus(self, other: "Sums") -> "Sums":
        return Sums(*(one + another for one, another in zip(self, other, strict=True)))


class HourSpent(NamedTuple):
    """The sums of one spender in an hour, counted from 1970, in one of the shards."""

    hour: int
    spender: Spender
    sums: Sums


class Spending:
    """Count expenses, and read their sums."""

    def __init__(self, history: ConversationHistoryStore) -> None:
        self._history = history

    async def count(self, tenant: str, id: str, expense: Expense) -> None:
        """Count the expense of the response `id`, unless it was stored or counted before. Raises StoreUnavailable."""
        argument = spending(expense, self._history.caps)
        if not argument:
            return
        keys = self._history.keyspace.turn(tenant, id)
        await self._history.server.run(scripts.spend, keys, spent=argument, marked_ms=MARKED_MS)

    @property
    def shards(self) -> int:
        return self._history.keyspace.shards

    async def sums(self, shard: int, first: int, last: int) -> tuple[list[HourSpent], int]:
        """The sums of a shard in the hours from `first` on, and the hour with which to go on, which is behind `last`
        at the end. Raises StoreUnavailable.
        """
        server, keys = self._history.server, self._history.keyspace.all_shards()[shard]
        behind = min(last + 1, first + MOST_HOURS)
        names = {hour: keys.key_named(f"spent:{hour}") for hour in range(first, behind)}
        sizes = await server.row(*(("HLEN", name) for name in names.values()), at=keys.clock, ahead=True)
        found: list[HourSpent] = []
        for hour in [hour for hour, size in zip(names, sizes, strict=True) if size]:
            if len(found) >= MOST_FIELDS:
                return found, hour
            fields: list[bytes] = await server.command("HGETALL", names[hour])
            for spender, value in zip(fields[::2], fields[1::2], strict=True):
                sums = Sums(*map(int, value.split()[:5]))
                found.append(HourSpent(hour, Spender(*spender.decode().split("/", 2)), sums))
        return found, behind
