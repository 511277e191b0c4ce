"""The limits of a project and its keys: requests and tokens in a minute and in a month, and how many at once.

A limit is of a whole project or of one key. Fields have the names of OpenAI's rate limits; those that OpenAI doesn't
have are named alike. Months are of the calendar, in UTC. Pure.
"""

import math
from collections.abc import Sequence
from datetime import UTC, datetime
from typing import NamedTuple

import msgspec

from service.errors import ApiError
from service.settings.core import LIMITS
from store.limits import Admission, Check, Left, Refused, What, Window

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
        return _checks(WHOLE_PROJECT, filled(self.limit, default)) + _checks(self.key, self.of_key)


def _checks(scope: str, limit: Limit | None) -> list[Check]:
    return [
        Check(scope, what, window, most)
        for field, (what, window) in _KINDS.items()
        if (most := getattr(limit, field, None)) is not None
    ]


def filled(own: Limit | None, default: Limit) -> Limit:
    """The limits of a project, with the `default` of all projects where it has none of its own."""
    if own is None:
        return default
    return Limit(
        **{field: getattr(default, field) if getattr(own, field) is None else getattr(own, field) for field in LIMITS}
    )


class Shown:
    """The headers of some limits, OpenAI's `x-ratelimit-*`. They show one limit of requests and one of tokens: the one
    with the smallest part left, among those of a minute where there are such.
    """

    def __init__(self, checks: Sequence[Check]) -> None:
        self._choices = [(names, found) for what, names in _HEADERS.items() if (found := _shown(checks, what))]

    def headers(self, left: Sequence[Left]) -> list[tuple[bytes, bytes]]:
        """The headers where so much is left of each limit."""
        headers: list[tuple[bytes, bytes]] = []
        for (limit, remaining, reset), choice in self._choices:
            number, _, text = min(choice, key=lambda each: left[each[0]].amount / (each[1] or 1))
            amount, seconds = left[number]
            headers += (limit, text), (remaining, b"%d" % amount), (reset, duration(seconds).encode())
        return headers


def _shown(checks: Sequence[Check], what: What) -> list[tuple[int, int, bytes]]:
    """The limits of which one may be shown: their numbers, and the limits as numbers and as texts."""
    found = [(number, check) for number, check in enumerate(checks) if check.what == what]
    minutes = [each for each in found if each[1].window == "minute"]
    return [(number, check.limit, b"%d" % check.limit) for number, check in minutes or found]


def duration(seconds: float) -> str:
    """A duration as Go writes it, rounded up to milliseconds: `0s`, `120ms`, `8.64s`, `6m0s`, `1h0m0s`."""
    ms = math.ceil(seconds * 1000)
    if ms < 1000:
        return f"{ms}ms" if ms else "0s"
    minutes, rest = divmod(ms, 60_000)
    text = f"{rest / 1000:.3f}".rstrip("0").rstrip(".") + "s"
    if not minutes:
        return text
    hours, minutes = divmod(minutes, 60)
    return f"{hours}h{minutes}m{text}" if hours else f"{minutes}m{text}"


def refusal_of(allowance: Allowance, model: str, checks: Sequence[Check], found: Admission, now: float) -> ApiError:
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
            "Send less input, or ask whoever runs this service for a higher limit.",
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


def _quota_gone(what: str, now: float, refused: Refused) -> ApiError:
    """The error for a month's limit that is used up. Clients that are told so don't try again."""
    when = "" if refused.seconds is None else f"; it begins anew at {_utc(now + refused.seconds)}"
    return ApiError(
        429,
        f"You exceeded your current quota for {what} Ask whoever runs this service for more{when}.",
        type="insufficient_quota",
        code="insufficient_quota",
    )


def _utc(seconds: float) -> str:
    return datetime.fromtimestamp(math.ceil(seconds), UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
