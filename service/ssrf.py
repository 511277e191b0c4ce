"""Where the service connects on a stranger's word, as for a webhook: public addresses of the internet, and no others.

Otherwise a stranger, with a URL or its name in DNS, could make the service send requests to addresses that only it can
reach: its own ports, its network, the cloud's metadata. So a name is resolved once for each delivery, all of its
addresses are checked, and the connection goes to these addresses and no others, whatever the name resolves to a
moment later. Never connect by name, and never judge a name by its spelling.
"""

import asyncio
import ipaddress
import socket
from collections.abc import Awaitable, Callable, Iterable
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from ipaddress import IPv4Address, IPv4Network, IPv6Address, IPv6Network

LOOK_UPS_AT_ONCE = 64
"""How many names are looked up at the same time. A look-up can't be stopped, and takes half a minute where a stranger's
name server never answers; the event loop's own threads are few, and Redis and the engine are looked up in them.
"""

_LOOKING_UP = ThreadPoolExecutor(LOOK_UPS_AT_ONCE, thread_name_prefix="look-up")

BY_NAME = "dns+"
"""The prefix of an engine URL that stands for all addresses of its host."""

PRIVATELY = "private+"
"""The prefix of a webhook URL whose host may have private, local or otherwise special addresses."""

LookUp = Callable[[str, int], Awaitable[list[str]]]
"""From a host and a port to all addresses of the host; raises OSError where there are none."""

SPECIAL = (
    IPv4Network("192.0.0.0/24"),  # protocols, and a cloud's metadata; older Pythons know only parts of it as private
    IPv4Network("192.88.99.0/24"),  # relays of 6to4
    IPv4Network("168.63.129.16/32"),  # another cloud's metadata, on a public address
)
GLOBAL_UNICAST = IPv6Network("2000::/3")
"""All public addresses; the rest of IPv6 is special in one way or another."""

DOCUMENTATION = IPv6Network("3fff::/20")
NAT64 = IPv6Network("64:ff9b::/96")


Judge = Callable[[str], bool]
"""Whether a stranger may have the service connect to an address."""


NO_PUBLIC_ADDRESS = "its host has no public address"
"""The words for whoever named a host: another word for a host that isn't there would tell which are, inside."""


class ForbiddenAddress(Exception):
    """A host has an address that isn't public."""

    def __init__(self, address: str) -> None:
        super().__init__(f"it leads to {address}, which is not a public address")


class FetchFailure(Exception):
    """A file of the web could not be fetched, and why: the client may read it."""


def is_within(host: str, domains: tuple[str, ...]) -> bool:
    """Whether a host is one of these domains or below one, or there are none."""
    name = host.rpartition(":")[0] if host.rpartition(":")[2].isdecimal() else host
    name = name.lower().rstrip(".")
    return not domains or any(name == domain or name.endswith(f".{domain}") for domain in domains)


async def look_up(host: str, port: int) -> list[str]:
    """All addresses of a host, as the system knows them. Raises OSError where it has none."""
    try:
        asked = partial(socket.getaddrinfo, host, port, type=socket.SOCK_STREAM)
        found = await asyncio.get_running_loop().run_in_executor(_LOOKING_UP, asked)
    except UnicodeError as error:
        raise OSError(f"no host can have a name like that: {error}") from error
    return list(dict.fromkeys(str(target[0]) for *_, target in found))


async def public_addresses(host: str, port: int, look_up: LookUp, may_reach: Judge | None = None) -> list[str]:
    """All addresses of a host. Raises ForbiddenAddress for one that isn't public, or `may_reach` refuses; OSError."""
    addresses = await look_up(host, port)
    for address in addresses:
        if not (may_reach or is_public)(address):
            raise ForbiddenAddress(address)
    return addresses


def outside_of(private: Iterable[str]) -> Judge:
    """The judge of addresses that strangers name: public ones, in no network of the operator's, each as 10.0.0.0/8, and
    not the machine's own.
    """
    networks = [ipaddress.ip_network(each) for each in private]

    def may_reach(address: str) -> bool:
        meant = [ipaddress.ip_address(address)]
        if isinstance(meant[0], IPv6Address) and (inner := _inner(meant[0])) is not None:
            meant.append(inner)
        return is_public(address) and not any(
            is_own(str(each)) or any(each in network for network in networks) for each in meant
        )

    return may_reach


def is_own(address: str) -> bool:
    """Whether an address is one of this machine's: the system would send from it to itself. Nothing is sent."""
    family = socket.AF_INET6 if ":" in address else socket.AF_INET
    with socket.socket(family, socket.SOCK_DGRAM) as asking:
        try:
            asking.connect((address, 9))
        except OSError:  # no way leads there
            return False
        return ipaddress.ip_address(asking.getsockname()[0]) == ipaddress.ip_address(address)


def is_public(address: str) -> bool:
    """Whether an address belongs to the internet: not to a network, a machine, a group, a purpose or nobody.

    An IPv6 address that stands for an IPv4 one is judged by that (RFC 4291, RFC 6052, RFC 3056).
    """
    parsed = ipaddress.ip_address(address)
    meant = parsed if isinstance(parsed, IPv4Address) else _inner(parsed)
    if meant is not None:
        return meant.is_global and not meant.is_multicast and not any(meant in network for network in SPECIAL)
    return parsed in GLOBAL_UNICAST and parsed.is_global and parsed not in DOCUMENTATION


def _inner(address: IPv6Address) -> IPv4Address | None:
    translated = IPv4Address(address.packed[-4:]) if address in NAT64 else None
    return address.ipv4_mapped or address.sixtofour or translated
