"""Who lets work begin within its tenant's limits, and counts what it took.

    admit ─▶ Reservation ─┬─▶ settle                      the work ended in this process
                          └─▶ handed_over ─▶ settle(…)     a worker ends it, in whichever process

Where nothing limits a tenant nobody is asked. Settling happens beside the request, which never waits for it: with the
next one that the tenant lets begin, or by itself SETTLE_SECONDS later. What a
process can't settle, because it was killed or the store was away, is due some time later, and whoever finds that
settles it by the response that is stored (service/background/settling.py).
"""

import asyncio
import logging
from collections import defaultdict
from collections.abc import Callable, Generator, Mapping
from contextlib import contextmanager
from itertools import islice
from typing import NamedTuple, Protocol

from service.api.response import Response
from service.logs import event
from service.settings.background import RENEWALS
from service.tenants.limits import Allowance, Limit, Shown, filled, refusal_of
from store.errors import StoreError, StoreUnavailable
from store.limits.limits import MOST_SETTLED, Check, Limits, Spent, Unspent

logger = logging.getLogger(__name__)

HELD_AT_ONCE = 500
"""Of how many pieces of a tenant's work one command says that they are under way."""

SETTLE_SECONDS = 0.05
"""For how long what is over waits to be settled together with what begins, unless it keeps others from beginning."""

MOST_REMEMBERED = 20_000
"""Of so many keys and models a process remembers the limits, some 2 KB each where there are four."""

CLOSE_SECONDS = 5.0
"""For how long a process that ends goes on settling."""


def spent_in(response: Response) -> Spent:
    """What a response that has ended took."""
    usage = response.usage
    return Spent(0, 0) if usage is None else Spent(usage.input_tokens, usage.output_tokens)


class Work(Protocol):
    """What a reservation is for."""

    @property
    def spent(self) -> Spent | Unspent:
        """What it has taken until now."""
        ...


class Reservation:
    """What was reserved for a piece of work. `settle` it at its end, or have it `handed_over`."""

    work: Work | None = None
    """None as long as it hasn't begun."""

    def __init__(
        self, limiter: "Limiter", tenant: str, id: str, headers: list[tuple[bytes, bytes]], *, at_once: bool
    ) -> None:
        """It is settled `at_once` where it takes a place of others."""
        self.headers = headers
        """What the answer says of what is left."""
        self._at_once = at_once
        self._limiter, self._tenant, self._id = limiter, tenant, id
        self._over = False

    def settle(self) -> None:
        """The work is over, or never began: count what it took. A second time changes nothing. Never blocks."""
        if not self._over:
            self._over = True
            spent = Unspent.NEVER_BEGAN if self.work is None else self.work.spent
            self._limiter.settle(self._tenant, self._id, spent, at_once=self._at_once)

    @contextmanager
    def handed_over(self) -> Generator[None]:
        """The work is handed over in the block to whoever settles it at its end; where that fails, it never began."""
        try:
            yield
        except (StoreUnavailable, asyncio.CancelledError):  # it may have been accepted, which is seen once this is due
            self._hand_over()
            raise
        except BaseException:
            self.settle()
            raise
        self._hand_over()

    def _hand_over(self) -> None:
        self._over = True
        self._limiter.let_go(self._tenant, self._id)


class _Known(NamedTuple):
    """All limits of what is asked of a model, what answers say of them, and what they were made of."""

    checks: list[Check]
    shown: Shown
    parallel: bool
    """Whether some are of how many there are at once."""
    limits: Mapping[str, Limit]
    of_key: Limit | None


