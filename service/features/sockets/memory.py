"""The memory of a process of the last responses of its WebSockets, so that they go on without the store.

A lane of a connection remembers its newest response, with the chain that it ends. A stored one can be read again
after it was dropped here; one that isn't stored can then no longer be continued. The memory of all is bounded: beyond
the bound, the tenant that has most drops its least used responses. Never remember anything beyond its connection.
"""

from collections import OrderedDict, defaultdict
from collections.abc import Hashable

from service.responses.parent import Remembered
from store.turn import Chain, Messages, Picture

TURN_BYTES = 512
"""About what a turn takes beside its tokens."""


def remember(
    before: Chain, id: str, messages: Messages, *, stored: bool, pictures: tuple[Picture, ...] = ()
) -> Remembered:
    """The response `id`, which adds `messages` to the chain before it."""
    chain = before.then(id, messages)
    size = sum(TURN_BYTES + sum(message.size for message in turn) for turn in chain.turns)
    pictures = () if stored else pictures
    size += sum(len(each.data) for each in pictures)
    return Remembered(chain, stored, size, pictures)


class ResponseMemory:
    """The remembered responses, each under the key of its lane."""

    def __init__(self, limit: int) -> None:
        """So many bytes at most."""
        self._limit = limit
        self._by_tenant: defaultdict[str, OrderedDict[Hashable, Remembered]] = defaultdict(OrderedDict)
        """The responses of each tenant, the least recently used first."""
        self._sizes: defaultdict[str, int] = defaultdict(int)

    @property
    def size(self) -> int:
        """How many bytes all of it takes."""
        return sum(self._sizes.values())

    def put(self, tenant: str, key: Hashable, response: Remembered) -> None:
        """Remember a response in the place of the one before it."""
        self.drop(tenant, key)
        self._by_tenant[tenant][key] = response
        self._sizes[tenant] += response.size
        while self.size > self._limit:
            most = max(self._sizes, key=self._sizes.__getitem__)
            self.drop(most, next(iter(self._by_tenant[most])))

    def get(self, tenant: str, key: Hashable) -> Remembered | None:
        """The response remembered under a key, if any still is. This counts as a use."""
        found = self._by_tenant[tenant].get(key) if tenant in self._by_tenant else None
        if found is not None:
            self._by_tenant[tenant].move_to_end(key)
        return found

    def drop(self, tenant: str, key: Hashable) -> None:
        """Forget what is remembered under a key, if anything is."""
        if tenant not in self._by_tenant:
            return
        dropped = self._by_tenant[tenant].pop(key, None)
        if dropped is not None:
            self._sizes[tenant] -= dropped.size
        if not self._by_tenant[tenant]:
            del self._by_tenant[tenant]
            del self._sizes[tenant]
