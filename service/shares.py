"""Bounds that tenants share: slots of requests, bytes of bodies, processes of servers. And how soon something that is
taken comes free again, by what came free in the last minute: what Retry-After says.

Nobody can take all of anything. Where there are several tenants, the last eighth is for those that have no more than
their share, so that a newcomer finds room, and gets a share while others are over theirs. Shares are even,
whatever weights say of whose turn it is, and none is less than one. Nobody waits here but for a Room.
"""

import asyncio
import math
from collections import Counter, deque
from collections.abc import AsyncGenerator, Callable
from contextlib import AbstractAsyncContextManager, asynccontextmanager, nullcontext
from contextvars import ContextVar
from time import monotonic

RESERVED = 8
"""The last such part of a limit is for tenants that have no more than their share."""

WINDOW_SECONDS = 60

LEAST_SECONDS, MOST_SECONDS = 1, 60
"""The bounds of Retry-After: the SDKs wait for as long as it says, up to a minute."""


aside: ContextVar[Callable[[], AbstractAsyncContextManager[None]]] = ContextVar("aside", default=nullcontext)
"""The block in which a task that waits for a stranger leaves its room to others."""


class Share:
    """Up to `limit` of something, which tenants share."""

    def __init__(self, limit: int, *, several: Callable[[], bool]) -> None:
        """`several` says whether there is more than one tenant at the moment."""
        self.limit = limit
        self._open = limit - -(-limit // RESERVED) if limit > 1 else limit
        """The part of it that any tenant may have."""
        self._several = several
        self._taken = 0
        self._by_tenant = Counter[str]()

    def fits(self, tenant: str, amount: int = 1) -> bool:
        taken = self._taken + amount
        if taken <= self._open or taken > self.limit or not self._several():
            return taken <= self.limit
        own, tenants = self.taken_by(tenant) + amount, len(self._by_tenant.keys() | {tenant})
        return own <= max(1, self.limit / (tenants + 1))  # as if one more tenant came

    def taken_by(self, tenant: str) -> int:
        return self._by_tenant[tenant]

    def take(self, tenant: str, amount: int) -> None:
        """Let it have so much more, whether it fits or not."""
        self._taken += amount
        self._by_tenant[tenant] += amount

    def give_back(self, tenant: str, amount: int) -> None:
        self._taken -= amount
        self._by_tenant[tenant] -= amount
        if not self._by_tenant[tenant]:
            del self._by_tenant[tenant]


class Room:
    """Up to `limit` of something, which tenants share, and for which they wait."""

    def __init__(self, limit: int, *, several: Callable[[], bool], parts: int = 1) -> None:
        """With `several` tenants at the moment, each has one of so many `parts` at most."""
        self._share, self._several = Share(limit, several=several), several
        self._most = limit // parts
        self._waiting: dict[asyncio.Event, tuple[str, int]] = {}

    @asynccontextmanager
    async def space(self, tenant: str, amount: int) -> AsyncGenerator[Callable[[int], None]]:
        """Wait until a tenant may have so much, which it has until the end of the block, but for what it keeps of that
        when it says so. Of anything larger half of the limit is taken, or a tenant's part.
        """
        amount = min(amount, self._share.limit // 2, self._most if self._several() else amount)
        turn = asyncio.Event()
        self._waiting[turn] = tenant, amount

        def keep(part: int) -> None:
            nonlocal amount
            more, amount = max(amount - part, 0), min(amount, part)
            self._share.give_back(tenant, more)
            self._let_in()

        try:
            self._let_in()
            await turn.wait()
            yield keep
        finally:
            if self._waiting.pop(turn, None) is None:
                self._share.give_back(tenant, amount)
            self._let_in()

    def _let_in(self) -> None:
        """Let those in that fit: first those of the tenant that has the least, then the oldest. None goes past another,
        or a large one would wait for ever, but one whose tenant has its part.
        """
        while waiting := [each for each, asked in self._waiting.items() if self._is_allowed(*asked)]:
            turn = min(waiting, key=lambda each: self._share.taken_by(self._waiting[each][0]))
            tenant, amount = self._waiting[turn]
            if not self._share.fits(tenant, amount):
                return
            del self._waiting[turn]
            self._share.take(tenant, amount)
            turn.set()

    def _is_allowed(self, tenant: str, amount: int) -> bool:
        taken = self._share.taken_by(tenant)
        return not taken or not self._several() or taken + amount <= self._most


class Rate:
    """How much of something came free, second by second, while any of it was taken."""

    def __init__(self, clock: Callable[[], float] = monotonic) -> None:
        self._clock = clock
        self._taken = 0
        self._since = 0.0
        """Since when some of it has been taken."""
        self._freed = deque[tuple[int, int]](maxlen=WINDOW_SECONDS + 1)
        """Seconds in which some came free, and how much."""

    def take(self, amount: int) -> None:
        if not self._taken:
            self._since = self._clock()
            self._freed.clear()
        self._taken += amount

    def free(self, amount: int) -> None:
        self._taken -= amount
        second = int(self._clock())
        if self._freed and self._freed[-1][0] == second:
            amount += self._freed.pop()[1]
        self._freed.append((second, amount))

    def seconds_for(self, amount: int) -> int:
        """The seconds until so much more comes free; if nothing has lately, as long again as that has lasted."""
        now = self._clock()
        since = max(self._since, now - WINDOW_SECONDS)
        freed = sum(each for second, each in self._freed if second >= int(since))
        seconds = (now - since) * (amount / freed if freed else 1)
        return min(max(math.ceil(seconds), LEAST_SECONDS), MOST_SECONDS)
