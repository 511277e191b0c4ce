"""The limits of a project and its keys: requests and tokens in a minute and in a month, and how many at once.

A limit is of a whole project or of one key. Fields have the names of OpenAI's rate limits; those that OpenAI doesn't
have are named alike. Months are of the calendar, in UTC.

The limiter lets work begin within its tenant's limits, and counts what it took.

    reserved ─▶ Reservation ─┬─▶ settle                    the work ended in this process, or never began
                             └─▶ handed_over ─▶ settle(…)   a worker ends it, in whichever process

A tenant without limits costs no call of the store. Settling happens beside the request, which never waits for it: with
the tenant's next admission, or by itself SETTLE_SECONDS later. A reservation that a process can't settle, because it
was killed, is due some time later: then another process settles it by the stored response
(service/features/tenants/settling.py).
"""

import asyncio
import math
from collections import defaultdict
from collections.abc import AsyncGenerator, Awaitable, Callable, Generator, Sequence
from contextlib import AbstractAsyncContextManager, asynccontextmanager, contextmanager, nullcontext
from datetime import UTC, datetime
from functools import lru_cache, partial
from typing import NamedTuple

import msgspec

from service.entrance import Reservation, ReservedWork
from service.errors import ApiError
from service.features.tenants.settings import LIMITS
from service.loans import Loans
from service.settings.core import RENEWALS
from store.errors import StoreError, StoreUnavailable
from store.limits import MOST_SETTLED, Check, Left, Limits, LimitsLeft, RefusedByLimit, What, Window
from store.spent import Over, Spent, Unspent

WHOLE_PROJECT = "all"
"""The scope in which a project's limits are counted."""

PATIENCE_SECONDS = 60.0
"""A client that has to wait longer is told not to try again: its retries would only ask for more."""


