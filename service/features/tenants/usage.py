"""Usage: tokens and requests spent, by buckets of time, and within each by project, key and model.

The store counts by the hour, so buckets begin and end with an hour, and days are UTC's. Spending that an hour had no
place for is in no project, under no key and no model, and in the sum of all. An answer that would be too large has
fewer buckets. Stored answers are counted as they are stored (lua/spending.lua); the tally counts the others.
"""

import logging
from collections import deque
from collections.abc import Callable, Iterable
from time import monotonic
from typing import NamedTuple

import msgspec

from service.logs import event
from store.errors import StoreError
from store.spending import MARKED_MS, HourSpent, Spender, Spending, Sums
from store.turn import Expense

DAY_HOURS = 24

MOST_RESULTS = 2_000
"""The most results of an answer: half a megabyte. A single bucket with more counts the rest as no project's."""

NOBODY = Spender("", "", "")


class UsageScope(msgspec.Struct, frozen=True):
    """The usage that is asked for: hours since 1970, the last one not included, in at most `most` buckets of `width`
    hours; only of these tenants, keys and models, unless they are empty; kept apart `by` fields of a Spender.
    """

    first: int
    end: int
    width: int = DAY_HOURS
    most: int = 7
    tenants: frozenset[str] = frozenset()
    keys: frozenset[str] = frozenset()
    models: frozenset[str] = frozenset()
    by: tuple[str, ...] = ()

    def has(self, spender: Spender) -> bool:
        """Whether its spending is asked for."""
        return (
            (not self.tenants or spender.tenant in self.tenants)
            and (not self.keys or spender.key in self.keys)
            and (not self.models or spender.model in self.models)
        )

    def group(self, spender: Spender) -> Spender:
        """The group with which it is counted together."""
        return Spender(*(value if name in self.by else "" for name, value in spender._asdict().items()))


class Bucket(NamedTuple):
    """The spending between two hours."""

    first: int
    end: int
    results: dict[Spender, Sums]


class UsageBuckets(NamedTuple):
    """Buckets in their order, and the hour with which the next ones begin, None where there are none."""

    buckets: list[Bucket]
    goes_on: int | None


async def usage_of(spending: Spending, asked: UsageScope, most_results: int = MOST_RESULTS) -> UsageBuckets:
    """The usage that is asked for, or the first part of it. Raises StoreUnavailable."""
    buckets = _buckets(asked)
    for shard in range(spending.shards):
        hour = asked.first
        while buckets and hour < buckets[-1].end:
            found, hour = await spending.sums(shard, hour, buckets[-1].end - 1)
            _add(asked, buckets, found, most_results)
            while len(buckets) > 1 and sum(len(bucket.results) for bucket in buckets) > most_results:
                buckets.pop()
    end = buckets[-1].end if buckets else asked.end
    return UsageBuckets(buckets, end if end < asked.end else None)


def _buckets(asked: UsageScope) -> list[Bucket]:
    """The first ones, without anything in them."""
    buckets: list[Bucket] = []
    first = asked.first
    while first < asked.end and len(buckets) < asked.most:
        end = min(first - first % asked.width + asked.width, asked.end)
        buckets.append(Bucket(first, end, {}))
        first = end
    return buckets


def _add(asked: UsageScope, buckets: list[Bucket], found: Iterable[HourSpent], most_results: int) -> None:
    """Count what was found to the buckets that have its hour."""
    begin = buckets[0].first // asked.width
    for hour, spender, sums in found:
        at = hour // asked.width - begin
        if at >= len(buckets) or not asked.has(spender):
            continue
        results, group = buckets[at].results, asked.group(spender)
        if group not in results and len(results) >= most_results:
            group = NOBODY
        results[group] = results.get(group, Sums()).plus(sums)


# --- the tally ---

logger = logging.getLogger(__name__)

MOST_WAITING = 10_000
"""How many answers wait to be counted, while the store is away; the oldest go for new ones. Each takes half a KB."""

WAIT_SECONDS = MARKED_MS / 2000
"""How long an answer waits: half as long as the store knows whether it was counted."""


SETTLED_AT_ONCE = 10
"""How many waiting answers are counted beside each new one."""


class _Waiting(NamedTuple):
    since: float
    tenant: str
    id: str
    expense: Expense


class Tally:
    """The tally of this process."""

    def __init__(self, spending: Spending, away: Callable[[], bool], clock: Callable[[], float] = monotonic) -> None:
        """`away` says whether the store is known to be away."""
        self.spending = spending
        self._away = away
        self._clock = clock
        self._waiting: deque[_Waiting] = deque()

    async def count(self, tenant: str, id: str, expense: Expense) -> None:
        """Count the spending of the response `id`, now or once the store is back."""
        waiting = _Waiting(self._clock(), tenant, id, expense)
        if self._away() or not await self._counted(waiting):
            self._waiting.append(waiting)
            if len(self._waiting) > MOST_WAITING:
                self._waiting.popleft()
                _note_loss("too many wait")
        else:
            await self.settle(SETTLED_AT_ONCE)

    async def settle(self, most: int = MOST_WAITING) -> None:
        """Count at most so many of those that wait, as far as the store can be reached."""
        for _ in range(min(most, len(self._waiting))):
            if self._away() or not self._waiting:
                return
            waiting = self._waiting.popleft()
            if self._clock() - waiting.since > WAIT_SECONDS:
                _note_loss("the store was away for too long")
            elif not await self._counted(waiting):
                self._waiting.appendleft(waiting)
                return

    async def _counted(self, waiting: _Waiting) -> bool:
        try:
            await self.spending.count(waiting.tenant, waiting.id, waiting.expense)
        except StoreError:
            return False
        return True


def _note_loss(why: str) -> None:
    event(logger, logging.WARNING, "usage is not counted", reason=why)
