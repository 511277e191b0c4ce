"""The limiter: lets work begin within its tenant's limits, and counts what it took.

    reserved ─▶ Reservation ─┬─▶ settle                    the work ended in this process, or never began
                             └─▶ handed_over ─▶ settle(…)   a worker ends it, in whichever process

A tenant without limits costs no call of the store. Settling happens beside the request, which never waits for it: with
the tenant's next admission, or by itself SETTLE_SECONDS later. A reservation that a process can't settle, because it
was killed, is due some time later: then another process settles it by the stored response
(service/background/settling.py).
"""

import asyncio
from collections import defaultdict
from collections.abc import AsyncGenerator, Awaitable, Callable, Generator
from contextlib import asynccontextmanager, contextmanager
from functools import partial
from typing import NamedTuple, Protocol

from service.api.response import Response
from service.loans import Loans
from service.settings.background import RENEWALS
from service.tenants.limits import Allowance, Limit, Shown, refusal_of
from store.errors import StoreError, StoreUnavailable
from store.limits import MOST_SETTLED, Check, Limits, Over, Spent, Unspent

HELD_AT_ONCE = 500
"""How many pieces of a tenant's work one command reports as under way."""

SETTLE_SECONDS = 0.05
"""How long ended work waits to be settled together with work that begins, unless it keeps other work from beginning."""

MOST_REMEMBERED = 20_000
"""The keys whose limits a process remembers, some 2 KB each where there are four."""


def spent_in(response: Response) -> Spent:
    """The tokens that a response that has ended took."""
    usage = response.usage
    return Spent(0, 0) if usage is None else Spent(usage.input_tokens, usage.output_tokens)


class Work(Protocol):
    """The work for which a reservation is made."""

    @property
    def spent(self) -> Spent | Unspent:
        """The tokens that it has taken until now."""
        ...


class Reservation:
    """The reservation for a piece of work. It is settled at the end of its block, unless it was before, or is
    `handed_over`.
    """

    work: Work | None = None
    """None as long as it hasn't begun."""

    def __init__(
        self, limiter: "Limiter", tenant: str, over: Over, headers: list[tuple[bytes, bytes]], *, at_once: bool
    ) -> None:
        """It is `over` as it is now, and settled `at_once` where it takes a place of others."""
        self.headers = headers
        """The headers of the answer: how much is left."""
        self._at_once = at_once
        self._limiter, self._tenant, self._never_began = limiter, tenant, over
        self._over = False

    def settle(self) -> None:
        """Count the tokens of work that is over, or never began. A second time changes nothing. Never blocks."""
        if not self._over:
            self._over = True
            over = self._never_began if self.work is None else self._never_began._replace(spent=self.work.spent)
            self._limiter.settle(self._tenant, over, at_once=self._at_once)

    @contextmanager
    def handed_over(self, is_there: Callable[[], Awaitable[bool]]) -> Generator[None]:
        """Hand the work over in the block to the process that settles it at its end; where that fails, it never began.
        Where nobody knows whether it was accepted, `is_there` says so later.
        """
        doubtful = False
        try:
            yield
        except (StoreUnavailable, asyncio.CancelledError):
            doubtful = True
            raise
        except BaseException:
            self.settle()
            raise
        finally:
            if not self._over:
                self._over = True
                self._limiter.let_go(self._tenant, self._never_began.token)
            if doubtful:
                self._limiter.settle_unless(is_there, self._tenant, self._never_began)


class _Known(NamedTuple):
    """All limits of a key, the headers about them, and the limits that they were made of."""

    checks: list[Check]
    shown: Shown
    parallel: bool
    """Whether some are of how many there are at once."""
    own: Limit | None
    of_key: Limit | None


