"""Clients: redis-py's client for each kind of address, with the limits and options that the store relies on.

redis-py's own retries are off, as Operation retries. The store takes connections as its clients make them, and keeps
them itself (wire.py).
"""

from collections.abc import Callable
from typing import Any

from redis.asyncio import ConnectionPool, Redis, RedisCluster
from redis.asyncio.cluster import ClusterNode
from redis.asyncio.connection import parse_url
from redis.asyncio.retry import Retry
from redis.asyncio.sentinel import Sentinel, SentinelConnectionPool
from redis.backoff import NoBackoff

from store.redis.address import Address, AddressKind, parse

RESP = 2
"""The protocol's version, pinned as replies differ in shape: 2 suffices, and has no greeting."""

REDIS_PORT = 6379
SENTINEL_PORT = 26379

TRIES = 4
"""The number of tries to connect that share an operation's time, where there are several hosts to try."""

Client = Redis | RedisCluster
Options = dict[str, Any]


class PrimaryPool(ConnectionPool):
    """Makes the connections to the primary behind an address."""

    def __init__(self, **options: Any) -> None:
        super().__init__(**options)  # pyright: ignore[reportUnknownMemberType]
        self.replaced: set[Callable[[], None]] = set()
        """Called when a server turned out to be no primary."""


class SentinelPool(PrimaryPool, SentinelConnectionPool):
    """Makes connections to the primary that the Sentinels name; it closes those to the Sentinels too."""

    def __init__(self, service: str, manager: Any, **options: Any) -> None:
        super().__init__(service_name=service, sentinel_manager=manager, **options)

    async def aclose(self) -> None:
        try:
            await super().aclose()
        finally:
            await self.sentinel_manager.aclose()  # pyright: ignore[reportUnknownMemberType]


def connect(url: str, *, max_connections: int = 64, timeout_seconds: float = 2.0) -> Client:
    """A client for a URL as in address.py, with at most `max_connections`, and two at least; to each node of a cluster.

    `timeout_seconds` bounds connecting. Replies have no limit here: an Operation's deadline covers them, and
    redis-py's limit per reply would cost a task each. Nothing is connected yet. Close it with `aclose()`. Raises
    ValueError or TypeError for a URL or an option that can't be used.
    """
    address = parse(url)
    several = address.kind is not AddressKind.SINGLE
    options: Options = {
        "max_connections": max_connections,
        "socket_timeout": None,
        "socket_connect_timeout": timeout_seconds / TRIES if several else timeout_seconds,
        **parse_url(address.urls[0]),
        "protocol": RESP,  # the store knows these replies and no others, whatever the URL says
        "decode_responses": False,
        "retry": Retry(NoBackoff(), 0),
    }
    if address.kind is AddressKind.CLUSTER:
        return _cluster(address, options)
    pool = PrimaryPool(**options) if address.kind is AddressKind.SINGLE else _sentinel_pool(address, options)
    pool.make_connection()  # without connecting: an option that no connection takes is refused now
    return Redis.from_pool(pool)


def _cluster(address: Address, options: Options) -> RedisCluster:
    """A client of a cluster: a moved slot changes one entry, and a slot without a node doesn't stop the others."""
    nodes = [ClusterNode(host, port) for host, port in _hosts(address, REDIS_PORT)]
    return RedisCluster(
        startup_nodes=nodes,
        ssl=address.tls,
        require_full_coverage=False,
        reinitialize_steps=0,
        **_without_host(options),
    )


def _sentinel_pool(address: Address, options: Options) -> SentinelPool:
    """A pool behind Sentinels. They answer at once or not at all, so each gets only the time to connect."""
    options = _without_host(options)
    sentinels = {
        **{name: value for name, value in options.items() if name.startswith(("socket_", "ssl_"))},
        "ssl": address.tls,
        "socket_timeout": options["socket_connect_timeout"],
        "max_connections": options["max_connections"],
        "username": options.pop("sentinel_username", None),
        "password": options.pop("sentinel_password", None),
        "protocol": RESP,
        "retry": options["retry"],
    }
    manager = Sentinel(_hosts(address, SENTINEL_PORT), sentinel_kwargs=sentinels)
    return SentinelPool(address.service, manager, ssl=address.tls, **options)


def _hosts(address: Address, port: int) -> list[tuple[str, int]]:
    parsed = [parse_url(each) for each in address.urls]
    return [(each.get("host", ""), each.get("port", port)) for each in parsed]


def _without_host(options: Options) -> Options:
    return {name: value for name, value in options.items() if name not in ("connection_class", "host", "port")}
