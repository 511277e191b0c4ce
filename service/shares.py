"""Bounds that tenants share: slots of requests, bytes of bodies, processes of servers.

Nobody can take all of anything. Where there are several tenants, the last eighth is for those that have no more than
their share, so that whoever comes finds room, and comes to a share while others are over theirs. Never wait here.
"""

from collections import defaultdict
from collections.abc import Callable

RESERVED = 8
"""The last such part of a limit is for tenants that have no more than their share."""


class Share:
    """Up to `limit` of something, which tenants share."""

    def __init__(self, limit: int, *, several: Callable[[], bool]) -> None:
        """`several` says whether there is more than one tenant at the moment."""
        self.limit = limit
        self._several = several
        self._taken = 0
        self._by_tenant: defaultdict[str, int] = defaultdict(int)

    def fits(self, tenant: str, amount: int) -> bool:
        """Whether a tenant may have so much more."""
        own = self.taken_by(tenant) + amount
        tenants = len(self._by_tenant) + (tenant not in self._by_tenant)
        fair = own * (tenants + 1) <= self.limit  # as if one more tenant came
        return self._taken + amount <= self.limit - (0 if fair else self._reserved())

    def _reserved(self) -> int:
        """What only those get that have no more than their share."""
        return -(-self.limit // RESERVED) if self._several() and self.limit > 1 else 0

    def taken_by(self, tenant: str) -> int:
        """How much a tenant has."""
        return self._by_tenant.get(tenant, 0)

    def take(self, tenant: str, amount: int) -> None:
        """Let it have so much more, whether it fits or not."""
        self._taken += amount
        self._by_tenant[tenant] += amount

    def give_back(self, tenant: str, amount: int) -> None:
        """It has so much less."""
        self._taken -= amount
        self._by_tenant[tenant] -= amount
        if not self._by_tenant[tenant]:
            del self._by_tenant[tenant]
