"""Addresses: what a URL names, and why one is refused."""

import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from store.redis.address import SCHEMES, Address, AddressKind, parse

SECRET = "s3cret"


@pytest.mark.parametrize(
    ("url", "address"),
    [
        ("rediss://me:pw@h:1/2?ssl_ca_certs=x", Address(AddressKind.SINGLE, ("rediss://me:pw@h:1/2?ssl_ca_certs=x",))),
        ("unix:///run/redis.sock?db=1", Address(AddressKind.SINGLE, ("unix:///run/redis.sock?db=1",))),
        (
            "redis+sentinel://me:p%2Fw@h1:1,[::1]:2/service/3?x=y",
            Address(AddressKind.SENTINEL, ("redis://me:p%2Fw@h1:1/3?x=y", "redis://me:p%2Fw@[::1]:2/3?x=y"), "service"),
        ),
        ("rediss+cluster://h1:1,h2", Address(AddressKind.CLUSTER, ("rediss://h1:1", "rediss://h2"))),
        ("redis+cluster://me:p,w@h1/?x=a/b", Address(AddressKind.CLUSTER, ("redis://me:p,w@h1?x=a/b",))),
    ],
)
def test_a_url_names_hosts_and_what_answers_there(url: str, address: Address) -> None:
    assert parse(url) == address
    assert address.tls == url.startswith("rediss")


@pytest.mark.parametrize(
    ("url", "reason"),
    [
        ("", "should begin with"),
        (f"http://me:{SECRET}@h", "redis+sentinel:// or redis+cluster://"),
        (f"redis://:{SECRET}/x@h:6379", "%2F"),
        ("redis://[bad", "not a URL"),
        (f"redis://me:{SECRET}@h/{SECRET}", "number of a database"),
        (f"redis+sentinel://me:{SECRET}@h", "name the service"),
        ("redis+sentinel://h/service/x", "number of a database"),
        ("redis+cluster://h/1", "a cluster has only one"),
        ("redis+sentinel://h,,h/service", "should name hosts"),
    ],
)
def test_a_url_that_names_nothing_is_refused_without_being_shown(url: str, reason: str) -> None:
    with pytest.raises(ValueError, match=re.escape(reason)) as refusal:
        parse(url)
    assert SECRET not in str(refusal.value)


@given(st.sampled_from(sorted(SCHEMES)), st.text())
def test_any_text_is_an_address_or_refused_with_a_reason(scheme: str, text: str) -> None:
    address, refusal = None, ""
    try:
        address = parse(f"{scheme}://{text}")
    except ValueError as error:
        refusal = str(error)
    assert refusal.startswith(("should", "is not")) if address is None else address.kind is SCHEMES[scheme]
