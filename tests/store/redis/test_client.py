"""Clients: encrypted, each end with its certificate, and what a URL may ask of them."""

from collections.abc import Iterator
from pathlib import Path
from urllib.parse import urlencode

import pytest

from store.errors import StoreUnavailable
from store.history.history import ConversationHistoryStore
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
