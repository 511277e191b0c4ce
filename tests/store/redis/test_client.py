"""Clients and their addresses: what a URL names, why one is refused, and that each end has its certificate."""

import re
from collections.abc import Iterator
from pathlib import Path
from urllib.parse import urlencode

import pytest
from hypothesis import given
from hypothesis import strategies as st

from store.errors import StoreUnavailable
from store.history.history import ConversationHistoryStore
from store.redis.address import SCHEMES, Address, AddressKind, parse
from store.redis.connection import connect
from tests.support.store.operations import OPERATIONS
from tests.support.store.sample import grow, said
from tests.support.store.servers import Certificates, Process, certificates, cluster, server


@pytest.fixture(scope="module")
def issued(tmp_path_factory: pytest.TempPathFactory) -> Certificates:
    """Certificates for a server and a client."""
    return certificates(tmp_path_factory.mktemp("certificates"))


@pytest.fixture(scope="module")
def encrypted(tmp_path_factory: pytest.TempPathFactory, issued: Certificates) -> Iterator[Process]:
    """A server that speaks TLS alone, and asks its clients for a certificate."""
    with server(tmp_path_factory.mktemp("encrypted"), tls=issued) as started:
        yield started


async def test_both_ends_of_a_connection_prove_who_they_are(encrypted: Process, issued: Certificates) -> None:
    store = ConversationHistoryStore(
        connect(f"rediss://{encrypted.address}?{urlencode(issued.client_options)}"), timeout_seconds=15.0
    )
    for operation in OPERATIONS.values():
        (id,) = await grow(store, "one")
        await operation(store, id)
    await store.close()


@pytest.mark.parametrize(
    ("url", "reason"),
    [
        ("rediss://{server}", "certificate verify failed"),
        ("rediss://{server}?ssl_ca_certs={ca}", "certificate required|closed|reset|lost|peer"),
        ("redis://{server}", "closed|reset|lost|peer"),
    ],
    ids=["a server that nobody vouches for", "a client without a certificate", "no encryption"],
)
async def test_a_connection_that_proves_too_little_is_refused(
    encrypted: Process, issued: Certificates, url: str, reason: str
) -> None:
    store = ConversationHistoryStore(connect(url.format(server=encrypted.address, ca=issued.authority)))
    with pytest.raises(StoreUnavailable, match=f"(?i){reason}"):
        await store.check()
    await store.close()


async def test_a_cluster_is_encrypted_too(tmp_path: Path, issued: Certificates) -> None:
    with cluster(tmp_path, tls=issued) as found:
        store = ConversationHistoryStore(connect(found.url), shards=4, timeout_seconds=15.0)
        for name in ("one", "two", "three", "four"):
            (id,) = await grow(store, name)
            assert await said(store, id) == [name]
        await store.close()


@pytest.mark.parametrize("url", ["redis://h?foo=bar", "redis+sentinel://h/s?foo=bar", "redis://h?max_connections=many"])
def test_an_option_that_no_connection_takes_is_refused_at_once(url: str) -> None:
    with pytest.raises((TypeError, ValueError)):
        connect(url)


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
