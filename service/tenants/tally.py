"""The tally: counts the spending of answers that aren't stored; while the store is away they wait until it is back.

Stored answers are counted as they are stored (lua/spending.lua), and need nothing here.
"""

import logging
from collections import deque
from collections.abc import Callable
from time import monotonic
from typing import NamedTuple

from service.logs import event
from store.errors import StoreError
from store.registry.spending import MARKED_MS, Spending
from store.turn import Expense

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

    def __init__(
        self,
        spending: Spending,
        away: Callable[[], bool],
        clock: Callable[[], float] = monotonic,
        *,
        most_waiting: int = MOST_WAITING,
        settled_at_once: int = SETTLED_AT_ONCE,
    ) -> None:
        """`away` says whether the store is known to be away."""
        self._most_waiting = most_waiting
        self._settled_at_once = settled_at_once
        self._spending = spending
        self._away = away
        self._clock = clock
        self._waiting: deque[_Waiting] = deque()

    async def count(self, tenant: str, id: str, expense: Expense) -> None:
        """Count the spending of the response `id`, now or once the store is back."""
        waiting = _Waiting(self._clock(), tenant, id, expense)
        if self._away() or not await self._counted(waiting):
            self._waiting.append(waiting)
            if len(self._waiting) > self._most_waiting:
                self._waiting.popleft()
                _lost("too many wait")
        else:
            await self.settle(self._settled_at_once)

    async def settle(self, most: int = MOST_WAITING) -> None:
        """Count at most so many of those that wait, as far as the store can be reached."""
        for _ in range(min(most, len(self._waiting))):
            if self._away() or not self._waiting:
                return
            waiting = self._waiting.popleft()
            if self._clock() - waiting.since > WAIT_SECONDS:
                _lost("the store was away for too long")
            elif not await self._counted(waiting):
                self._waiting.appendleft(waiting)
                return

    async def _counted(self, waiting: _Waiting) -> bool:
        try:
            await self._spending.count(waiting.tenant, waiting.id, waiting.expense)
        except StoreError:
            return False
        return True


def _lost(why: str) -> None:
    event(logger, logging.WARNING, "usage is not counted", why=why)