class Limiter:
    """The limits of all tenants, as one process keeps them."""

    def __init__(
        self,
        limits: Limits,
        default: Limit,
        clock: Callable[[], float],
        settle_seconds: float = SETTLE_SECONDS,
    ) -> None:
        """`default` is what limits a tenant that has no limit of its own; `clock` gives the seconds since 1970."""
        self.limits = limits
        self.default = default
        self._clock = clock
        self._settle_seconds = settle_seconds
        self._known: dict[tuple[str, str, str], _Known] = {}
        """By tenant, key and model."""
        self._held: defaultdict[str, set[str]] = defaultdict(set)
        self._over: defaultdict[str, dict[str, Spent | Unspent]] = defaultdict(dict)
        """By tenant, what is over and not settled yet, with a timer for each."""
        self._timers: dict[str, asyncio.TimerHandle] = {}
        self._settling: set[asyncio.Task[None]] = set()

    async def admit(
        self, allowance: Allowance, model: str, id: str, *, reads: int, writes: int, succeeds: bool = False
    ) -> Reservation | None:
        """Reserve what a response may take that reads and writes so many tokens at most; None where nothing
        limits it. One that `succeeds` another has the place of that, which ends as it begins. Raises ApiError 429,
        StoreUnavailable.
        """
        checks, shown, parallel, *_ = self._known_of(allowance, model)
        if not checks:
            return None
        if succeeds:
            checks = [each.with_one_more() for each in checks]
        tenant = allowance.tenant
        over = self._take_over(tenant)
        try:
            found = await self.limits.admit(tenant, id, checks, reads=reads, writes=writes, over=over)
        except BaseException:  # to settle it again changes nothing
            for each, spent in over.items():
                self._settle_later(tenant, each, spent)
            raise
        if found.refused is not None:
            raise refusal_of(allowance, model, checks, found, self._clock())
        self._held[tenant].add(id)
        return Reservation(self, tenant, id, shown.headers(found.left), at_once=parallel)

    def _known_of(self, allowance: Allowance, model: str) -> _Known:
        """All limits of what is asked of a model, remembered as long as what they are made of is."""
        tenant, limits, key, of_key = allowance
        known = self._known.get((tenant, key, model))
        if known is not None and known.limits is limits and known.of_key is of_key:
            return known
        checks = allowance._replace(limits=filled(limits, self.default)).checks(model)
        if len(self._known) >= MOST_REMEMBERED:
            self._known.clear()
        parallel = any(check.what == "parallel" for check in checks)
        known = self._known[tenant, key, model] = _Known(checks, Shown(checks), parallel, limits, of_key)
        return known

    def settle(self, tenant: str, id: str, spent: Spent | Unspent, *, at_once: bool = True) -> None:
        """Count what work has taken, soon. Never blocks."""
        self.let_go(tenant, id)
        self._settle_later(tenant, id, spent)
        if at_once or len(self._over[tenant]) >= MOST_SETTLED:
            self._settle_now(tenant)

    def let_go(self, tenant: str, id: str) -> None:
        """This process says no more that the work is under way."""
        held = self._held.get(tenant, set())
        held.discard(id)
        if not held:
            self._held.pop(tenant, None)

    def _settle_later(self, tenant: str, id: str, spent: Spent | Unspent) -> None:
        self._over[tenant][id] = spent
        if tenant not in self._timers:
            loop = asyncio.get_running_loop()
            self._timers[tenant] = loop.call_later(self._settle_seconds, self._in_time, tenant)

    def _in_time(self, tenant: str) -> None:
        """Settle what the tenant has let nothing begin with."""
        del self._timers[tenant]
        self._settle_now(tenant)

    def _take_over(self, tenant: str) -> dict[str, Spent | Unspent]:
        """What is over, at most MOST_SETTLED, for whoever settles it now."""
        over = self._over.pop(tenant, {})
        taken = dict(islice(over.items(), MOST_SETTLED))
        for id, spent in islice(over.items(), MOST_SETTLED, None):
            self._settle_later(tenant, id, spent)
        return taken

    def _settle_now(self, tenant: str) -> None:
        while over := self._take_over(tenant):
            task = asyncio.create_task(self._settle(tenant, over))
            self._settling.add(task)
            task.add_done_callback(self._settling.discard)

    async def _settle(self, tenant: str, over: Mapping[str, Spent | Unspent]) -> None:
        try:
            await self.limits.settle_all(tenant, over)
        except StoreError as error:
            event(logger, logging.WARNING, "limits are settled later", responses=len(over), reason=str(error))

    async def hold_for_ever(self) -> None:
        """Say again and again what is under way here, until cancelled."""
        while True:
            await asyncio.sleep(self.limits.held_seconds / RENEWALS)
            for tenant, held in [(tenant, list(held)) for tenant, held in self._held.items()]:
                for at in range(0, len(held), HELD_AT_ONCE):
                    try:
                        await self.limits.hold(tenant, held[at : at + HELD_AT_ONCE])
                    except StoreError:  # the next one may do; else it is settled by what is stored
                        break

    async def close(self) -> None:
        """Settle what is over, for CLOSE_SECONDS at most."""
        for timer in self._timers.values():
            timer.cancel()
        for tenant in tuple(self._over):
            self._settle_now(tenant)
        if self._settling:
            await asyncio.wait(self._settling, timeout=CLOSE_SECONDS)