class Limiter:
    """The limits of all tenants, as one process keeps them."""

    def __init__(
        self,
        limits: Limits,
        default: Limit,
        loans: Loans,
        clock: Callable[[], float],
        settle_seconds: float = SETTLE_SECONDS,
    ) -> None:
        """`default` has the limits of a tenant without its own; `clock` gives the seconds since 1970."""
        self.limits = limits
        self.default = default
        self._loans = loans
        self._clock = clock
        self._settle_seconds = settle_seconds
        self._known: dict[tuple[str, str], _Known] = {}
        """By tenant and key."""
        self._held: defaultdict[str, dict[str, str]] = defaultdict(dict)
        """By tenant, the ids of the work under way by the tokens of their reservations."""
        self._over: defaultdict[str, list[Over]] = defaultdict(list)
        """By tenant, the work that is over and not settled yet, with a timer for each."""
        self._timers: dict[str, asyncio.TimerHandle] = {}

    @asynccontextmanager
    async def reserved(
        self, allowance: Allowance, model: str, id: str, *, reads: int, writes: int, succeeds: bool = False
    ) -> AsyncGenerator[Reservation | None]:
        """The reservation, until the block ends, for a response that reads and writes so many tokens at most; None
        where it has no limits. A response that `succeeds` another takes the place of that one, which ends as it begins.
        Raises ApiError 429, StoreUnavailable.
        """
        checks, shown, parallel, *_ = self._known_of(allowance)
        if not checks:
            yield None
            return
        if succeeds:
            checks = [each.with_one_more() for each in checks]
        tenant, never_began = allowance.tenant, Over(id, Unspent.NEVER_BEGAN, self.limits.history.token())
        settled = self._take_over(tenant)
        try:
            found = await self.limits.admit(
                tenant, id, checks, reads=reads, writes=writes, token=never_began.token, over=settled
            )
        except BaseException:  # to settle it again changes nothing, nor does settling what isn't reserved
            self._give_back(tenant, [*settled, never_began], doubtful=True)
            raise
        if found.refused is not None:
            raise refusal_of(allowance, model, checks, found, self._clock())
        self._held[tenant][never_began.token] = id
        reservation = Reservation(self, tenant, never_began, shown.headers(found.left), at_once=parallel)
        try:
            yield reservation
        finally:
            reservation.settle()

    def _known_of(self, allowance: Allowance) -> _Known:
        """All limits of a key, remembered as long as the limits that they are made of stay."""
        tenant, own, key, of_key = allowance
        known = self._known.get((tenant, key))
        if known is not None and known.own is own and known.of_key is of_key:
            return known
        checks = allowance.checks(self.default)
        if len(self._known) >= MOST_REMEMBERED:
            self._known.clear()
        parallel = any(check.what == "parallel" for check in checks)
        known = self._known[tenant, key] = _Known(checks, Shown(checks), parallel, own, of_key)
        return known

    def settle(self, tenant: str, over: Over, *, at_once: bool = True) -> None:
        """Count the tokens of some work, soon. Never blocks."""
        self.let_go(tenant, over.token)
        self._over[tenant].append(over)
        if at_once or len(self._over[tenant]) >= MOST_SETTLED:
            self._settle_now(tenant)
            return
        if tenant not in self._timers:
            loop = asyncio.get_running_loop()
            self._timers[tenant] = loop.call_later(self._settle_seconds, self._in_time, tenant)

    def settle_unless(self, is_there: Callable[[], Awaitable[bool]], tenant: str, over: Over) -> None:
        """Settle work later that may have been accepted elsewhere, unless it is there then. Never blocks."""

        async def settle() -> None:
            if not await is_there():
                await self.limits.settle_all(tenant, [over])

        self._loans.give_back(settle, later=True)

    def let_go(self, tenant: str, token: str) -> None:
        """Stop saying that the work is under way."""
        held = self._held.get(tenant, {})
        held.pop(token, None)
        if not held:
            self._held.pop(tenant, None)

    def _in_time(self, tenant: str) -> None:
        """Settle the tenant's ended work that no admission has settled."""
        del self._timers[tenant]
        self._settle_now(tenant)

    def _take_over(self, tenant: str) -> list[Over]:
        """The work that is over, less than MOST_SETTLED, for the caller to settle now."""
        return self._over.pop(tenant, [])

    def _settle_now(self, tenant: str) -> None:
        if over := self._take_over(tenant):
            self._give_back(tenant, over)

    def _give_back(self, tenant: str, over: list[Over], *, doubtful: bool = False) -> None:
        self._loans.give_back(partial(self.limits.settle_all, tenant, over), doubtful=doubtful)

    async def hold_for_ever(self) -> None:
        """Report again and again the work under way here, until cancelled."""
        while True:
            await asyncio.sleep(self.limits.held_seconds / RENEWALS)
            for tenant, held in [(tenant, list(held.values())) for tenant, held in self._held.items()]:
                for at in range(0, len(held), HELD_AT_ONCE):
                    try:
                        await self.limits.hold(tenant, held[at : at + HELD_AT_ONCE])
                    except StoreError:  # the next one may do; else it is settled by what is stored
                        break

    def close(self) -> None:
        """Settle the work that is over."""
        for timer in self._timers.values():
            timer.cancel()
        for tenant in tuple(self._over):
            self._settle_now(tenant)
