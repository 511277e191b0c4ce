"""Requests that wait for a slot: of a tenant first in, first out; of tenants, the least served goes first.

Of those that count the same who came first goes first. Here is no clock, and nothing waits: whoever does has a place,
and gives it back.
"""

from collections import deque
from collections.abc import Callable
from itertools import count
from typing import Generic, TypeVar

from service.web.admission.served import Served

T = TypeVar("T")


class QueueTicket(Generic[T]):
    """A request that waits: whose it is, and what is told to it."""

    __slots__ = ("answer", "number", "tenant")

    def __init__(self, tenant: str, number: int, answer: T) -> None:
        self.tenant = tenant
        self.number = number
        self.answer = answer


class Queue(Generic[T]):
    """The requests that wait. Their number is bounded by the caller that lets them in."""

    def __init__(self, served: Served) -> None:
        self._served = served
        self._lines: dict[str, deque[QueueTicket[T]]] = {}
        """The waiting requests of each tenant, in the order in which they came."""
        self._numbers = count()

    def __len__(self) -> int:
        return sum(map(len, self._lines.values()))

    def places(self) -> list[QueueTicket[T]]:
        """All that wait."""
        return [place for line in self._lines.values() for place in line]

    def join(self, tenant: str, answer: T) -> QueueTicket[T]:
        """A request has come, and waits until it is taken."""
        if tenant not in self._lines:
            self._served.come(tenant, self._lines)
        place = QueueTicket(tenant, next(self._numbers), answer)
        self._lines.setdefault(tenant, deque()).append(place)
        return place

    def leave(self, place: QueueTicket[T]) -> None:
        """End the wait of a request. A second call changes nothing."""
        line = self._lines.get(place.tenant)
        if line is not None and place in line:
            line.remove(place)
            if not line:
                del self._lines[place.tenant]

    def take(self, fits: Callable[[str], bool]) -> QueueTicket[T] | None:
        """The next request, which waits no more; None where there is no room for it.

        Of the least served tenants one may fit where another doesn't, as some room is kept for newcomers. Nobody else
        gets that room, or it would go to tenants that have had their share.
        """
        first: QueueTicket[T] | None = None
        least = min(map(self._served.of, self._lines), default=0.0)
        for tenant, line in self._lines.items():
            if (first is None or line[0].number < first.number) and self._served.of(tenant) <= least and fits(tenant):
                first = line[0]
        if first is not None:
            self.leave(first)
        return first
