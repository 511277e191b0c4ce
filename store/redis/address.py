"""Addresses: the URLs by which a Redis is named, for one server, the primary behind Sentinels, or a cluster.

    redis://[USER:PASSWORD@]HOST[:PORT][/DATABASE]                         rediss:// with TLS
    unix://[USER:PASSWORD@]/PATH[?db=DATABASE]
    redis+sentinel://[USER:PASSWORD@]HOST[:PORT][,…]/SERVICE[/DATABASE]    rediss+sentinel:// with TLS
    redis+cluster://[USER:PASSWORD@]HOST[:PORT][,…]                        rediss+cluster:// with TLS

Options follow a `?` and are redis-py's, such as ssl_ca_certs; the hosts of a Sentinel URL are the Sentinels, which take
sentinel_username and sentinel_password. Pure, and imports nothing of redis-py: settings are checked by it before
anything else is loaded. No message has a part of the URL, as that may be a password.
"""

from dataclasses import dataclass
from enum import StrEnum
from urllib.parse import parse_qs, urlsplit

from store.urls import check_hosts


class AddressKind(StrEnum):
    """The kind of server that an address names."""

    SINGLE = "single"
    SENTINEL = "sentinel"
    CLUSTER = "cluster"


@dataclass(frozen=True, slots=True)
class Address:
    """The parts of a URL: for each of its hosts a URL of that host alone, as redis-py reads it, and a service."""

    kind: AddressKind
    urls: tuple[str, ...]
    service: str = ""

    @property
    def tls(self) -> bool:
        return self.urls[0].startswith("rediss:")


SCHEMES = {
    "redis": AddressKind.SINGLE,
    "rediss": AddressKind.SINGLE,
    "unix": AddressKind.SINGLE,
    "redis+sentinel": AddressKind.SENTINEL,
    "rediss+sentinel": AddressKind.SENTINEL,
    "redis+cluster": AddressKind.CLUSTER,
    "rediss+cluster": AddressKind.CLUSTER,
}


def parse(url: str) -> Address:
    """The address that a URL names. Raises ValueError, whose message continues behind the name of the setting."""
    scheme, separator, rest = url.partition("://")
    if not separator or scheme not in SCHEMES:
        raise ValueError(
            "should begin with redis://, rediss:// or unix://, or with redis+sentinel:// or redis+cluster://, "
            "which have a rediss too"
        )
    kind = SCHEMES[scheme]
    if kind is AddressKind.SINGLE:
        _check_host(url)
        if scheme != "unix":
            _check_database(urlsplit(url).path.strip("/"))
        return Address(kind, (url,))
    location, query = _split(rest, "?")
    hosts, path = _split(location, "/")
    user, at, listed = hosts.rpartition("@")
    urls = [f"{scheme.partition('+')[0]}://{user}{at}{each}" for each in listed.split(",")]
    for each in urls:
        _check_host(each, required=True)
    service, database = _names(kind, path.removeprefix("/"), query)
    return Address(kind, tuple(f"{each}{database}{query}" for each in urls), service)


def _split(text: str, separator: str) -> tuple[str, str]:
    before, found, rest = text.partition(separator)
    return before, found + rest


def _names(kind: AddressKind, path: str, query: str) -> tuple[str, str]:
    """The service that a path names, and the suffix of a host for the database."""
    if kind is AddressKind.CLUSTER:
        if path or "db" in parse_qs(query.removeprefix("?")):
            raise ValueError("should name no database, as a cluster has only one: redis+cluster://host:6379,host:6380")
        return "", ""
    service, _, database = path.rstrip("/").partition("/")
    if not service:
        raise ValueError("should name the service that the Sentinels watch: redis+sentinel://host:26379/mymaster")
    _check_database(database)
    return service, f"/{database}" if database else ""


def _check_host(url: str, required: bool = False) -> None:
    check_hosts(url)
    if required and not urlsplit(url).hostname:
        raise ValueError("should name hosts, as in host:6379,host:6380")


def _check_database(database: str) -> None:
    if database and not database.isdecimal():
        raise ValueError("should end with the number of a database, as in redis://localhost:6379/0, or without one")
