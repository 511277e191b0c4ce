"""What was spent: tokens and requests by tenant, key, model and hour, for as long as that is kept.

It is counted where a response is stored, in the same script (lua/spending.lua), and here for one that isn't: once, also
where the reply was lost. Hours are those of the shard's server. Never part of a backup: what a restore brings back
was spent before, and perhaps elsewhere.
"""

from typing import NamedTuple

from store.history.append import spending
from store.history.history import ConversationHistoryStore
from store.redis import scripts
from store.turn import Expense

HOUR_SECONDS = 3600

MARKED_MS = 600_000
"""For how long it is known of a response that isn't stored that it was counted: the longest that anybody may try to."""

MOST_HOURS = 200
"""The most hours that one call looks at: a tenth of a millisecond where nothing was spent."""

MOST_FIELDS = 500
"""After so many fields a call looks at no further hour, as each may have 1,000 (lua/spending.lua): what is read of them
takes 3 ms."""


class Spender(NamedTuple):
    """Who spent something, on which model; all are empty for those for whom an hour had no place."""

    tenant: str
    key: str
    model: str


class Sums(NamedTuple):
    """What was spent: how many responses ended, and what they came to."""

    requests: int = 0
    input_tokens: int = 0
    cached_tokens: int = 0
    output_tokens: int = 0
    reasoning_tokens: int = 0

    def plus(self, other: "Sums") -> "Sums":
        """Both together."""
        return Sums(*(one + another for one, another in zip(self, other, strict=True)))


class HourSpent(NamedTuple):
    """What one of them spent in an hour, counted from 1970, in one of the shards."""

    hour: int
    spender: Spender
    sums: Sums


class Spending:
    """Count what was spent, and tell it."""

    def __init__(self, history: ConversationHistoryStore) -> None:
        self._history = history

    async def count(self, tenant: str, id: str, expense: Expense) -> None:
        """Count what the response `id` has spent, unless it was stored or counted before. Raises StoreUnavailable."""
        argument = spending(expense, self._history.caps)
        if not argument:
            return
        keys = self._history.keyspace.turn(tenant, id)
        async with self._history.server.operation() as operation:
            await scripts.spend(operation, keys, spent=argument, marked_ms=MARKED_MS)

    @property
    def shards(self) -> int:
        """How many shards there are, each with hours of its own."""
        return self._history.keyspace.shards

    async def told(self, shard: int, first: int, last: int) -> tuple[list[HourSpent], int]:
        """What was spent in a shard in the hours from `first` on, and the hour with which to go on, which is behind
        `last` at the end. Raises StoreUnavailable.
        """
        async with self._history.server.operation() as operation:
            _, behind, *rows = await scripts.tell_spent(
                operation,
                self._history.keyspace.all_shards()[shard],
                first=first,
                last=min(last, first + MOST_HOURS - 1),
                most=MOST_FIELDS,
            )
        return [_read(*rows[at : at + 3]) for at in range(0, len(rows), 3)], int(behind)


def _read(hour: bytes, field: bytes, value: bytes) -> HourSpent:
    tenant, key, model = field.decode().split("/", 2)
    return HourSpent(int(hour), Spender(tenant, key, model), Sums(*map(int, value.split()[:5])))
