"""Places: where a connection for subscriptions goes to, be it one server, the primary behind Sentinels, or a node.

A subscribed connection is held for as long as somebody listens, and can carry nothing else. So it is made beside
redis-py's pools, with their options, and never counts as one of theirs. Never send a command here.
"""

from typing import Any, Protocol, cast

from redis.asyncio import ConnectionPool, RedisCluster
from redis.asyncio.cluster import ClusterNode
from redis.asyncio.retry import Retry
from redis.backoff import NoBackoff

from .client import Client
from .links import Nodes


class Connection(Protocol):
    """What is used of a redis-py connection, which is made without connecting to anybody."""

    async def connect(self) -> None: ...
    async def disconnect(self) -> None: ...
    async def send_packed_command(self, command: bytes, check_health: bool) -> None: ...
    async def read_response(self, *, timeout: float) -> Any: ...


class Place(Protocol):
    """A server that has some channels."""

    @property
    def name(self) -> str:
        """What tells it from other places."""
        ...

    def connection(self) -> Connection:
        """A new connection to it, whose owner closes it."""
        ...


class Places(Protocol):
    """Who has which channel."""

    async def of(self, channel: str) -> Place:
        """The place that has a channel. Raises ConnectionError of redis-py where none is known."""
        ...

    def doubt(self, place: str) -> None:
        """Learn that a place, by its name, has failed, or has a channel no more."""
        ...


class OnePlace:
    """One server, or whoever is primary when it connects: both have all channels."""

    name = ""

    def __init__(self, pool: ConnectionPool) -> None:
        self._pool = pool

    def connection(self) -> Connection:
        """A new connection, which asks the Sentinels for the primary, if there are any."""
        return cast(Connection, self._pool.make_connection())

    async def of(self, channel: str) -> Place:
        """The only one."""
        return self

    def doubt(self, place: str) -> None:
        """Nothing: a new connection finds the primary by itself."""


class NodePlace:
    """One node of a cluster."""

    def __init__(self, node: ClusterNode) -> None:
        self._node = node
        self.name = node.name

    def connection(self) -> Connection:
        """A new connection, made as the node makes its own."""
        options: dict[str, Any] = {**self._node.connection_kwargs, "retry": Retry(NoBackoff(), 0)}
        return cast(Connection, self._node.connection_class(**options))


class ClusterPlaces:
    """The nodes of a cluster, each with the channels of its slots."""

    def __init__(self, cluster: RedisCluster) -> None:
        self._nodes = Nodes(cluster)

    async def of(self, channel: str) -> Place:
        """The primary that has the channel's slot."""
        return NodePlace(cast(ClusterNode, await self._nodes.of(channel)))

    def doubt(self, place: str) -> None:
        """Ask the other nodes who has which slot before this one is used again."""
        self._nodes.doubt(place)


def places_of(client: Client) -> Places:
    """The places of the server, or the servers, that a client is for."""
    return ClusterPlaces(client) if isinstance(client, RedisCluster) else OnePlace(client.connection_pool)
