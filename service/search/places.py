"""Places for searches and pages that are under way: what one of them holds (a page as it was sent, a thread) is bounded
for a process, and no tenant can take all of it.
"""

import asyncio
from collections import defaultdict
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager

AT_ONCE = 16
"""How many are under way in a process."""

EACH_AT_ONCE = 4
"""How many of them are one tenant's. Those that come behind wait for their turn."""


class Places:
    """The places of a process."""

    def __init__(self, at_once: int = AT_ONCE, each: int = EACH_AT_ONCE) -> None:
        self._all = asyncio.Semaphore(at_once)
        self._own: defaultdict[str, asyncio.Semaphore] = defaultdict(lambda: asyncio.Semaphore(each))
        self._wanted: defaultdict[str, int] = defaultdict(int)

    @asynccontextmanager
    async def taken(self, tenant: str) -> AsyncGenerator[None]:
        """A place of a tenant's, once there is one, until the end of the block."""
        self._wanted[tenant] += 1
        try:
            async with self._own[tenant], self._all:
                yield
        finally:
            self._wanted[tenant] -= 1
            if not self._wanted[tenant]:
                del self._wanted[tenant], self._own[tenant]
