"""Limits as values: which hold, what headers and refusals say."""

import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from service.features.tenants.limits import Allowance, KnownLimits, Limit, refusal_of, spoken
from service.features.tenants.settings import LIMITS, parse_limits
from store.limits import Check, Left, LimitsLeft, RefusedByLimit

NOW = 1_790_000_000.0  # 2026-09-21T13:33:20Z
TPM = Check("all", "tokens", "minute", 10_000)


def test_limits_of_project_and_key_all_hold() -> None:
    allowance = Allowance("acme", Limit(max_requests_per_1_minute=5), "key_1", Limit(max_parallel_responses=2))
    default = Limit(max_tokens_per_1_month=7)
    assert allowance.checks(default) == [
        Check("all", "requests", "minute", 5),
        Check("all", "tokens", "month", 7),
        Check("key_1", "parallel", "", 2),
    ]
    assert Allowance("acme").checks(Limit()) == []


@given(st.floats(0.0001, 5_000_000))
def test_a_delay_is_spoken_without_exponents(seconds: float) -> None:
    found = re.fullmatch(r"(\d+(?:\.\d+)?)s", spoken(seconds))
    assert found is not None
    assert float(found[1]) >= seconds - 1e-3


def test_headers_are_of_what_has_least_left() -> None:
    checks = [TPM, TPM._replace(limit=100), Check("all", "tokens", "month", 10), Check("k", "requests", "month", 8)]
    shown = dict(KnownLimits(checks).headers([Left(9000, 6), Left(50, 30), Left(0, 9e5), Left(3, 7200)]))
    assert shown[b"x-ratelimit-limit-tokens"] == b"100"
    assert shown[b"x-ratelimit-remaining-tokens"] == b"50"
    assert shown[b"x-ratelimit-reset-tokens"] == b"30s"
    assert shown[b"x-ratelimit-limit-requests"] == b"8"
    assert shown[b"x-ratelimit-reset-requests"] == b"2h0m0s"
    assert KnownLimits([Check("all", "parallel", "", 2)]).headers([Left(1, 0)]) == []


def test_a_refusal_says_whose_limit_it_is_and_when_to_come_back() -> None:
    allowance = Allowance("proj_x", key="key_1")
    found = LimitsLeft([Left(1218, 5)], RefusedByLimit(0, 41.7236, 8172))
    error = refusal_of(allowance, "gpt-oss-20b", [TPM], found, NOW)
    assert error.message == (
        "Rate limit reached for gpt-oss-20b in project proj_x on tokens per min (TPM): Limit 10000, Used 8782, "
        "Requested 8172. Please try again in 41.724s."
    )
    assert (error.status, error.type, error.code) == (429, "tokens", "rate_limit_exceeded")
    assert (error.retry_after, error.retry_after_ms, error.retry) == (42, 41_724, True)
    error = refusal_of(allowance, "m", [TPM._replace(scope="key_1")], found, NOW)
    assert "for m with API key key_1 on" in error.message


def test_a_quota_that_is_gone_says_when_it_begins_anew() -> None:
    month = Check("all", "tokens", "month", 500)
    found = LimitsLeft([Left(100, 0)], RefusedByLimit(0, 86_400.0, 200))
    error = refusal_of(Allowance("acme"), "m", [month], found, NOW)
    assert (error.type, error.code, error.retry, error.retry_after) == ("insufficient_quota",) * 2 + (False, None)
    assert "Limit 500, Used 400, Requested 200" in error.message
    assert "resets at 2026-09-22T" in error.message


def test_the_setting_names_limits_once() -> None:
    assert parse_limits(" max_parallel_responses=3,max_tokens_per_1_month=0, ") == {
        "max_parallel_responses": 3,
        "max_tokens_per_1_month": 0,
    }
    assert parse_limits("") == {}
    for wrong in ("rpm=3", "max_parallel_responses", "max_parallel_responses=-1", "max_parallel_responses=1e3"):
        with pytest.raises(ValueError, match="NAME=NUMBER"):
            parse_limits(wrong)
    with pytest.raises(ValueError, match="once"):
        parse_limits("max_parallel_responses=1,max_parallel_responses=2")
    assert set(LIMITS) == set(Limit.__struct_fields__)