class Limit(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """At most so many; None is as many as there are. 0 is none at all."""

    max_requests_per_1_minute: int | None = None
    max_tokens_per_1_minute: int | None = None
    max_requests_per_1_month: int | None = None
    max_tokens_per_1_month: int | None = None
    max_parallel_responses: int | None = None


_WORDS: dict[tuple[What, Window], str] = {
    ("requests", "minute"): "requests per min (RPM)",
    ("tokens", "minute"): "tokens per min (TPM)",
    ("requests", "month"): "requests per month",
    ("tokens", "month"): "tokens per month",
    ("parallel", ""): "responses at once",
}
"""The names of the limits in a refusal."""

_HEADERS: dict[What, tuple[bytes, bytes, bytes]] = {
    "requests": (b"x-ratelimit-limit-requests", b"x-ratelimit-remaining-requests", b"x-ratelimit-reset-requests"),
    "tokens": (b"x-ratelimit-limit-tokens", b"x-ratelimit-remaining-tokens", b"x-ratelimit-reset-tokens"),
}

_KINDS: dict[str, tuple[What, Window]] = dict(zip(LIMITS, _WORDS, strict=True))
"""By the field of a limit, what it counts in which window."""


class Allowance(NamedTuple):
    """The limits of a caller: the tenant's own, and those of its key; None are none."""

    tenant: str
    limit: Limit | None = None
    key: str = ""
    of_key: Limit | None = None

    def checks(self, default: Limit) -> list[Check]:
        """All limits that hold, with the `default` of all projects where the project has none of its own."""
        return _checks(WHOLE_PROJECT, fill_limit(self.limit, default)) + _checks(self.key, self.of_key)


def _checks(scope: str, limit: Limit | None) -> list[Check]:
    return [
        Check(scope, what, window, most)
        for field, (what, window) in _KINDS.items()
        if (most := getattr(limit, field, None)) is not None
    ]


def fill_limit(own: Limit | None, default: Limit) -> Limit:
    """The limits of a project, with the `default` of all projects where it has none of its own."""
    if own is None:
        return default
    return Limit(
        **{field: getattr(default, field) if getattr(own, field) is None else getattr(own, field) for field in LIMITS}
    )


class KnownLimits:
    """All limits of a caller, and the headers about them, OpenAI's `x-ratelimit-*`. These show one limit of requests
    and one of tokens: the one with the smallest part left, among those of a minute where there are such.
    """

    def __init__(self, checks: list[Check]) -> None:
        self.checks = checks
        self.parallel = any(check.what == "parallel" for check in checks)
        """Whether some are of how many there are at once."""
        self._choices = [(names, found) for what, names in _HEADERS.items() if (found := _limits_to_show(checks, what))]

    def headers(self, left: Sequence[Left]) -> list[tuple[bytes, bytes]]:
        """The headers where so much is left of each limit."""
        headers: list[tuple[bytes, bytes]] = []
        for (limit, remaining, reset), choice in self._choices:
            number, _, text = min(choice, key=lambda each: left[each[0]].amount / (each[1] or 1))
            amount, seconds = left[number]
            headers += (limit, text), (remaining, b"%d" % amount), (reset, duration(seconds).encode())
        return headers


def _limits_to_show(checks: Sequence[Check], what: What) -> list[tuple[int, int, bytes]]:
    """The limits of which one may be shown: their numbers, and the limits as numbers and as texts."""
    found = [(number, check) for number, check in enumerate(checks) if check.what == what]
    minutes = [each for each in found if each[1].window == "minute"]
    return [(number, check.limit, b"%d" % check.limit) for number, check in minutes or found]


def duration(seconds: float) -> str:
    """A duration as Go writes it, rounded up to milliseconds: `0s`, `120ms`, `8.64s`, `6m0s`, `1h0m0s`."""
    ms = math.ceil(seconds * 1000)
    if ms < 1000:
        return f"{ms}ms" if ms else "0s"
    all_minutes, rest = divmod(ms, 60_000)
    hours, minutes = divmod(all_minutes, 60)
    before = f"{hours}h{minutes}m" if hours else f"{minutes}m" if minutes else ""
    return before + f"{rest / 1000:.3f}".rstrip("0").rstrip(".") + "s"


def refusal_of(allowance: Allowance, model: str, checks: Sequence[Check], found: LimitsLeft, now: float) -> ApiError:
    """The error for a refused request, in words from which clients read the delay (`try again in 1.2s`)."""
    refused = found.refused
    assert refused is not None
    check, left = checks[refused.check], found.left[refused.check].amount
    where = f"in project {allowance.tenant}" if check.scope != allowance.key else f"with API key {allowance.key}"
    words = _WORDS[check.what, check.window]
    counted = f"Limit {check.limit}, Used {check.limit - left}, Requested {refused.asked}."
    if check.window == "month":
        return _quota_gone(f"{model} {where}, {words}: {counted}", now, refused)
    kind = "tokens" if check.what == "tokens" else "requests"
    if refused.seconds is None:
        return ApiError(
            429,
            f"Request too large for {model} {where} on {words}: Limit {check.limit}, Requested {refused.asked}. "
            "Send less input, or ask this service's operator for a higher limit.",
            type=kind,
            code="rate_limit_exceeded",
        )
    message = f"Rate limit reached for {model} {where} on {words}: {counted}"
    return ApiError(
        429,
        f"{message} Please try again in {spoken(refused.seconds)}.",
        type=kind,
        code="rate_limit_exceeded",
        retry_after=max(1, math.ceil(refused.seconds)),
        retry_after_ms=math.ceil(refused.seconds * 1000),
        retry=refused.seconds <= PATIENCE_SECONDS,
    )


def spoken(seconds: float) -> str:
    """A delay as clients read it out of a message: `1.234s`."""
    return f"{math.ceil(seconds * 1000) / 1000:g}s" if seconds < 1000 else f"{math.ceil(seconds)}s"


def _quota_gone(what: str, now: float, refused: RefusedByLimit) -> ApiError:
    """The error for a month's limit that is used up. Clients that are told so don't try again."""
    when = ""
    if refused.seconds is not None:
        begins = datetime.fromtimestamp(math.ceil(now + refused.seconds), UTC)
        when = f"; it resets at {begins:%Y-%m-%dT%H:%M:%SZ}"
    return ApiError(
        429,
        f"You exceeded your current quota for {what} Ask this service's operator for more{when}.",
        type="insufficient_quota",
        code="insufficient_quota",
    )


# --- the limiter ---

HELD_AT_ONCE = 500
"""How many pieces of a tenant's work one command reports as under way."""

SETTLE_SECONDS = 0.05
"""How long ended work waits to be settled together with work that begins, unless it keeps other work from beginning."""

MOST_REMEMBERED = 20_000
"""The keys whose limits a process remembers, some 2 KB each where there are four."""


class LimitReservation(Reservation):
    """A reservation of limits."""

    def __init__(
        self, limiter: "Limiter", tenant: str, over: Over, headers: list[tuple[bytes, bytes]], *, at_once: bool
    ) -> None:
        """It is `over` as it is now, and settled `at_once` where it takes a place of others."""
        self.work: ReservedWork | None = None
        self.headers = headers
        self.at_once = at_once
        self._limiter, self._tenant, self._never_began = limiter, tenant, over
        self._over = False

    def settle(self) -> None:
        if not self._over:
            self._over = True
            over = self._never_began if self.work is None else self._never_began._replace(spent=self.work.spent)
            self._limiter.settle(self._tenant, over, at_once=self.at_once)

    @contextmanager
    def handed_over(self, is_there: Callable[[], Awaitable[bool]]) -> Generator[None]:
        try:
            yield
        except (StoreUnavailable, asyncio.CancelledError):
            self._limiter.settle_unless(is_there, self._tenant, self._never_began)
            raise
        except BaseException:
            self.settle()
            raise
        finally:
            if not self._over:
                self._over = True
                self._limiter.let_go(self._tenant, self._never_began.token)


class Limiter:
    """The limits of all tenants, as one process keeps them."""

    def __init__(self, limits: Limits, default: Limit, loans: Loans, clock: Callable[[], float]) -> None:
        """`default` has the limits of a tenant without its own; `clock` gives the seconds since 1970."""
        self.limits, self.default = limits, default
        self._loans, self._clock = loans, clock
        self._known_of = lru_cache(MOST_REMEMBERED)(self._known_limits)
        self._held: defaultdict[str, dict[str, str]] = defaultdict(dict)
        """By tenant, the ids of the work under way by the tokens of their reservations."""
        self._over: defaultdict[str, list[Over]] = defaultdict(list)
        """By tenant, the work that is over and not settled yet, with a timer for each."""
        self._timers: dict[str, asyncio.TimerHandle] = {}

    def reserving(
        self, allowance: Allowance, model: str, id: str, *, reads: int, writes: int, succeeds: bool = False
    ) -> AbstractAsyncContextManager[LimitReservation | None]:
        """The reservation, until the block ends, for a response that reads and writes so many tokens at most; None
        where it has no limits. A response that `succeeds` another takes the place of that one, which ends as it begins.
        Raises ApiError 429, StoreUnavailable.
        """
        known = self._known_of(allowance)
        if not known.checks:
            return nullcontext()
        return self._reserving(allowance, known, model, id, reads, writes, succeeds=succeeds)

    async def refuse_exhausted(
        self, allowance: Allowance, model: str, *, counts: bool = False, succeeds: bool = False
    ) -> None:
        """Raise ApiError 429 where a caller's limits let nothing begin now, not even of one token, nor what `succeeds`
        another: before something is fetched on its word. It takes nothing of them, unless it `counts` as a request, as
        what has no reservation later. Raises StoreUnavailable.
        """
        id = self.limits.history.new_id()
        async with self.reserving(allowance, model, id, reads=1, writes=0, succeeds=succeeds) as reservation:
            if reservation is not None:
                reservation.at_once = False  # it is settled with the admission that follows
                reservation.work = Over(id, Spent(0, 0)) if counts else None

    @asynccontextmanager
    async def _reserving(
        self, allowance: Allowance, known: KnownLimits, model: str, id: str, reads: int, writes: int, *, succeeds: bool
    ) -> AsyncGenerator[LimitReservation]:
        checks = [each.with_one_more() for each in known.checks] if succeeds else known.checks
        tenant, never_began = allowance.tenant, Over(id, Unspent.NEVER_BEGAN, self.limits.history.token())
        settled = self._over.pop(tenant, [])
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
        reservation = LimitReservation(self, tenant, never_began, known.headers(found.left), at_once=known.parallel)
        try:
            yield reservation
        finally:
            reservation.settle()

    def _known_limits(self, allowance: Allowance) -> KnownLimits:
        return KnownLimits(allowance.checks(self.default))

    def settle(self, tenant: str, over: Over, *, at_once: bool = True) -> None:
        """Count the tokens of some work, soon. Never blocks."""
        self.let_go(tenant, over.token)
        self._over[tenant].append(over)
        if at_once or len(self._over[tenant]) >= MOST_SETTLED:
            self._settle_now(tenant)
            return
        if tenant not in self._timers:
            loop = asyncio.get_running_loop()
            self._timers[tenant] = loop.call_later(SETTLE_SECONDS, self._settle_now, tenant)

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

    def _settle_now(self, tenant: str) -> None:
        """Settle the tenant's ended work that no admission has settled."""
        if timer := self._timers.pop(tenant, None):
            timer.cancel()
        if over := self._over.pop(tenant, []):
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
        for tenant in {*self._timers, *self._over}:
            self._settle_now(tenant)
