"""The turns of requests: a tenant's come first in, first out; of tenants, the one that was served least goes first.

Service is counted in virtual tokens over the tenant's weight: a token of a prompt is one, and one of an output OUTPUT,
as it takes an engine longer. Nobody knows what a request will take when it begins. It is expected to take what those of
its tenant took on the mean, and counts as that until it takes more, or ends: so of many slots that come free together
no tenant gets all. A tenant that returns starts no lower than the least served tenant that waits, or than the one that
went last if none does, so it can't save up credit.

The source is the Virtual Token Counter of Sheng et al., Fairness in Serving Large Language Models, OSDI 2024. Here is
no clock, and nothing waits: whoever does has a ticket, and gives it back.
"""

from collections import deque
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from heapq import nlargest
from itertools import count
from typing import Generic, TypeVar

T = TypeVar("T")

OUTPUT = 2
"""The virtual tokens of one token of an output."""

FIRST_EXPECTED = 1024.0
"""The virtual tokens expected of a request before any has ended."""

MEAN_OF = 16

LEAST = 1
"""The cost of a request that took no tokens, such as one that is refused: a tenant that sends thousands of these
takes turns as well."""

LEAST_A_SECOND = 16
"""The least cost of each second in which a request had its slot, as when its client sends the body slowly."""

MOST = 4096
"""The most tenants that are remembered. Beyond it the half that was served least is forgotten: an unknown tenant
counts as a newcomer."""


@dataclass(slots=True)
class _Account:
    """The virtual tokens that a tenant was served, over its weight, and the weight by which they were counted. Besides,
    in virtual tokens: the mean of one request, and the expected rest of its requests under way.
    """

    served: float
    mean: float
    weight: float
    expected: float = 0.0


class ServedTenants:
    """The accounts of all tenants."""

    def __init__(self, weight: Callable[[str], float] = lambda _: 1.0) -> None:
        """`weight` is a tenant's at the moment, above 0: one of twice another's is served twice as much."""
        self._weight = weight
        self._accounts: dict[str, _Account] = {}
        self._level = 0.0
        """The level of the tenant whose request began last."""
        self._mean = FIRST_EXPECTED

    def __len__(self) -> int:
        """How many tenants are remembered."""
        return len(self._accounts)

    def of(self, tenant: str) -> float:
        """How much a tenant counts: what it was served, and what is expected besides."""
        account = self._account_of(tenant)
        return self._level if account is None else account.served + account.expected / account.weight

    def come(self, tenant: str, waiting: Iterable[str]) -> None:
        """A tenant asks for something that had nothing waiting, while these tenants have."""
        known = map(self._account_of, waiting)
        least = min((self._level if each is None else each.served for each in known), default=self._level)
        account = self._account(tenant)
        account.served = max(account.served, least)

    def begin(self, tenant: str) -> "Bill":
        account = self._account(tenant)
        self._level = account.served
        return Bill(self, tenant, account.mean)

    def add(self, tenant: str, served: float, expected: float = 0.0) -> None:
        """Count so many virtual tokens more as served, and as expected; or less."""
        account = self._account(tenant)
        account.served += served / account.weight
        account.expected = max(0.0, account.expected + expected)

    def took(self, tenant: str, tokens: float) -> None:
        account = self._account(tenant)
        account.mean += (tokens - account.mean) / MEAN_OF
        self._mean += (tokens - self._mean) / MEAN_OF

    def _account_of(self, tenant: str) -> _Account | None:
        """A tenant's account, if it has any, by the weight that it has now: what it was served beyond others is as many
        tokens as it was, and another distance.
        """
        account = self._accounts.get(tenant)
        if account is not None and (weight := self._weight(tenant)) != account.weight:
            beyond = max(0.0, account.served - self._level)
            account.served += beyond * (account.weight / weight - 1)
            account.weight = weight
        return account

    def _account(self, tenant: str) -> _Account:
        account = self._account_of(tenant)
        if account is None:
            if len(self._accounts) >= MOST:
                kept = nlargest(MOST // 2, self._accounts.items(), key=lambda each: each[1].served)
                self._accounts = dict(kept)
            account = self._accounts[tenant] = _Account(self._level, self._mean, self._weight(tenant))
        return account


class Bill:
    """The virtual tokens of one request, from its beginning to `settle`."""

    def __init__(self, served: ServedTenants, tenant: str, mean: float) -> None:
        self._served = served
        self._tenant = tenant
        self._taken = 0
        self._expected = mean
        self._open = True
        served.add(tenant, 0.0, mean)

    def note(self, prompt: int, output: int) -> None:
        """Note that it has taken so many tokens by now, of its prompts and of its output."""
        taken = prompt + OUTPUT * output
        if self._open and taken != self._taken:
            more, self._taken = taken - self._taken, taken
            self._count(more, max(0.0, self._expected - more))

    def settle(self, seconds: float = 0.0) -> None:
        """Note that it has ended, after so many seconds. A second call changes nothing."""
        if not self._open:
            return
        self._open = False
        self._count(max(0.0, LEAST + LEAST_A_SECOND * seconds - self._taken), 0.0)
        if self._taken:
            self._served.took(self._tenant, self._taken)

    def _count(self, more: float, expected: float) -> None:
        self._served.add(self._tenant, more, expected - self._expected)
        self._expected = expected


@dataclass(frozen=True, slots=True, eq=False)
class QueueTicket(Generic[T]):
    """A request that waits: whose it is, its number among all, and the answer that it waits for."""

    tenant: str
    number: int
    answer: T


class Queue(Generic[T]):
    """The requests that wait. Their number is bounded by the caller that lets them in."""

    def __init__(self, served: ServedTenants) -> None:
        self._served = served
        self._lines: dict[str, deque[QueueTicket[T]]] = {}
        """The waiting requests of each tenant, in the order in which they came."""
        self._numbers = count()

    def __len__(self) -> int:
        return sum(map(len, self._lines.values()))

    def tickets(self) -> list[QueueTicket[T]]:
        return [ticket for line in self._lines.values() for ticket in line]

    def join(self, tenant: str, answer: T) -> QueueTicket[T]:
        if tenant not in self._lines:
            self._served.come(tenant, self._lines)
        ticket = QueueTicket(tenant, next(self._numbers), answer)
        self._lines.setdefault(tenant, deque()).append(ticket)
        return ticket

    def leave(self, ticket: QueueTicket[T]) -> None:
        """End the wait of a request. A second call changes nothing."""
        line = self._lines.get(ticket.tenant, deque[QueueTicket[T]]())
        if ticket in line:
            line.remove(ticket)
            if not line:
                del self._lines[ticket.tenant]

    def take(self, fits: Callable[[str], bool]) -> QueueTicket[T] | None:
        """The next request, which waits no more; None where there is no room for it.

        Of the least served tenants one may fit where another doesn't, as some room is kept for newcomers. Nobody else
        gets that room, or it would go to tenants that have had their share.
        """
        if not self._lines:
            return None
        least = min(map(self._served.of, self._lines))
        firsts = (line[0] for tenant, line in self._lines.items() if self._served.of(tenant) <= least and fits(tenant))
        first = min(firsts, key=lambda ticket: ticket.number, default=None)
        if first is not None:
            self.leave(first)
        return first
