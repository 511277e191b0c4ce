"""The memory of a process of the last responses of its WebSockets, so that they go on without the store.

A lane of a connection remembers its newest response, with the chain that it ends. A stored one can be read again
after it was dropped here; one that isn't stored can then no longer be continued. The memory of all is bounded: beyond
the bound, the tenant that has most drops its least used responses. Never remember anything beyond its connection.
"""

from collections import defaultdict
from collections.abc import Hashable
from math import inf

from cachetools import LRUCache

from service.responses.parent import Remembered


class ResponseMemory:
    """The remembered responses, each under the key of its lane."""

    def __init__(self, limit: int) -> None:
        """So many bytes at most."""
        self._limit = limit
        self._by_tenant = defaultdict[str, "LRUCache[Hashable, Remembered]"](
            lambda: LRUCache(inf, lambda response: response.size)
        )

    def put(self, tenant: str, key: Hashable, response: Remembered) -> None:
        """Remember a response in the place of the one before it."""
        self._by_tenant[tenant][key] = response
        while sum(each.currsize for each in self._by_tenant.values()) > self._limit:
            max(self._by_tenant.values(), key=lambda each: each.currsize).popitem()

    def get(self, tenant: str, key: Hashable) -> Remembered | None:
        """The response remembered under a key, if any still is. This counts as a use."""
        return self._by_tenant[tenant].get(key)

    def drop(self, tenant: str, key: Hashable) -> None:
        """Forget what is remembered under a key, if anything is."""
        self._by_tenant[tenant].pop(key, None)
        if not self._by_tenant[tenant]:
            del self._by_tenant[tenant]
