"""Requests as bytes: where they go, and their heads. Pure."""

import re
from collections.abc import Mapping
from typing import NamedTuple
from urllib.parse import quote, urlsplit

import msgspec

from service.engine.names import PORTS, Place

AGENT = "harmonium"
"""What a server hears who asks it."""

KEPT_IN_PATHS = "/%:@!$&'()*+,;=~"
"""What a path has as it is (RFC 3986, section 3.3); what is escaped stays so."""

_TORN = re.compile(r"[\r\n\0]")
"""What would end a header."""


class Peer(NamedTuple):
    """Whom a connection leads to. `certified` is the name that its certificate has to have."""

    tls: bool
    host: str
    port: int
    certified: str


class Target(msgspec.Struct, frozen=True):
    """Where a server is asked: the other end, what it is told to be asked for, and what its paths begin with."""

    peer: Peer
    authority: str
    prefix: str


def target_of(place: Place) -> Target:
    """Where the server of a place is asked. Raises ValueError for a host that can't be one."""
    parts = urlsplit(place.url)
    host = parts.hostname or ""
    if not host.isascii():
        host = host.encode("idna").decode()
    port = parts.port or PORTS[parts.scheme]
    authority = f"[{host}]" if ":" in host else host
    if port != PORTS[parts.scheme]:
        authority = f"{authority}:{port}"
    peer = Peer(parts.scheme == "https", host, port, place.certified or host)
    return Target(peer, place.host or authority, quote(parts.path, safe=KEPT_IN_PATHS))


def head(method: str, target: Target, path: str, headers: Mapping[str, str], length: int) -> bytes:
    """The head of a request whose body has so many bytes. Raises ValueError where a header would become two."""
    lines = [f"{name}: {value}" for name, value in headers.items()]
    if any(map(_TORN.search, lines)):
        raise ValueError("a header has a line break, or a NUL")
    said = "\r\n".join(
        (
            f"{method} {target.prefix}{path} HTTP/1.1",
            f"host: {target.authority}",
            *lines,
            f"user-agent: {AGENT}",
            f"content-length: {length}",
        )
    )
    return said.encode() + b"\r\n\r\n"
